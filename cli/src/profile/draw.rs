//! Pictures of a report, as SVG.

use std::fmt::Write as _;

use daemon::Sample;

use super::records::{Class, File, SIZES, least};
use crate::{
    html::{self, escaped, svg},
    size::Size,
};

const WIDTH: f64 = 880.0;
/// Room for the numbers at the left.
const LEFT: f64 = 90.0;
const RIGHT: f64 = 10.0;
/// Room for the time below.
const FOOT: f64 = 18.0;
/// Most steps of the time axis.
const STEPS_MAX: f64 = 8.0;
/// Bars of files that are drawn.
const FILES: usize = 20;

/// Bytes a second between two samples.
struct Rate {
    /// Seconds since the job began.
    from: f64,
    to: f64,
    written: f64,
    drained: f64,
    read: f64,
}

fn rates(samples: &[Sample]) -> Vec<Rate> {
    let between = |pair: &[Sample]| {
        let [before, now] = pair else { return None };
        let (from, to) = (millis(before.at_ms), millis(now.at_ms));
        let time = (to - from).max(1e-3);
        let rate = |of: fn(&Sample) -> u64| bytes(of(now).saturating_sub(of(before))) / time;
        let drained = |sample: &Sample| sample.written.saturating_sub(sample.pending);
        Some(Rate {
            from,
            to,
            written: rate(|sample| sample.written),
            drained: rate(drained),
            read: rate(|sample| sample.read),
        })
    };
    samples.windows(2).filter_map(between).collect()
}

fn millis(time: u64) -> f64 {
    bytes(time) / 1e3
}

#[expect(clippy::cast_precision_loss, reason = "a picture has less than 53 bits")]
fn bytes(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a label")]
fn label(number: f64) -> String {
    Size(number.max(0.0) as u64).approximate()
}

/// Bytes the program wrote above a line, and bytes that reached the files below it.
pub(super) fn timeline(samples: &[Sample], end: f64) -> String {
    const HALF: f64 = 90.0;
    const READ: f64 = 70.0;
    let rates = rates(samples);
    let (top, middle) = (14.0, 14.0 + HALF);
    let most = rates.iter().fold(1.0, |most: f64, it| most.max(it.written).max(it.drained));
    let most_read = rates.iter().fold(1.0, |most: f64, it| most.max(it.read));
    let read_foot = middle + HALF + 42.0 + READ;
    let mut body = String::new();
    let mut bar = |rate: &Rate, at: f64, height: f64, class: &str, tip: String| {
        if height > 0.05 {
            let (x, width) = (x(rate.from, end), (x(rate.to, end) - x(rate.from, end)).max(0.4));
            // Infallible, as everywhere below.
            write!(
                body,
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{at:.1}\" width=\"{width:.2}\" \
                 height=\"{height:.1}\"><title>{tip}</title></rect>"
            )
            .ok();
        }
    };
    for rate in &rates {
        let [written, drained] = [rate.written, rate.drained].map(|it| it / most * HALF);
        let read = rate.read / most_read * READ;
        let at = format!("{:.2} s", rate.from);
        bar(rate, middle - written, written, "written", tip(&at, "written", rate.written));
        bar(rate, middle, drained, "drained", tip(&at, "in the files", rate.drained));
        bar(rate, read_foot - read, read, "read", tip(&at, "read", rate.read));
    }
    let scale = |of: fn(&Rate) -> f64, most: f64| match rates.iter().any(|rate| of(rate) > 0.0) {
        true => format!("{}/s", label(most)),
        false => "nothing".to_owned(),
    };
    let of_writes = scale(|rate| rate.written.max(rate.drained), most);
    let of_reads = scale(|rate| rate.read, most_read);
    let mut text =
        |x: f64, y: f64, class: &str, text: &str| body += &html::label(x, y, class, text);
    text(LEFT - 6.0, top + 4.0, "right", &of_writes);
    text(LEFT - 6.0, middle + 4.0, "right", "0");
    text(LEFT - 6.0, middle + HALF, "right", &of_writes);
    text(LEFT, top - 4.0, "", "written by the program");
    text(LEFT, middle + HALF + 12.0, "", "brought into the files (drained, or written directly)");
    text(LEFT, read_foot - READ - 6.0, "", "read by the program");
    text(LEFT - 6.0, read_foot - READ + 8.0, "right", &of_reads);
    body += &axis(middle);
    body += &axis(read_foot);
    body += &time_axis(end, read_foot);
    svg(
        WIDTH,
        read_foot + FOOT,
        "Bytes written, brought into the files, and read, over time",
        &body,
    )
}

fn axis(y: f64) -> String {
    let end = WIDTH - RIGHT;
    format!("<line class=\"axis\" x1=\"{LEFT}\" y1=\"{y}\" x2=\"{end}\" y2=\"{y}\"/>")
}

fn tip(at: &str, what: &str, rate: f64) -> String {
    format!("{at}: {}/s {what}", label(rate))
}

/// Bytes that wait in staging, and how busy the daemon is.
pub(super) fn waiting(samples: &[Sample], end: f64) -> String {
    const HEIGHT: f64 = 70.0;
    let foot = 14.0 + HEIGHT;
    let most = samples.iter().map(|sample| sample.pending).max().unwrap_or(0).max(1);
    let path = |of: &dyn Fn(&Sample) -> f64| {
        let points = samples.iter().map(|sample| {
            format!("{:.1},{:.1}", x(millis(sample.at_ms), end), foot - of(sample) * HEIGHT)
        });
        points.collect::<Vec<_>>().join(" ")
    };
    let pending = path(&|sample| bytes(sample.pending) / bytes(most));
    let busy = path(&|sample| f64::from(sample.busy) / 1000.0);
    let mut body = format!(
        "<polygon class=\"pending\" points=\"{LEFT},{foot} {pending} {},{foot}\"/>\
         <polyline class=\"busy\" points=\"{busy}\"/>{}",
        samples.last().map_or(LEFT, |last| x(millis(last.at_ms), end)),
        axis(foot),
    );
    let is_empty = samples.iter().all(|sample| sample.pending == 0);
    let most = if is_empty { "nothing".to_owned() } else { Size(most).approximate() };
    let what = "waits in staging (area); share of its time that the daemon worked (line, to 100 %)";
    body += &(html::label(LEFT - 6.0, 20.0, "right", &most) + &html::label(LEFT, 10.0, "", what));
    body += &time_axis(end, foot);
    svg(
        WIDTH,
        foot + FOOT,
        "Bytes that wait in staging, and how busy the daemon is, over time",
        &body,
    )
}

/// Where a time, in seconds, is.
fn x(time: f64, end: f64) -> f64 {
    LEFT + (WIDTH - LEFT - RIGHT) * (time / end.max(1e-3)).clamp(0.0, 1.0)
}

fn time_axis(end: f64, foot: f64) -> String {
    let mut body = String::new();
    let (step, digits) = step(end);
    for mark in 0.. {
        let time = step * f64::from(mark);
        if time > end {
            break;
        }
        let (anchor, x, y) = (if mark == 0 { "" } else { "middle" }, x(time, end), foot + 13.0);
        // The last one ends where the axis does.
        let (anchor, x) =
            if x > WIDTH - 3.0 * RIGHT { ("right", WIDTH - RIGHT) } else { (anchor, x) };
        body += &html::label(x, y, anchor, &format!("{time:.digits$} s"));
    }
    body
}

/// The time between two marks, 1, 2, or 5 times a power of ten, and its digits behind the point.
fn step(end: f64) -> (f64, usize) {
    let powers = (-3..8).map(|power: i32| (10_f64.powi(power), power.min(0).unsigned_abs()));
    let mut steps =
        powers.flat_map(|(power, digits)| [1.0, 2.0, 5.0].map(|it| (it * power, digits)));
    let fitting = steps.find(|(step, _)| end / step <= STEPS_MAX);
    fitting.map_or((end.max(1.0), 0), |(step, digits)| (step, digits as usize))
}

/// How many calls of which size.
pub(super) fn histogram(title: &str, classes: &[Class; SIZES]) -> String {
    const HEIGHT: f64 = 90.0;
    let (foot, most) = (18.0 + HEIGHT, classes.iter().map(|class| class.calls).max().unwrap_or(0));
    let step = (WIDTH - LEFT - RIGHT) / bytes(SIZES as u64);
    let mut body = html::label(LEFT - 6.0, 22.0, "right", &most.to_string());
    for (index, class) in classes.iter().enumerate() {
        let (at, height) =
            (LEFT + step * bytes(index as u64), bytes(class.calls) / bytes(most.max(1)) * HEIGHT);
        let from = match index {
            0 => "0".to_owned(),
            _ => Size(least(index)).approximate(),
        };
        write!(
            body,
            "<rect class=\"calls\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\">\
             <title>{} calls, {}</title></rect><text x=\"{at:.1}\" y=\"{:.1}\">{from}</text>",
            at + 1.0,
            foot - height,
            step - 2.0,
            class.calls,
            Size(class.bytes).approximate(),
            foot + 13.0,
        )
        .ok();
        if class.calls > 0 {
            let (x, y) = (at + step / 2.0, foot - height - 3.0);
            body += &html::label(x, y, "middle", &class.calls.to_string());
        }
    }
    body += &axis(foot);
    svg(WIDTH, foot + FOOT, title, &body)
}

/// When the files with most bytes were open.
pub(super) fn files(files: &[File], began_ns: u64, end: f64) -> String {
    const ROW: f64 = 16.0;
    let shown = files.get(..FILES.min(files.len())).unwrap_or_default();
    let since = |ns: u64| bytes(ns.saturating_sub(began_ns)) / 1e9;
    let mut body = String::new();
    for (row, file) in shown.iter().enumerate() {
        let y = 4.0 + ROW * bytes(row as u64);
        let (from, to) = (x(since(file.from_ns), end), x(since(file.to_ns), end));
        let class = if file.written >= file.read { "written" } else { "read" };
        let name = file.path.rsplit('/').next().unwrap_or_default();
        let name: String = name.chars().take(60).collect();
        // Beside its bar, where there is room.
        let (at, anchor) =
            if to < WIDTH * 0.6 { (to + 5.0, "") } else { (from.max(LEFT) - 5.0, "right") };
        let (at, anchor) = if anchor == "right" && from < WIDTH * 0.4 {
            (from + 5.0, "over")
        } else {
            (at, anchor)
        };
        write!(
            body,
            "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"12\">\
             <title>{}</title></rect><text x=\"{at:.1}\" y=\"{:.1}\" class=\"{anchor}\">{}</text>",
            (to - from).max(1.0),
            escaped(&file.path),
            y + 10.0,
            escaped(&name),
        )
        .ok();
    }
    let foot = 4.0 + ROW * bytes(shown.len() as u64);
    body += &time_axis(end, foot);
    svg(WIDTH, foot + FOOT, "When the files with most bytes were open", &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_time_are_round_and_few() {
        for (end, expected) in [
            (0.004, (1e-3, 3)),
            (0.9, (0.2, 1)),
            (7.92, (1.0, 0)),
            (51.0, (10.0, 0)),
            (86_400.0, (2e4, 0)),
        ] {
            let (step, digits) = step(end);
            assert!(
                (step / expected.0 - 1.0).abs() < 1e-9 && digits == expected.1,
                "{end}: {step}"
            );
            assert!(time_axis(end, 0.0).matches("<text").count() <= 9);
        }
        assert!(time_axis(8.0, 0.0).contains("class=\"right\">8 s<"));
    }
}
