//! Output of a command: text, or one JSON document.

use std::io::{self, ErrorKind, Write as _};

use serde::Serialize;

use crate::failure::{Code, Failure};

/// Prints `text` and returns when the kernel has it. A reader that left early is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(why) if why.kind() != ErrorKind::BrokenPipe => Err(Failure::new(
            Code::Failure,
            "standard output",
            why,
            "make room or send the output elsewhere",
        )),
        _ => Ok(()),
    }
}

/// Prints a document as JSON, or as this text.
pub(crate) fn show(
    as_json: bool,
    document: &impl Serialize,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    if as_json { print_json(document) } else { print(&text()) }
}

/// Prints `document` as one JSON document.
pub(crate) fn print_json(document: &impl Serialize) -> Result<(), Failure> {
    print(&json(document)?)
}

/// `document` as lines of JSON.
pub(crate) fn json(document: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(document).map_err(|why| {
        Failure::new(Code::Failure, "JSON", why, "report this: it is a fault of kakehi")
    })?;
    Ok(text + "\n")
}
