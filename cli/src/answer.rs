//! The answers of a daemon, as JSON documents.

use daemon::{
    Summary,
    caller::{self, Control},
};
use serde::Deserialize as _;
use serde_json::Value;

use crate::{
    failure::{Code, Failure},
    job::Job,
};

/// Asks the daemon of `job`; its answer is one JSON document.
pub(crate) fn ask(job: &Job, question: Control) -> Result<Value, Failure> {
    job.verify()?;
    let answer = caller::ask(&job.folder, question).map_err(|why| Failure::of_daemon(&why))?;
    serde_json::from_str(&answer).map_err(|why| not_understood(&why))
}

/// Reads the daemon's totals from its answer to any request.
pub(crate) fn summary(answer: &Value) -> Result<Summary, Failure> {
    let summary = answer.get("summary").unwrap_or(&Value::Null);
    Summary::deserialize(summary).map_err(|why| not_understood(&why))
}

fn not_understood(why: &serde_json::Error) -> Failure {
    Failure::new(Code::Failure, "the daemon's answer", why, "use one release of kakehi")
}

/// A count of the whole job.
pub(crate) fn total(status: &Value, name: &str) -> u64 {
    let summary = status.get("summary").and_then(|summary| summary.get(name));
    summary.and_then(Value::as_u64).unwrap_or(0)
}

/// Bytes that were staged, and are in their files.
pub(crate) fn drained(status: &Value) -> u64 {
    total(status, "bytes_staged").saturating_sub(number(status, "staged_bytes"))
}

pub(crate) fn number(of: &Value, name: &str) -> u64 {
    of.get(name).and_then(Value::as_u64).unwrap_or(0)
}
