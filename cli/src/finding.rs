//! What `doctor` and `check` found: one line each, with what it means and what to do.

use std::fmt;

use serde::Serialize;

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

/// What one probe found.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) name: &'static str,
    pub(crate) state: State,
    found: String,
    /// What it means for delegation.
    meaning: &'static str,
    /// What to do; missing when there is nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Finding {
    pub(crate) fn ok(name: &'static str, found: impl fmt::Display, meaning: &'static str) -> Self {
        Self { name, state: State::Ok, found: found.to_string(), meaning, advice: None }
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
        let state = match self.state {
            State::Ok => "ok",
            State::Note => "note",
            State::Problem => "problem",
        };
        write!(f, "{state:<8} {:<14} {}: {}", self.name, self.found, self.meaning)?;
        self.advice.iter().try_for_each(|advice| write!(f, "; {advice}"))
    }
}

/// The lines of all findings.
pub(crate) fn lines(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("{finding}\n")).collect()
}

/// The names of what makes delegation impossible.
pub(crate) fn problems(findings: &[Finding]) -> Vec<&'static str> {
    let problems = findings.iter().filter(|finding| finding.state == State::Problem);
    problems.map(|finding| finding.name).collect()
}
