//! `kakehi status`: what the daemon of a job is doing.

use daemon::{
    Summary,
    control::{self, Control},
};
use serde::Deserialize as _;
use serde_json::Value;

use crate::{
    config::{Config, Environment, Flags},
    failure::{Code, Failure},
    job::Job,
    output, report,
    size::Size,
    usage::utf8,
};

/// Shows the daemon of this job: process, sessions, cores, memory, multifiles, and whom it serves
/// elsewhere.
///
/// Exit status: 0; 3 when no daemon answers.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Folder of the job daemon's socket.
    #[arg(long, value_name = "DIR", value_parser = utf8())]
    socket: Option<String>,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

pub(crate) fn status(args: &Args, environment: &Environment) -> Result<(), Failure> {
    let config = Config::load(environment, &Flags::socket(args.socket.clone()))?;
    let answer = ask(&Job::asked(&config, environment)?, Control::Status)?;
    if args.json {
        return output::print_json(&answer);
    }
    output::print(&text(&answer))
}

/// Asks the daemon of `job`; its answer is one JSON document.
pub(crate) fn ask(job: &Job, question: Control) -> Result<Value, Failure> {
    job.verify()?;
    let answer = control::ask(&job.folder, question).map_err(|why| Failure::of_daemon(&why))?;
    serde_json::from_str(&answer).map_err(|why| not_understood(&why))
}

/// What the daemon has done so far, from its answer to any question.
pub(crate) fn summary(answer: &Value) -> Result<Summary, Failure> {
    let summary = answer.get("summary").unwrap_or(&Value::Null);
    Summary::deserialize(summary).map_err(|why| not_understood(&why))
}

fn not_understood(why: &serde_json::Error) -> Failure {
    Failure::new(Code::Failure, "the daemon's answer", why, "use one release of kakehi")
}

fn text(status: &Value) -> String {
    let number_of = |of: &Value, name: &str| of.get(name).and_then(Value::as_u64);
    let text_of =
        |of: &Value, name: &str| of.get(name).and_then(Value::as_str).unwrap_or("?").to_owned();
    let number = |name: &str| number_of(status, name).unwrap_or(0);
    let size = |name: &str| Size(number(name)).approximate();
    let mut text = format!(
        "daemon {} (version {}): {}, {} open, {} staged, {} resident at most\n",
        number("pid"),
        text_of(status, "version"),
        report::count(number("sessions"), "session", "s"),
        report::count(number("files"), "file", "s"),
        size("staged_bytes"),
        size("peak_rss_bytes"),
    );
    if let Some(serving) = status.get("serving") {
        let connections = number_of(serving, "connections").unwrap_or(0);
        let moved = |name: &str| Size(number_of(serving, name).unwrap_or(0)).approximate();
        text += &format!(
            "serves {}: {}, {}, {} written, {} read\n",
            text_of(serving, "address"),
            report::count(connections, "connection", "s"),
            report::count(number_of(serving, "requests").unwrap_or(0), "request", "s"),
            moved("bytes_written"),
            moved("bytes_read"),
        );
    }
    for system in status.get("file_systems").and_then(Value::as_array).into_iter().flatten() {
        text += &file_system(system);
    }
    for (folder, file) in status.get("multifiles").and_then(Value::as_object).into_iter().flatten()
    {
        text += &format!("keeps {folder} in the multifile {}\n", file.as_str().unwrap_or("?"));
    }
    for core in status.get("cores").and_then(Value::as_array).into_iter().flatten() {
        let count = |name: &str| number_of(core, name).unwrap_or(0);
        let name = format!("executor {}", count("core"));
        let share = |name: &str| core.get(name).and_then(Value::as_f64).unwrap_or(0.0) * 100.0;
        text += &format!(
            "{name}: {}, {} turns, {} parks\n\
             {name}: working {:.1} %, polling {:.1} %, parked {:.1} %, gave way {} times\n\
             {name}: events found by polling {}, by doorbell {}\n",
            text_of(core, "engine"),
            count("turns"),
            count("parks"),
            share("working"),
            share("polling"),
            share("parked"),
            count("gave_way"),
            count("polled_events"),
            count("doorbell_events"),
        );
    }
    text
}

/// What writes cost on a file system, as far as the job has learned.
fn file_system(system: &Value) -> String {
    let number = |name: &str| system.get(name).and_then(Value::as_u64);
    let device = system.get("device").and_then(Value::as_str).unwrap_or("?");
    let call =
        number("write_call_ns").map(|ns| format!("{}.{} us a call", ns / 1000, ns / 100 % 10));
    let bytes = number("write_bytes_per_s").map(|len| format!("{}/s", Size(len).approximate()));
    let known: Vec<_> = [call, bytes].into_iter().flatten().collect();
    match known.is_empty() {
        true => String::new(),
        false => format!("file system {device}: writes take {}\n", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_system_is_a_line_with_what_is_known() {
        let system = serde_json::json!({"device": "0:52", "write_call_ns": 81_340});
        assert_eq!(file_system(&system), "file system 0:52: writes take 81.3 us a call\n");
        let system = serde_json::json!({"device": "8:1", "write_bytes_per_s": 2_u64 << 30});
        assert_eq!(file_system(&system), "file system 8:1: writes take 2GiB/s\n");
        assert_eq!(file_system(&serde_json::json!({"device": "0:5"})), "");
    }
}
