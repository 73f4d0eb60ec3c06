//! Pictures of figures, as SVG: lines over logarithmic axes with their spreads, and grids of cells.

use std::fmt::Write as _;

use crate::{
    html::{escaped, label, svg},
    spread::Spread,
};

const WIDTH: f64 = 880.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 70.0;
/// Room for the names of lines.
const RIGHT: f64 = 170.0;
const TOP: f64 = 24.0;
const FOOT: f64 = 38.0;
/// Least distance of two names of lines.
const NAME: f64 = 13.0;
/// A cell of a grid.
const CELL: (f64, f64) = (88.0, 26.0);

/// A line of a figure.
pub(super) struct Line {
    pub(super) name: String,
    /// By x.
    pub(super) points: Vec<(f64, Spread)>,
}

/// A logarithmic axis.
struct Axis {
    from: f64,
    to: f64,
    /// Where these ends are.
    at: [f64; 2],
}

impl Axis {
    fn of(values: impl Iterator<Item = f64> + Clone, at: [f64; 2], is_padded: bool) -> Self {
        let values = values.filter(|value| *value > 0.0);
        let from = values.clone().fold(f64::INFINITY, f64::min);
        let to = values.fold(0.0, f64::max);
        let (from, to) = if from <= to { (from.log10(), to.log10()) } else { (0.0, 1.0) };
        // One value has an axis, too.
        let pad = if is_padded || to - from < 1e-9 { ((to - from) * 0.06).max(0.05) } else { 0.0 };
        Self { from: from - pad, to: to + pad, at }
    }

    fn place(&self, value: f64) -> f64 {
        let share = (value.max(f64::MIN_POSITIVE).log10() - self.from) / (self.to - self.from);
        let [from, to] = self.at;
        from + (to - from) * share.clamp(0.0, 1.0)
    }

    /// 1, 2, and 5 of every power of ten on the axis; only the powers where these are many.
    fn marks(&self) -> Vec<f64> {
        let steps: &[f64] = if self.to - self.from > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let mut marks = Vec::new();
        let mut power = self.from.floor();
        while power <= self.to {
            let on = |mark: &f64| (self.from..=self.to).contains(&mark.log10());
            marks.extend(steps.iter().map(|step| step * 10_f64.powf(power)).filter(on));
            power += 1.0;
        }
        marks
    }
}

/// Lines over x, a picture.
pub(super) fn lines(
    lines: &[Line],
    title: &str,
    [x_name, y_name]: [&str; 2],
    x_shown: impl Fn(f64) -> String,
) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let x = Axis::of(points().map(|point| point.0), [LEFT + 8.0, WIDTH - RIGHT], false);
    let spreads = points().flat_map(|(_, spread)| [spread.min, spread.median, spread.max]);
    let y = Axis::of(spreads, [HEIGHT - FOOT, TOP], true);
    let mut body = String::new();
    for mark in y.marks() {
        let at = y.place(mark);
        body += &format!(
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{}\" y2=\"{at:.1}\"/>",
            WIDTH - RIGHT
        );
        body += &label(LEFT - 6.0, at + 4.0, "right", &short(mark));
    }
    let mut marks: Vec<_> = points().map(|point| point.0).collect();
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    let mut last = f64::MIN;
    for mark in marks {
        let at = x.place(mark);
        if at - last > 44.0 {
            body += &label(at, HEIGHT - FOOT + 15.0, "middle", &x_shown(mark));
            last = at;
        }
    }
    let foot = HEIGHT - FOOT;
    body += &format!(
        "<line class=\"axis\" x1=\"{LEFT}\" y1=\"{foot}\" x2=\"{}\" y2=\"{foot}\"/>",
        WIDTH - RIGHT
    );
    body += &label(LEFT, TOP - 10.0, "", y_name);
    body += &label(f64::midpoint(LEFT, WIDTH - RIGHT), HEIGHT - 6.0, "middle", x_name);
    for (index, line) in lines.iter().enumerate() {
        body += &drawn(line, index % COLOURS, &x, &y);
    }
    body += &names(lines, &y);
    svg(WIDTH, HEIGHT, title, &body)
}

/// Colours of lines in the style sheet.
const COLOURS: usize = 8;

fn drawn(line: &Line, colour: usize, x: &Axis, y: &Axis) -> String {
    let places: Vec<_> = line
        .points
        .iter()
        .map(|(at, spread)| format!("{:.1},{:.1}", x.place(*at), y.place(spread.median)))
        .collect();
    let mut body = format!("<g class=\"c{colour}\"><polyline points=\"{}\"/>", places.join(" "));
    for (at, Spread { median, min, max }) in &line.points {
        let at = x.place(*at);
        // Infallible.
        write!(
            body,
            "<line x1=\"{at:.1}\" y1=\"{:.1}\" x2=\"{at:.1}\" y2=\"{:.1}\"/>\
             <circle cx=\"{at:.1}\" cy=\"{:.1}\" r=\"3\"><title>{}: {} ({} to {})</title></circle>",
            y.place(*min),
            y.place(*max),
            y.place(*median),
            escaped(&line.name),
            short(*median),
            short(*min),
            short(*max),
        )
        .ok();
    }
    body + "</g>"
}

/// The names of lines beside their ends, none over another.
fn names(lines: &[Line], y: &Axis) -> String {
    let end = |line: &Line| line.points.last().map_or(0.0, |(_, spread)| y.place(spread.median));
    let mut order: Vec<_> =
        lines.iter().enumerate().map(|(index, it)| (end(it), index, it)).collect();
    order.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut below = TOP - NAME;
    let mut body = String::new();
    let room = order.len() as f64 * NAME;
    for (at, index, line) in order {
        let at = at.max(below + NAME).min((HEIGHT - room).max(below + NAME));
        below = at;
        let colour = index % COLOURS;
        body += &label(WIDTH - RIGHT + 8.0, at + 4.0, &format!("name c{colour}"), &line.name);
    }
    body
}

/// A grid of cells: the darker, the more.
pub(super) fn grid(
    title: &str,
    [x_name, y_name]: [&str; 2],
    columns: &[String],
    rows: &[String],
    value: impl Fn(&str, &str) -> Option<Spread>,
) -> String {
    let all = rows.iter().flat_map(|row| columns.iter().filter_map(|column| value(column, row)));
    let medians: Vec<_> = all.map(|spread| spread.median).collect();
    let axis = Axis::of(medians.iter().copied(), [0.08, 0.85], false);
    let mut body = label(LEFT, 12.0, "", &format!("{x_name}; down: {y_name}"));
    for (index, column) in columns.iter().enumerate() {
        let at = LEFT + CELL.0 * (index as f64 + 0.5);
        body += &label(at, 28.0, "middle", column);
    }
    for (row_index, row) in rows.iter().enumerate() {
        let top = 34.0 + CELL.1 * row_index as f64;
        body += &label(LEFT - 6.0, top + CELL.1 / 2.0 + 4.0, "right", row);
        for (index, column) in columns.iter().enumerate() {
            let left = LEFT + CELL.0 * index as f64;
            let Some(spread) = value(column, row) else {
                body += &label(left + CELL.0 / 2.0, top + 17.0, "middle", "-");
                continue;
            };
            let shade = if medians.len() > 1 { axis.place(spread.median) } else { 0.3 };
            let class = if shade > 0.6 { "middle over" } else { "middle cell" };
            write!(
                body,
                "<rect class=\"shade\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" \
                 height=\"{:.1}\" fill-opacity=\"{shade:.2}\"><title>{} ({} to {})</title></rect>",
                CELL.0 - 2.0,
                CELL.1 - 2.0,
                short(spread.median),
                short(spread.min),
                short(spread.max),
            )
            .ok();
            body += &label(left + CELL.0 / 2.0, top + 17.0, class, &short(spread.median));
        }
    }
    svg(grid_width(columns.len()), 40.0 + CELL.1 * rows.len() as f64, title, &body)
}

/// The width of a grid of so many columns: its first line has room.
pub(super) fn grid_width(columns: usize) -> f64 {
    (LEFT + CELL.0 * columns as f64).max(300.0)
}

/// A number with three digits.
pub(super) fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        1e9.. => format!("{:.3}G", value / 1e9),
        1e6.. => digits(value / 1e6) + "M",
        1e4.. => digits(value / 1e3) + "k",
        100.0.. => format!("{value:.0}"),
        _ => digits(value),
    }
}

fn digits(value: f64) -> String {
    let text = match value.abs() {
        100.0.. => return format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        0.1.. => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(median: f64) -> Spread {
        Spread { median, min: median / 2.0, max: median * 2.0 }
    }

    #[test]
    fn lines_lie_between_the_axes_and_have_their_spreads() {
        let points = [(1.0, spread(10.0)), (64.0, spread(1000.0))].into();
        let line = Line { name: "a<b".to_owned(), points };
        let picture = lines(&[line], "t", ["x", "y"], short);
        assert!(picture.contains("a&lt;b: 10 (5 to 20)"), "{picture}");
        assert!(picture.contains(&format!("<polyline points=\"{:.1},", LEFT + 8.0)), "{picture}");
        assert_eq!(picture.matches("<circle").count(), 2);
    }

    #[test]
    fn names_of_lines_that_end_together_stand_apart() {
        let line = |name: &str| Line { name: name.to_owned(), points: [(1.0, spread(5.0))].into() };
        let all = ["a", "b", "c"].map(line);
        let axis = Axis::of([1.0, 10.0].into_iter(), [HEIGHT - FOOT, TOP], true);
        let heights: Vec<f64> = names(&all, &axis)
            .split("y=\"")
            .skip(1)
            .filter_map(|part| part.split('"').next()?.parse().ok())
            .collect();
        assert!(heights.windows(2).all(|pair| pair[1] - pair[0] >= NAME - 0.1), "{heights:?}");
    }

    #[test]
    fn numbers_have_three_digits() {
        let shown = [0.0, 0.53, 7.0, 12.34, 999.6, 65_536.0, 1_420_000.0].map(short);
        assert_eq!(shown, ["0", "0.53", "7", "12.3", "1000", "65.5k", "1.42M"]);
    }
}
