//! How the jobs are drawn.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Modifier, Style, Stylize as _},
    text::Line,
    widgets::{Block, Cell, Paragraph, Row as Cells, Sparkline, Table},
};
use serde_json::Value;

use super::{Row, View};
use crate::{answer::number, report, size::Size};

/// Columns from which a table has room for all of its own.
const WIDE: u16 = 120;
/// Columns of a job's name, and the most of them in a wide table.
const NAME: u16 = 10;
const NAME_WIDE: u16 = 40;
/// Rows of the picture of a job's rates.
const RATES_ROWS: u16 = 6;

pub(super) fn draw(view: &View, frame: &mut Frame<'_>) {
    let about = view.selected().map_or(0, |(row, _)| about(row).len());
    let about_rows = u16::try_from(about).unwrap_or(0);
    let parts = [
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(RATES_ROWS),
        Constraint::Length(about_rows),
    ];
    let [head, table, rates, below] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(Paragraph::new(title(view)).style(bold()), head);
    if view.rows.is_empty() {
        let text = "no job of this user is served on this node; 'kakehi run -- PROGRAM' starts one";
        return frame.render_widget(Paragraph::new(text), table);
    }
    frame.render_widget(jobs(view, table.width), table);
    if let Some((row, past)) = view.selected() {
        draw_rates(row, &past, frame, rates);
        frame.render_widget(Paragraph::new(self::about(row)), below);
    }
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn title(view: &View) -> String {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    let jobs = report::count(view.rows.len(), "job", "s");
    format!("kakehi on {host}: {jobs}    up, down: choose    q: end")
}

fn jobs(view: &View, width: u16) -> Table<'static> {
    let is_wide = width >= WIDE;
    let rows = view.rows.iter().enumerate().map(|(index, row)| {
        let cells = cells(row, is_wide).into_iter().map(Cell::from);
        let style = if index == view.selected { Style::new().reversed() } else { Style::new() };
        Cells::new(cells).style(style)
    });
    let mut heads = vec!["JOB", "AGE", "WRITE", "READ", "DRAIN", "WAITS", "LAG"];
    let longest = view.rows.iter().map(|row| row.served.job.name.chars().count()).max();
    let longest = u16::try_from(longest.unwrap_or(0)).unwrap_or(u16::MAX);
    let name = longest.clamp(NAME, if is_wide { NAME_WIDE } else { NAME });
    let mut widths = vec![name, 7, 11, 11, 11, 8, 7];
    if is_wide {
        heads.extend(["PROC", "FILES", "BUSY"]);
        widths.extend([5, 6, 6]);
    }
    heads.push("COMMAND");
    let mut widths: Vec<_> = widths.into_iter().map(Constraint::Length).collect();
    widths.push(Constraint::Fill(1));
    Table::new(rows, widths).header(Cells::new(heads).style(bold()))
}

fn cells(row: &Row, is_wide: bool) -> Vec<String> {
    let status = &row.served.status;
    let rate = |rate: Option<u64>| {
        rate.map_or_else(|| "-".to_owned(), |rate| Size(rate).approximate() + "/s")
    };
    let mut cells = vec![
        row.served.job.name.clone(),
        report::age(row.served.age()),
        rate(row.rates.map(|rates| rates.written)),
        rate(row.rates.map(|rates| rates.read)),
        rate(row.rates.map(|rates| rates.drained)),
        Size(number(status, "staged_bytes")).approximate(),
        lag(row),
    ];
    if is_wide {
        let busy = cores(status).map(|core| share(core, "working")).fold(0.0, f64::max);
        cells.push(number(status, "sessions").to_string());
        cells.push(number(status, "files").to_string());
        cells.push(format!("{:.0} %", busy * 100.0));
    }
    cells.push(row.served.command().to_owned());
    cells
}

/// How long it takes to drain what waits, at the rate of now.
#[expect(clippy::cast_precision_loss, reason = "a tenth of a second is shown")]
fn lag(row: &Row) -> String {
    let waits = number(&row.served.status, "staged_bytes");
    match row.rates.map(|rates| rates.drained) {
        _ if waits == 0 => "0 s".to_owned(),
        Some(rate @ 1..) => format!("{:.1} s", waits as f64 / rate as f64),
        _ => "-".to_owned(),
    }
}

fn draw_rates(row: &Row, past: &[u64], frame: &mut Frame<'_>, area: Rect) {
    let most = Size(past.iter().copied().max().unwrap_or(0)).approximate();
    let title = format!(" {}: bytes written a second, {most} at most ", row.served.job.name);
    let room = usize::from(area.width.saturating_sub(2));
    let shown = past.get(past.len().saturating_sub(room)..).unwrap_or_default();
    frame.render_widget(
        Sparkline::default().data(shown).block(Block::bordered().title(title)),
        area,
    );
}

/// Executors, servers, and multifiles of a job.
fn about(row: &Row) -> Vec<Line<'static>> {
    let status = &row.served.status;
    let core = |core: &Value| {
        let [working, polling, parked] =
            ["working", "polling", "parked"].map(|state| share(core, state) * 100.0);
        let number = number(core, "core");
        format!(
            "core {number}: {working:.0} % working, {polling:.0} % polling, {parked:.0} % parked"
        )
    };
    let mut lines: Vec<String> = cores(status).map(core).collect();
    if let Some(remote) = status.get("remote") {
        let servers = remote.get("servers").and_then(Value::as_str).unwrap_or("?");
        lines.push(format!("files of the server {servers}"));
    }
    if let Some(serving) = status.get("serving") {
        lines.push(format!(
            "serves {} at {}: {}, {} written, {} read",
            report::count(number(serving, "connections"), "connection", "s"),
            serving.get("address").and_then(Value::as_str).unwrap_or("?"),
            report::count(number(serving, "requests"), "request", "s"),
            Size(number(serving, "bytes_written")).approximate(),
            Size(number(serving, "bytes_read")).approximate(),
        ));
    }
    lines.into_iter().map(Line::from).collect()
}

fn cores(status: &Value) -> impl Iterator<Item = &Value> {
    status.get("cores").and_then(Value::as_array).into_iter().flatten()
}

fn share(core: &Value, state: &str) -> f64 {
    core.get(state).and_then(Value::as_f64).unwrap_or(0.0)
}
