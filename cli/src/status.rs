//! `kakehi status`: what the daemon of a job is doing.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use daemon::{FileSystem, caller::Control};
use serde::Deserialize as _;
use serde_json::Value;

use crate::{
    answer::{ask, drained, number, total},
    config::{Config, Environment, Flags, Whom},
    costs,
    failure::Failure,
    job::Job,
    metrics, output, report,
    size::Size,
    span::{Span, pause},
    voice::{self, Screen},
};

/// Shows the daemon of this job: bytes, rates, sessions, memory, and cores
///
/// Also what waits to be drained, its multifiles, and whom it serves elsewhere. --verbose adds how
/// its executors found their work.
///
///     kakehi status --watch
///     kakehi status --metrics /var/lib/node_exporter/kakehi.prom --watch 15s
///
/// Exit status: 0; 3 when no daemon answers.
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    whom: Whom,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
    /// Shows it again every so often, until the daemon ends. Default: every 2 s.
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "2s")]
    watch: Option<Span>,
    /// Prints OpenMetrics text, or puts it into FILE, for a textfile collector: the file is
    /// replaced as a whole.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    #[arg(conflicts_with = "json", value_hint = clap::ValueHint::FilePath)]
    metrics: Option<PathBuf>,
}

pub(crate) fn status(args: &Args, environment: &Environment) -> Result<(), Failure> {
    let config = Config::load(environment, &Flags::from(&args.whom))?;
    let job = Job::asked(&config, environment)?;
    let mut before = Rated { status: ask(&job, Control::Status)?, at: Instant::now() };
    show(args, &job, &before.status, None)?;
    let Some(Span(every)) = args.watch else { return Ok(()) };
    loop {
        pause(every);
        let now = match ask(&job, Control::Status) {
            Ok(status) => Rated { status, at: Instant::now() },
            // The job is over, which is what was waited for.
            Err(_) => return Ok(()),
        };
        let time = now.at.duration_since(before.at);
        show(args, &job, &now.status, Some(Rates::between(&before.status, &now.status, time)))?;
        before = now;
    }
}

fn show(args: &Args, job: &Job, status: &Value, rates: Option<Rates>) -> Result<(), Failure> {
    if let Some(file) = &args.metrics {
        return metrics::write(file, &metrics::text(&job.name, status));
    }
    if args.json {
        return output::print_json(status);
    }
    let screen = Screen::stdout();
    let clear = if args.watch.is_some() && screen.columns.is_some() { "\x1b[H\x1b[2J" } else { "" };
    let text = text(&job.name, status, rates);
    let lines = text.lines().map(|line| screen.folded(line, INDENT) + "\n");
    output::print(&(clear.to_owned() + &lines.collect::<String>()))
}

/// A status and when it was taken.
struct Rated {
    status: Value,
    at: Instant,
}

/// Bytes a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    pub(crate) written: u64,
    pub(crate) read: u64,
    pub(crate) drained: u64,
}

impl Rates {
    /// The rates of the time between two statuses.
    pub(crate) fn between(before: &Value, now: &Value, time: Duration) -> Self {
        let rate = |of: fn(&Value) -> u64| {
            let bytes = u128::from(of(now).saturating_sub(of(before)));
            u64::try_from(bytes * 1000 / time.as_millis().max(1)).unwrap_or(u64::MAX)
        };
        Self {
            written: rate(|status| total(status, "bytes_written")),
            read: rate(|status| total(status, "bytes_read")),
            drained: rate(drained),
        }
    }
}

/// Column at which a line continues.
const INDENT: usize = 10;

fn text(job: &str, status: &Value, rates: Option<Rates>) -> String {
    let text_of =
        |of: &Value, name: &str| of.get(name).and_then(Value::as_str).unwrap_or("?").to_owned();
    let size = |bytes: u64| Size(bytes).approximate();
    let command = status.get("command").and_then(Value::as_str);
    let mut text = format!(
        "job       {job}: daemon {}, version {}, for {}{}\n",
        number(status, "pid"),
        text_of(status, "version"),
        report::age(number(status, "age_seconds")),
        command.map_or_else(String::new, |command| format!(": {command}")),
    );
    text += &volumes(status, rates);
    text += &format!(
        "staged    {}, {} of it to be drained\n\
         open      {}, {}; {} of memory at most\n",
        size(total(status, "bytes_staged")),
        size(number(status, "staged_bytes")),
        report::count(number(status, "files"), "file", "s"),
        report::count(number(status, "sessions"), "process", "es"),
        size(number(status, "peak_rss_bytes")),
    );
    if let Some(serving) = status.get("serving") {
        text += &format!(
            "serves    {}: {}, {}, {} written, {} read\n",
            text_of(serving, "address"),
            report::count(number(serving, "connections"), "connection", "s"),
            report::count(number(serving, "requests"), "request", "s"),
            size(number(serving, "bytes_written")),
            size(number(serving, "bytes_read")),
        );
    }
    for system in status.get("file_systems").and_then(Value::as_array).into_iter().flatten() {
        let system = FileSystem::deserialize(system).unwrap_or_default();
        text += &costs::line(&system);
    }
    for (folder, file) in status.get("multifiles").and_then(Value::as_object).into_iter().flatten()
    {
        text += &format!("keeps     {folder} in the multifile {}\n", file.as_str().unwrap_or("?"));
    }
    for core in status.get("cores").and_then(Value::as_array).into_iter().flatten() {
        text += &executor(core, &text_of(core, "engine"));
    }
    text
}

/// Bytes and rates: since the last look, or over the daemon's life.
fn volumes(status: &Value, rates: Option<Rates>) -> String {
    let age = number(status, "age_seconds").max(1);
    let line = |name: &str, bytes: u64, now: Option<u64>| {
        let (rate, of) = now.map_or((bytes / age, " on average"), |rate| (rate, ""));
        let (bytes, rate) = (Size(bytes).approximate(), Size(rate).approximate());
        format!("{name:<9} {bytes}, {rate}/s{of}\n")
    };
    line("written", total(status, "bytes_written"), rates.map(|rates| rates.written))
        + &line("read", total(status, "bytes_read"), rates.map(|rates| rates.read))
}

fn executor(core: &Value, engine: &str) -> String {
    let count = |name: &str| number(core, name);
    let share = |name: &str| core.get(name).and_then(Value::as_f64).unwrap_or(0.0) * 100.0;
    let mut text = format!(
        "core {:<4} {:.1} % working, {:.1} % polling, {:.1} % parked; engine {engine}\n",
        count("core"),
        share("working"),
        share("polling"),
        share("parked"),
    );
    if voice::is_verbose() {
        text += &format!(
            "          {}, {}, gave way {}, events found by polling {}, by doorbell {}\n",
            report::count(count("turns"), "turn", "s"),
            report::count(count("parks"), "park", "s"),
            report::count(count("gave_way"), "time", "s"),
            count("polled_events"),
            count("doorbell_events"),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bytes_and_rates_come_before_everything_else() {
        let status = json!({
            "pid": 7, "version": "1", "age_seconds": 10, "command": "lmp -in x", "sessions": 1,
            "files": 2, "staged_bytes": 1024, "peak_rss_bytes": 1 << 20,
            "summary": {"bytes_written": 10 << 20, "bytes_read": 0, "bytes_staged": 2048},
            "cores": [{"core": 0, "engine": "threads", "gave_way": 1}],
        });
        let shown = text("j", &status, None);
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines[0], "job       j: daemon 7, version 1, for 10 s: lmp -in x");
        assert_eq!(lines[1], "written   10MiB, 1MiB/s on average");
        assert_eq!(lines[3], "staged    2KiB, 1KiB of it to be drained");
        assert!(!shown.contains("turn"), "{shown}");
        let later = json!({"summary": {"bytes_written": 11 << 20}});
        let rates = Rates::between(&status, &later, Duration::from_secs(2));
        assert_eq!((rates.written, rates.read), (512 << 10, 0));
    }
}
