//! Findings of `doctor` and `check`: one line each, with its meaning and advice.

use std::fmt;

use serde::Serialize;

use crate::{
    failure::Failure,
    output,
    plain::without_numbers,
    voice::{self, GREEN, RED, Screen, YELLOW},
};

/// Column at which what was found begins.
const INDENT: usize = 24;

/// How a finding bears on delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// As good as it gets.
    Ok,
    /// Delegation works; something is slower, smaller, or absent.
    Note,
    /// Delegation cannot work.
    Problem,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }

    const fn colour(self) -> &'static str {
        match self {
            Self::Ok => GREEN,
            Self::Note => YELLOW,
            Self::Problem => RED,
        }
    }
}

/// Result of one probe.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) name: &'static str,
    pub(crate) state: State,
    found: String,
    /// Meaning for delegation.
    meaning: &'static str,
    /// Advice; missing when there is nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Finding {
    pub(crate) fn ok(name: &'static str, found: impl fmt::Display, meaning: &'static str) -> Self {
        let found = without_numbers(&found.to_string());
        Self { name, state: State::Ok, found, meaning, advice: None }
    }

    /// Something to know; [`advise`](Self::advise) adds what to do, when there is anything.
    pub(crate) fn note(
        name: &'static str,
        found: impl fmt::Display,
        meaning: &'static str,
    ) -> Self {
        Self { state: State::Note, ..Self::ok(name, found, meaning) }
    }

    pub(crate) fn problem(
        name: &'static str,
        found: impl fmt::Display,
        meaning: &'static str,
    ) -> Self {
        Self { state: State::Problem, ..Self::ok(name, found, meaning) }
    }

    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.name();
        write!(f, "{state:<8} {:<14} {}: {}", self.name, self.found, self.meaning)?;
        self.advice.iter().try_for_each(|advice| write!(f, "; {advice}"))
    }
}

/// The lines of all findings, as a person is shown them; a quiet command has none of what is well.
pub(crate) fn lines(findings: &[Finding], screen: Screen) -> String {
    let shown = findings.iter().filter(|found| !voice::is_quiet() || found.state != State::Ok);
    let line = |finding: &Finding| {
        let line = screen.folded(&finding.to_string(), INDENT);
        screen.coloured(&line, finding.state.name().len(), finding.state.colour())
            + "
"
    };
    shown.map(line).collect()
}

/// Prints a verdict, its first `len` letters as what is well, unless the command is quiet.
pub(crate) fn conclude(verdict: &str, len: usize) -> Result<(), Failure> {
    if voice::is_quiet() {
        return Ok(());
    }
    let screen = Screen::stdout();
    output::print(&(screen.coloured(&screen.folded(verdict, 0), len, GREEN) + "\n"))
}

/// Findings that are neither as good as can be nor problems.
pub(crate) fn notes(findings: &[Finding]) -> usize {
    findings.iter().filter(|finding| finding.state == State::Note).count()
}

/// The names of what makes delegation impossible.
pub(crate) fn problems(findings: &[Finding]) -> Vec<&'static str> {
    let problems = findings.iter().filter(|finding| finding.state == State::Problem);
    problems.map(|finding| finding.name).collect()
}
