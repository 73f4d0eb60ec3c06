//! How much a command says, and how: quiet or verbose, as text or as JSON, in colour and at the
//! width of a terminal.
//!
//! A line that goes anywhere but to a terminal is never folded or coloured, so that scripts can
//! rely on one line for each thing.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal, Write as _},
    os::fd::AsFd,
    sync::OnceLock,
};

use rustix::termios::tcgetwinsize;

use crate::{environment::Environment, failure::Failure, plain::without_numbers};

/// Columns of a terminal that does not say how many it has.
const COLUMNS: usize = 80;
/// Narrower terminals are treated as this wide.
const COLUMNS_MIN: usize = 40;

/// How much a command says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Volume {
    /// Errors, and what was asked for.
    Quiet,
    /// Summaries and warnings, too.
    #[default]
    Normal,
    /// Each step, too.
    Verbose,
}

/// How this process speaks. Set once, before anything is said.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Voice {
    pub(crate) volume: Volume,
    /// Errors and warnings are JSON documents, one a line.
    pub(crate) is_json: bool,
    /// Never in colour.
    is_plain: bool,
}

static VOICE: OnceLock<Voice> = OnceLock::new();

impl Voice {
    /// The voice that the user asked for by flags and by `NO_COLOR` (<https://no-color.org>).
    pub(crate) fn new(volume: Volume, is_json: bool, environment: &Environment) -> Self {
        let is_dumb = environment.get("TERM").is_some_and(|terminal| terminal == "dumb");
        Self { volume, is_json, is_plain: is_dumb || environment.get("NO_COLOR").is_some() }
    }

    /// Makes this the voice of the process.
    pub(crate) fn set(self) {
        VOICE.set(self).ok(); // The first one holds.
    }
}

/// The voice of this process.
pub(crate) fn voice() -> Voice {
    VOICE.get().copied().unwrap_or_default()
}

/// True if only errors are to be said.
pub(crate) fn is_quiet() -> bool {
    voice().volume == Volume::Quiet
}

/// True if each step is to be said.
pub(crate) fn is_verbose() -> bool {
    voice().volume == Volume::Verbose
}

/// Says a step that only `--verbose` shows.
pub(crate) fn step(text: impl std::fmt::Display) {
    if is_verbose() {
        // Nobody is left to read it when standard error is gone.
        let line = without_numbers(&format!("kakehi: {text}\n"));
        io::stderr().write_all(line.as_bytes()).ok();
    }
}

/// Says lines of a summary on standard error, unless only errors are to be said.
pub(crate) fn say(text: &str) {
    if !is_quiet() {
        let screen = Screen::of(&io::stderr());
        let folded = |line: &str| screen.folded(line, "kakehi: ".len()) + "\n";
        let text: String = without_numbers(text).lines().map(folded).collect();
        // Nobody is left to read it when standard error is gone.
        io::stderr().write_all(text.as_bytes()).ok();
    }
}

/// Says a failure on standard error: `kind` is its name under `--json`.
pub(crate) fn tell(kind: &str, failure: &Failure) {
    let text = if voice().is_json {
        failure.json(kind) + "\n"
    } else {
        let screen = Screen::of(&io::stderr());
        let line = screen.folded(&failure.to_string(), "kakehi: ".len());
        screen.coloured(&line, "kakehi:".len(), if kind == "error" { RED } else { YELLOW }) + "\n"
    };
    io::stderr().write_all(text.as_bytes()).ok();
}

pub(crate) const RED: &str = "31;1";
pub(crate) const YELLOW: &str = "33;1";
pub(crate) const GREEN: &str = "32";
pub(crate) const BOLD: &str = "1";

/// Where a text appears.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    /// Columns, of a terminal.
    pub(crate) columns: Option<usize>,
    has_colour: bool,
}

impl Screen {
    /// Style of text for this stream.
    pub(crate) fn of<T: AsFd + IsTerminal>(stream: &T) -> Self {
        if !stream.is_terminal() {
            return Self { columns: None, has_colour: false };
        }
        let found = tcgetwinsize(stream).map_or(0, |size| usize::from(size.ws_col));
        let columns = if found == 0 { COLUMNS } else { found.max(COLUMNS_MIN) };
        Self { columns: Some(columns), has_colour: !voice().is_plain }
    }

    /// The terminal of standard output, if it is one.
    pub(crate) fn stdout() -> Self {
        Self::of(&io::stdout())
    }

    /// A line broken between words, all lines but the first indented.
    pub(crate) fn folded(self, line: &str, indent: usize) -> String {
        self.columns.map_or_else(|| line.to_owned(), |columns| fold(line, columns, indent))
    }

    /// The same text with its first `len` letters in a colour.
    pub(crate) fn coloured(self, text: &str, len: usize, colour: &str) -> String {
        match text.split_at_checked(len) {
            Some((first, rest)) if self.has_colour => format!("\x1b[{colour}m{first}\x1b[0m{rest}"),
            _ => text.to_owned(),
        }
    }
}

/// Breaks a line between words, so that each has at most `columns` letters if its words let it. A
/// path that is too long alone is broken behind a slash.
fn fold(line: &str, columns: usize, indent: usize) -> String {
    let indent = if indent * 2 > columns { 4 } else { indent };
    let (mut text, mut at) = (String::new(), 0);
    let begin_line = |text: &mut String, at: &mut usize| {
        text.truncate(text.trim_end().len());
        // Infallible.
        write!(text, "\n{:indent$}", "").ok();
        *at = indent;
    };
    for word in line.split_inclusive(' ') {
        let len = word.trim_end().chars().count();
        if at + len > columns && at > indent {
            begin_line(&mut text, &mut at);
        }
        if len <= columns.saturating_sub(indent) {
            text.push_str(word);
            at += word.chars().count();
            continue;
        }
        for part in word.split_inclusive('/') {
            let len = part.trim_end().chars().count();
            if at + len > columns && at > indent {
                begin_line(&mut text, &mut at);
            }
            text.push_str(part);
            at += part.chars().count();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folded_lines_end_between_words_and_fit() {
        let line = "ok       glibc          glibc 2.36: the preload library is built for the GNU C \
                    library, and what else is said here is long";
        for columns in [40, 60, 80, 200] {
            let folded = fold(line, columns, 24);
            assert!(folded.lines().all(|line| line.chars().count() <= columns), "{folded}");
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(words(&folded), words(line));
        }
        assert_eq!(fold(line, 200, 24), line);
    }

    #[test]
    fn long_paths_are_broken_behind_a_slash() {
        let path = format!("socket folder {}", "/a-long-folder".repeat(8));
        let folded = fold(&path, 40, 4);
        assert!(folded.lines().all(|line| line.chars().count() <= 40), "{folded}");
        assert!(folded.lines().skip(1).all(|line| line.starts_with("    ")), "{folded}");
        let parts: String = folded.lines().skip(1).map(str::trim_start).collect();
        let joined = format!("socket folder {parts}");
        assert_eq!(joined, path);
    }
}
