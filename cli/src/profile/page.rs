//! The page of a report: one file of HTML, with its style and pictures in it. Its only script sorts
//! tables.

use std::{fmt::Write as _, time::Duration};

use super::{
    Facts, advice, draw,
    records::{Class, File, Process, Records, SIZES},
};
use crate::{config::Origin, html::escaped, report, size::Size};

/// Rows of a table; the rest is one line.
const ROWS: usize = 50;

pub(super) fn text(facts: &Facts<'_>) -> String {
    let mut page = head(facts);
    page += &advised(facts);
    page += &timelines(facts);
    page += &sizes(facts.records);
    page += &files(facts);
    page += &processes(facts);
    page += &undelegated(facts);
    page += &settings(facts);
    // Infallible.
    writeln!(page, "</main><script>{SCRIPT}</script></body></html>").ok();
    page
}

const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");

fn head(facts: &Facts<'_>) -> String {
    let (job, summary) = (facts.job, facts.job.summary);
    let system = rustix::system::uname();
    let node = system.nodename().to_string_lossy();
    let command = escaped(&job.command);
    let tile = |name: &str, value: &str| {
        format!("<div class=\"tile\"><b>{}</b><span>{name}</span></div>", escaped(value))
    };
    let size = |bytes: u64| Size(bytes).approximate();
    let tiles = [
        tile("written", &size(summary.bytes_written)),
        tile("read", &size(summary.bytes_read)),
        tile(
            "of what was written was delegated",
            &advice::percent(summary.bytes_delegated, summary.bytes_written),
        ),
        tile("files", &summary.files.to_string()),
        tile("processes", &facts.records.processes.len().to_string()),
        tile("run time", &time(facts.time)),
        gain_tile(facts),
    ];
    format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>Kakehi: {command}</title><style>{STYLE}</style></head><body><main>\
         <h1>{command}</h1><p class=\"about\">Job {}, on {}, exit status {}; Kakehi {}.</p>\
         <div class=\"tiles\">{}</div>\n",
        escaped(job.name),
        escaped(&node),
        job.exit_code,
        env!("CARGO_PKG_VERSION"),
        tiles.concat(),
    )
}

fn gain_tile(facts: &Facts<'_>) -> String {
    let Some(estimate) = facts.estimate else {
        let why = if facts.has_mapped { "unknown of mapped folders" } else { "too little to say" };
        return format!("<div class=\"tile\"><b>-</b><span>time saved: {why}</span></div>");
    };
    let (taken, native) = (estimate.taken, estimate.native);
    let (class, name, time) = if native >= taken {
        ("gain", "saved in writes and closes (estimate)", native - taken)
    } else {
        ("loss", "lost in writes and closes (estimate)", taken - native)
    };
    format!("<div class=\"tile {class}\"><b>{}</b><span>{name}</span></div>", self::time(time))
}

fn advised(facts: &Facts<'_>) -> String {
    let mut text = "<h2>In plain words</h2><ul>".to_owned();
    for sentence in advice::sentences(facts) {
        write!(text, "<li>{}</li>", escaped(&sentence)).ok();
    }
    text += "</ul>";
    if let Some(estimate) = facts.estimate {
        write!(
            text,
            "<p class=\"note\">The estimate: {}, by one call in 16 that was timed, and what Kakehi \
             does when a file is closed took the processes {} together. Without delegation the \
             writes would have taken {}: as long as {}.</p>",
            report::count(estimate.writes, "write", "s"),
            time(estimate.taken),
            time(estimate.native),
            estimate.by.words(),
        )
        .ok();
    }
    text + "\n"
}

fn timelines(facts: &Facts<'_>) -> String {
    let samples = &facts.job.summary.samples;
    let end = facts.time.as_secs_f64();
    if samples.len() < 2 {
        return "<h2>Over time</h2><p>The job ended before the daemon took a second sample.</p>\n"
            .to_owned();
    }
    format!(
        "<h2>Over time</h2>{}{}<p class=\"note\">From {} samples of the daemon. What a process \
         wrote before it met the daemon counts when it ends.</p>\n",
        draw::timeline(samples, end),
        draw::waiting(samples, end),
        samples.len(),
    )
}

fn sizes(records: &Records) -> String {
    let of = |title: &str, classes: &[Class; SIZES]| {
        let total: Class = Records::total(classes);
        if total.calls == 0 {
            return String::new();
        }
        let mean = Size(total.bytes / total.calls).approximate();
        let took = match total.timed {
            0 => String::new(),
            timed => format!(", {} each", time(Duration::from_nanos(total.timed_ns / timed))),
        };
        format!(
            "<h3>{title}: {}, {mean} on average{took}</h3>{}",
            report::count(total.calls, "call", "s"),
            draw::histogram(title, classes),
        )
    };
    let text = of("Writes", &records.writes) + &of("Reads", &records.reads);
    if text.is_empty() { text } else { format!("<h2>Sizes of calls</h2>{text}\n") }
}

fn files(facts: &Facts<'_>) -> String {
    let files = &facts.records.files;
    if files.is_empty() {
        return String::new();
    }
    let row = |file: &File| {
        let (from, to) = (file.from_ns.saturating_sub(facts.began_ns), file.to_ns);
        let open = to.saturating_sub(file.from_ns);
        cells(&[
            path_cell(&file.path),
            size_cell(file.written),
            size_cell(file.read),
            number_cell(file.writes),
            number_cell(file.reads),
            number_cell(file.opens),
            time_cell(from),
            time_cell(open),
        ])
    };
    let heads =
        ["File", "#Written", "#Read", "#Writes", "#Reads", "#Opens", "#First used", "#Open for"];
    format!(
        "<h2>Files with most bytes</h2>{}{}\n",
        draw::files(files, facts.began_ns, facts.time.as_secs_f64()),
        table(&heads, files.iter().map(row), files.len()),
    )
}

fn processes(facts: &Facts<'_>) -> String {
    let processes = &facts.records.processes;
    if processes.is_empty() {
        return String::new();
    }
    let row = |process: &Process| {
        let rank = process.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string());
        let name = process.program.rsplit('/').next().unwrap_or_default();
        cells(&[
            text_cell(&rank),
            number_cell(process.pid.into()),
            text_cell(name),
            size_cell(process.written),
            size_cell(process.read),
            number_cell(process.calls),
            number_cell(process.closes),
            time_cell(process.to_ns.saturating_sub(process.from_ns)),
        ])
    };
    let mut by_bytes: Vec<_> = processes.iter().collect();
    by_bytes.sort_by_key(|it| std::cmp::Reverse(it.written.saturating_add(it.read)));
    let heads =
        ["Rank", "#Process", "Program", "#Written", "#Read", "#Calls", "#Closes", "#Ran for"];
    let rows = by_bytes.into_iter().map(row);
    format!("<h2>Ranks and processes</h2>{}\n", table(&heads, rows, processes.len()))
}

fn undelegated(facts: &Facts<'_>) -> String {
    let summary = facts.job.summary;
    let bytes = summary.bytes_undelegated.iter().map(|(reason, bytes)| {
        cells(&[reason_cell(reason), size_cell(*bytes), text_cell(""), why(reason)])
    });
    let files = summary.fallbacks.iter().map(|(reason, files)| {
        cells(&[reason_cell(reason), text_cell(""), number_cell(*files), why(reason)])
    });
    let count = summary.bytes_undelegated.len() + summary.fallbacks.len();
    if count == 0 {
        return "<h2>What was not delegated, and why</h2><p>Everything was delegated.</p>\n".into();
    }
    let heads = ["Reason", "#Bytes", "#Files", "They"];
    let table = table(&heads, bytes.chain(files), count);
    format!("<h2>What was not delegated, and why</h2>{table}\n")
}

fn reason_cell(reason: &str) -> String {
    text_cell(&reason.replace('_', " "))
}

fn why(reason: &str) -> String {
    text_cell(advice::meaning(reason))
}

fn settings(facts: &Facts<'_>) -> String {
    let rows = &facts.job.config.rows;
    let set = rows.iter().filter(|row| row.origin != Origin::Default);
    let row = set.map(|row| {
        let value = row.value.as_deref().unwrap_or("");
        cells(&[text_cell(row.name), path_cell(value), path_cell(&row.origin.to_string())])
    });
    let row: Vec<_> = row.collect();
    if row.is_empty() {
        return "<h2>Settings</h2><p>All are the defaults.</p>\n".to_owned();
    }
    let count = row.len();
    let table = table(&["Setting", "Value", "Set by"], row.into_iter(), count);
    format!("<h2>Settings</h2>{table}\n")
}

/// A table; heads of columns of numbers begin with `#`.
fn table(heads: &[&str], rows: impl Iterator<Item = String>, count: usize) -> String {
    let head = |head: &&str| match head.strip_prefix('#') {
        Some(name) => format!("<th class=\"number\">{name}</th>"),
        None => format!("<th>{head}</th>"),
    };
    let heads: String = heads.iter().map(head).collect();
    let rows: String = rows.take(ROWS).collect();
    let more = match count.saturating_sub(ROWS) {
        0 => String::new(),
        more => format!("<p class=\"note\">And {more} more, with fewer bytes.</p>"),
    };
    format!("<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>{more}")
}

fn cells(cells: &[String]) -> String {
    format!("<tr>{}</tr>", cells.concat())
}

fn text_cell(text: &str) -> String {
    format!("<td>{}</td>", escaped(text))
}

/// A cell whose text may be broken anywhere.
fn path_cell(text: &str) -> String {
    format!("<td class=\"path\">{}</td>", escaped(text))
}

/// A cell that is sorted by `value`.
fn sorted_cell(value: u64, shown: &str) -> String {
    format!("<td class=\"number\" data-value=\"{value}\">{}</td>", escaped(shown))
}

fn number_cell(number: u64) -> String {
    sorted_cell(number, &number.to_string())
}

fn size_cell(bytes: u64) -> String {
    sorted_cell(bytes, &Size(bytes).approximate())
}

fn time_cell(ns: u64) -> String {
    sorted_cell(ns, &time(Duration::from_nanos(ns)))
}

/// A time with three digits.
pub(super) fn time(time: Duration) -> String {
    let ns = time.as_nanos();
    let seconds = time.as_secs_f64();
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", seconds * 1e6),
        1_000_000..1_000_000_000 => format!("{:.1} ms", seconds * 1e3),
        1_000_000_000..120_000_000_000 => format!("{seconds:.2} s"),
        _ => format!("{:.1} min", seconds / 60.0),
    }
}

#[cfg(test)]
mod tests {
    use daemon::{Sample, Summary};

    use super::*;
    use crate::{
        config::{Config, Environment, Flags},
        profile::Job,
    };

    fn page(files: usize, samples: u64) -> String {
        let mut records = Records::default();
        for index in 0..files {
            records.files.push(File {
                path: format!("/<script>/{}{index}", "long-name-".repeat(20)),
                written: 1 << 20,
                writes: 8,
                to_ns: 1 << 30,
                ..File::default()
            });
            records.processes.push(Process { rank: Some(1), ..Process::default() });
        }
        let at = |step: u64| Sample { at_ms: step * 20, written: step << 20, ..Sample::default() };
        let summary = Summary {
            samples: (0..samples).map(at).collect(),
            fallbacks: [("mapped".to_owned(), 40)].into(),
            ..Summary::default()
        };
        let Ok(config) = Config::load(&Environment::of(&[]), &Flags::default()) else {
            panic!("usable")
        };
        let job = Job {
            name: "j",
            command: "app <b> \"x\"".to_owned(),
            exit_code: 0,
            config: &config,
            summary: &summary,
        };
        text(&Facts {
            job: &job,
            time: Duration::from_secs(10),
            began_ns: 0,
            records: &records,
            has_mapped: false,
            estimate: None,
        })
    }

    #[test]
    fn a_page_stays_below_300_kilobytes_and_needs_nothing_from_elsewhere() {
        let page = page(5000, 512);
        assert!(page.len() < 300_000, "{}", page.len());
        for other in ["http:", "https:", "src=", "@import", "url("] {
            assert!(!page.contains(other), "{other}");
        }
        assert!(page.contains("4950 more") && page.contains("40 files were mapped for writing"));
    }

    #[test]
    fn chart_without_bytes_says_nothing_in_place_of_a_rate() {
        let page = page(1, 4);
        assert!(page.contains(">nothing</text>") && !page.contains(">1B/s</text>"), "{page}");
        assert!(!page.contains(">1B</text>"), "{page}");
    }

    #[test]
    fn names_of_files_and_programs_are_text() {
        let page = page(1, 0);
        assert_eq!(page.matches("<script>").count(), 1, "the page's own");
        assert!(page.contains("app &lt;b&gt; &quot;x&quot;"));
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        let shown = |ns| time(Duration::from_nanos(ns));
        assert_eq!(shown(900), "900 ns");
        assert_eq!(shown(1_500), "1.5 us");
        assert_eq!(shown(2_500_000_000), "2.50 s");
        assert_eq!(shown(180_000_000_000), "3.0 min");
    }
}
