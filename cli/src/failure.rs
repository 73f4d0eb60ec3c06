//! Why a command failed, as one line a person can act upon, and the exit code a script can.

use std::{fmt, io, process::ExitCode};

use rustix::io::Errno;

use crate::plain::without_numbers;

/// Exit codes of every command but `run`, which passes the program's own on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    /// The command could not do what was asked.
    Failure = 1,
    /// The command line, a variable, or a configuration file is wrong.
    Usage = 2,
    /// No daemon answers.
    Unreachable = 3,
    /// The input is damaged, or was never completed.
    Damaged = 4,
    /// `run` only: kakehi itself failed, not the program.
    Ours = 125,
    /// `run` only: the program was found and cannot be executed.
    NotExecutable = 126,
    /// `run` only: there is no such program.
    NotFound = 127,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

/// One failure: what failed, why, and what to do about it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    what: String,
    why: String,
    advice: String,
    is_of_node: bool,
}

impl Failure {
    pub(crate) fn new(
        code: Code,
        what: impl fmt::Display,
        why: impl fmt::Display,
        advice: impl fmt::Display,
    ) -> Self {
        let text = |part: &dyn fmt::Display| {
            without_numbers(&part.to_string()).replace(char::is_control, " ")
        };
        let (what, why, advice) = (text(&what), text(&why), text(&advice));
        Self { code, what, why, advice, is_of_node: false }
    }

    /// A failure of a call. If the node or a limit withheld something, that is the advice.
    pub(crate) fn of_call(
        code: Code,
        what: impl fmt::Display,
        why: &io::Error,
        advice: &str,
    ) -> Self {
        let errno = Errno::from_io_error(why);
        let advice = errno.and_then(remedy).unwrap_or(advice);
        Self { is_of_node: errno.is_some_and(is_of_node), ..Self::new(code, what, why, advice) }
    }

    /// True if the node, or a limit, has withheld what Kakehi needs for itself: programs may do
    /// without.
    pub(crate) fn is_of_node(&self) -> bool {
        self.is_of_node
    }

    /// The same, but in `run`, where the codes of other failures are the program's.
    pub(crate) fn ours(self) -> Self {
        Self { code: if self.code == Code::Usage { self.code } else { Code::Ours }, ..self }
    }

    /// The same advice about something named more closely.
    pub(crate) fn about(self, what: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self { advice: self.advice, ..Self::new(self.code, what, why, "") }
    }

    /// The same with something else to do about it.
    pub(crate) fn or(self, advice: &str) -> Self {
        Self { advice: format!("{}, or {advice}", self.advice), ..self }
    }

    /// The same of something that is still called `from`, and is to be called `to`.
    pub(crate) fn renamed(self, from: &str, to: &str) -> Self {
        Self { what: self.what.replace(from, to), ..self }
    }

    /// An error of the daemon, or of the connection to it.
    pub(crate) fn of_daemon(why: &daemon::Error) -> Self {
        let code = match why {
            daemon::Error::Unreachable { .. } | daemon::Error::Silent { .. } => Code::Unreachable,
            _ => Code::Failure,
        };
        let source = std::error::Error::source(why).and_then(|source| source.downcast_ref());
        let errno = source.and_then(Errno::from_io_error);
        let is_of_node = errno.is_some_and(is_of_node);
        Self { is_of_node, ..Self::of_line(code, &why.to_string()) }
    }

    /// A line that already says what, why, and what to do.
    pub(crate) fn of_line(code: Code, line: &str) -> Self {
        let (what, advice) = line.split_once("; ").unwrap_or((line, "see 'kakehi doctor'"));
        let (what, why) = what.split_once(": ").unwrap_or(("the daemon", what));
        Self::new(code, what, why, advice)
    }

    /// The failure in one line, said by `program`.
    pub(crate) fn line(&self, program: &str) -> String {
        format!("{program}: {}", self.text())
    }

    /// The failure in one line that somebody else will say.
    pub(crate) fn text(&self) -> String {
        format!("{}: {}; {}", self.what, self.why, self.advice)
    }

    /// The failure as a JSON document on one line, called `kind`.
    pub(crate) fn json(&self, kind: &str) -> String {
        let Self { code, what, why, advice, .. } = self;
        let parts = serde_json::json!({
            "object": what, "reason": why, "advice": advice, "exit_status": *code as u8,
        });
        serde_json::json!({ kind: parts }).to_string()
    }

    pub(crate) fn usage(
        what: impl fmt::Display,
        why: impl fmt::Display,
        advice: impl fmt::Display,
    ) -> Self {
        Self::new(Code::Usage, what, why, advice)
    }
}

/// Advice about an error that has the same cause whatever has failed.
pub(crate) fn remedy(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::MFILE => Some("raise 'ulimit -n'"),
        Errno::AGAIN => Some("raise 'ulimit -u', or end processes"),
        _ => None,
    }
}

/// True for an error by which a node or a limit withholds something.
fn is_of_node(errno: Errno) -> bool {
    let full = [Errno::NOSPC, Errno::DQUOT, Errno::ROFS, Errno::ACCESS, Errno::NFILE, Errno::NOMEM];
    remedy(errno).is_some() || full.contains(&errno)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line("kakehi"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_of_the_kernel_have_no_numbers() {
        let why = io::Error::from_raw_os_error(2);
        let line = Failure::usage("a", why, "b (os error x)").to_string();
        assert_eq!(line, "kakehi: a: No such file or directory; b (os error x)");
    }

    #[test]
    fn a_failure_is_one_line_whatever_its_parts_contain() {
        let failure = Failure::usage("a\nb", "c\rd", "e\tf");
        assert_eq!(failure.to_string(), "kakehi: a b: c d; e f");
        let json: serde_json::Value = failure.json("error").parse().expect("JSON");
        assert_eq!(json["error"]["object"], "a b");
        assert_eq!(json["error"]["exit_status"], 2);
        assert_eq!(failure.json("error").lines().count(), 1);
    }
}
