//! Metrics of a daemon as OpenMetrics text: printed, left in a file for a textfile collector, or
//! served over HTTP on this node.

use std::{
    fmt::Write as _,
    fs::Permissions,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    thread,
    time::Duration,
};

use daemon::caller::Control;
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::{
    answer::{ask, drained, number, total},
    failure::{Code, Failure},
    job::Job,
    output,
};

/// A metric: its name without prefix and suffix, if it only grows, its text, its value.
type Metric = (&'static str, bool, &'static str, fn(&Value) -> u64);

/// Every metric of one value.
const METRICS: [Metric; 14] = [
    ("age_seconds", false, "Time since the daemon started.", |it| number(it, "age_seconds")),
    ("sessions", false, "Processes that are served.", |it| number(it, "sessions")),
    ("open_files", false, "Files that the daemon has open.", |it| number(it, "files")),
    ("pending_bytes", false, "Bytes staged that are not in their files yet.", |it| {
        number(it, "staged_bytes")
    }),
    ("memory_peak_bytes", false, "Most memory the daemon has had resident.", |it| {
        number(it, "peak_rss_bytes")
    }),
    ("files", true, "Files opened under a policy other than pass.", |it| total(it, "files")),
    ("written_bytes", true, "Bytes that programs wrote.", |it| total(it, "bytes_written")),
    ("read_bytes", true, "Bytes that programs read.", |it| total(it, "bytes_read")),
    ("delegated_bytes", true, "Bytes staged, or written by the daemon on request.", |it| {
        total(it, "bytes_delegated")
    }),
    ("staged_bytes", true, "Bytes accepted into staging.", |it| total(it, "bytes_staged")),
    ("drained_bytes", true, "Staged bytes that are in their files.", drained),
    ("drain_errors", true, "Staged writes that the file system refused.", |it| {
        total(it, "drain_errors")
    }),
    ("served_written_bytes", true, "Bytes written for daemons elsewhere.", |it| {
        it.get("serving").map_or(0, |serving| number(serving, "bytes_written"))
    }),
    ("served_read_bytes", true, "Bytes read for daemons elsewhere.", |it| {
        it.get("serving").map_or(0, |serving| number(serving, "bytes_read"))
    }),
];

/// Every metric with a label: name, whether it only grows, what it says, label, and in the
/// summary, the table that has it.
const LABELLED: [(&str, bool, &str, &str, &str); 3] = [
    ("requests", true, "Requests answered, by kind.", "kind", "requests"),
    ("undelegated_bytes", true, "Bytes written past the daemon.", "reason", "bytes_undelegated"),
    ("fallbacks", true, "Files that left delegation.", "reason", "fallbacks"),
];

/// States of an executor.
const STATES: [&str; 3] = ["working", "polling", "parked"];

/// The status of a job's daemon as OpenMetrics text.
pub(crate) fn text(job: &str, status: &Value) -> String {
    let (mut text, job) = (String::new(), escaped(job));
    for (name, grows, help, value) in METRICS {
        head(&mut text, name, grows, help);
        sample(&mut text, name, grows, &format!("job=\"{job}\""), &value(status).to_string());
    }
    for (name, grows, help, label, table) in LABELLED {
        head(&mut text, name, grows, help);
        let summary = status.get("summary").and_then(|summary| summary.get(table));
        for (key, value) in summary.and_then(Value::as_object).into_iter().flatten() {
            let labels = format!("job=\"{job}\",{label}=\"{}\"", escaped(key));
            sample(&mut text, name, grows, &labels, &value.to_string());
        }
    }
    head(&mut text, "core_ratio", false, "Share of its life that an executor was in this state.");
    for core in status.get("cores").and_then(Value::as_array).into_iter().flatten() {
        for state in STATES {
            let labels =
                format!("job=\"{job}\",core=\"{}\",state=\"{state}\"", number(core, "core"));
            let share = core.get(state).and_then(Value::as_f64).unwrap_or(0.0);
            sample(&mut text, "core_ratio", false, &labels, &share.to_string());
        }
    }
    text + "# EOF\n"
}

fn head(text: &mut String, name: &str, grows: bool, help: &str) {
    let kind = if grows { "counter" } else { "gauge" };
    // Infallible, as below.
    writeln!(text, "# TYPE kakehi_{name} {kind}\n# HELP kakehi_{name} {help}").ok();
}

fn sample(text: &mut String, name: &str, grows: bool, labels: &str, value: &str) {
    let suffix = if grows { "_total" } else { "" };
    writeln!(text, "kakehi_{name}{suffix}{{{labels}}} {value}").ok();
}

fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

/// Prints metrics, or replaces `file`, of which nobody sees a half.
pub(crate) fn write(file: &Path, text: &str) -> Result<(), Failure> {
    if file.as_os_str() == "-" {
        return output::print(text);
    }
    let failed = |why: io::Error| {
        let advice = "name a file that can be written in --metrics";
        Failure::new(Code::Failure, file.display(), why, advice)
    };
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let made = NamedTempFile::new_in(folder.unwrap_or(Path::new("."))).map_err(failed)?;
    std::fs::write(made.path(), text).map_err(failed)?;
    // Collectors run as another user.
    made.as_file().set_permissions(Permissions::from_mode(0o644)).map_err(failed)?;
    made.persist(file).map(drop).map_err(|why| failed(why.error))
}

/// Longest request that is read.
const REQUEST_LEN_MAX: u64 = 8 << 10;
/// Longest wait for a scraper.
const SCRAPER_TIME_MAX: Duration = Duration::from_secs(5);

/// Answers scrapers over HTTP.
#[derive(Debug)]
pub(crate) struct Listener(TcpListener);

impl Listener {
    /// Listens at an address of this node.
    ///
    /// # Errors
    ///
    /// Others could reach the address, or it is in use.
    pub(crate) fn bind(address: SocketAddr) -> Result<Self, Failure> {
        let flag = format!("--metrics-listen {address}");
        if !address.ip().is_loopback() {
            let why = "other nodes could read it, and nothing would ask them who they are";
            return Err(Failure::usage(flag, why, "name a loopback address, as 127.0.0.1:9900"));
        }
        let bound = TcpListener::bind(address);
        bound.map(Self).map_err(|why| Failure::new(Code::Failure, flag, why, "name another port"))
    }

    /// Where the metrics are.
    pub(crate) fn url(&self) -> String {
        let address = self.0.local_addr().map_or_else(|_| "?".to_owned(), |it| it.to_string());
        format!("http://{address}/metrics")
    }

    /// Answers, one scraper after the other, on a thread that ends with the process.
    pub(crate) fn serve(self, job: Job) {
        thread::spawn(move || {
            for stream in self.0.incoming().flatten() {
                // What one scraper does is not the next one's concern.
                answer(&stream, &job).ok();
            }
        });
    }
}

fn answer(mut stream: &TcpStream, job: &Job) -> io::Result<()> {
    stream.set_read_timeout(Some(SCRAPER_TIME_MAX))?;
    stream.set_write_timeout(Some(SCRAPER_TIME_MAX))?;
    let mut lines = BufReader::new(stream.take(REQUEST_LEN_MAX)).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    lines.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
    let (status, body) = match first.split(' ').take(2).collect::<Vec<_>>()[..] {
        ["GET", "/metrics"] => match ask(job, Control::Status) {
            Ok(status) => ("200 OK", text(&job.name, &status)),
            Err(why) => ("503 Service Unavailable", format!("{why}\n")),
        },
        _ => ("404 Not Found", "GET /metrics\n".to_owned()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: application/openmetrics-text; version=1.0.0; \
         charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counters_end_in_total_and_the_text_ends_in_eof() {
        let status = json!({
            "sessions": 3, "staged_bytes": 5,
            "summary": {"bytes_staged": 12, "requests": {"close": 4}},
            "cores": [{"core": 0, "working": 0.25}],
        });
        let text = text("a\"b", &status);
        for line in [
            "# TYPE kakehi_sessions gauge",
            "kakehi_sessions{job=\"a\\\"b\"} 3",
            "# TYPE kakehi_drained_bytes counter",
            "kakehi_drained_bytes_total{job=\"a\\\"b\"} 7",
            "kakehi_requests_total{job=\"a\\\"b\",kind=\"close\"} 4",
            "kakehi_core_ratio{job=\"a\\\"b\",core=\"0\",state=\"working\"} 0.25",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    /// The dashboard that is shipped asks for nothing that is not there.
    #[test]
    fn the_dashboard_asks_for_metrics_that_exist() {
        let dashboard = include_str!("../../packaging/grafana/kakehi.json");
        let document: Value = serde_json::from_str(dashboard).expect("JSON");
        let mut names = Vec::new();
        expressions(&document, &mut names);
        assert!(names.len() > 10, "{names:?}");
        let status = json!({
            "summary": {
                "requests": {"close": 1}, "bytes_undelegated": {"large": 1},
                "fallbacks": {"mapped": 1},
            },
            "cores": [{"core": 0}],
        });
        let text = text("j", &status);
        for name in names {
            assert!(text.contains(&format!("\n{name}{{")), "{name}");
        }
        let panels = document["panels"].as_array().expect("panels");
        assert!(panels.iter().all(|panel| panel["targets"][0]["expr"].is_string()));
    }

    /// The names of metrics in all queries of a dashboard.
    fn expressions(value: &Value, names: &mut Vec<String>) {
        match value {
            Value::String(text) => names.extend(
                text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                    .filter(|word| word.starts_with("kakehi_"))
                    .map(ToOwned::to_owned),
            ),
            Value::Array(list) => list.iter().for_each(|inner| expressions(inner, names)),
            Value::Object(fields) => fields.values().for_each(|inner| expressions(inner, names)),
            _ => {}
        }
    }

    #[test]
    fn metrics_are_served_to_this_node_only() {
        let address = "0.0.0.0:0".parse().expect("an address");
        assert!(Listener::bind(address).is_err());
    }
}
