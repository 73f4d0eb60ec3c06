//! `kakehi jobs`: which jobs of this user are served on this node.

use serde_json::{Value, json};

use crate::{
    config::Environment,
    failure::Failure,
    job::{Job, Served},
    output, report,
    size::Size,
    voice::{BOLD, Screen},
};

/// Lists the jobs of this user that are served on this node: name, age, bytes, and command.
///
/// Exit status: 0, also when there is none.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

pub(crate) fn jobs(args: &Args, environment: &Environment) -> Result<(), Failure> {
    let jobs = Job::all(environment)?;
    if args.json {
        let rows = jobs.iter().map(|served| {
            json!({"name": served.job.name, "folder": served.job.folder, "status": served.status})
        });
        return output::print_json(&json!({"jobs": rows.collect::<Vec<_>>()}));
    }
    if jobs.is_empty() {
        return output::print("no job of this user is served on this node\n");
    }
    output::print(&table(&jobs, Screen::stdout()))
}

const HEADS: [&str; 7] = ["JOB", "AGE", "PROCESSES", "WRITTEN", "READ", "STAGED", "COMMAND"];

/// One line for each job; a terminal shows as much of each command as fits.
fn table(jobs: &[Served], screen: Screen) -> String {
    let mut rows = vec![HEADS.map(ToOwned::to_owned)];
    rows.extend(jobs.iter().map(row));
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..HEADS.len() - 1).map(width).collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let (mut line, command) = (String::new(), row.last().map_or("", String::as_str));
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Names to the left, numbers to the right.
            let cell =
                if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
            line += &(cell + "  ");
        }
        let room = screen.columns.map_or(usize::MAX, |columns| columns.saturating_sub(line.len()));
        line.extend(command.chars().take(room.max(HEADS[6].len())));
        let len = line.len();
        text += &if index == 0 { screen.coloured(&line, len, BOLD) } else { line };
        text.push('\n');
    }
    text
}

fn row(served: &Served) -> [String; 7] {
    let number = |name: &str| served.status.get(name).and_then(Value::as_u64).unwrap_or(0);
    let summary = served.status.get("summary");
    let total = |name: &str| {
        let number = summary.and_then(|summary| summary.get(name)).and_then(Value::as_u64);
        Size(number.unwrap_or(0)).approximate()
    };
    [
        served.job.name.clone(),
        report::age(served.age()),
        number("sessions").to_string(),
        total("bytes_written"),
        total("bytes_read"),
        Size(number("staged_bytes")).approximate(),
        served.command().to_owned(),
    ]
}
