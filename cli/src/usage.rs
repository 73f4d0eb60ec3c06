//! A wrong command line in one line: what is wrong, what may have been meant, where the help is.

use std::ffi::OsString;

use clap::{
    builder::{OsStringValueParser, TypedValueParser},
    error::ErrorKind,
};

use crate::failure::Failure;

/// What the parser of `command` has against `arguments`, which begin with the program's name.
pub(crate) fn usage(
    why: &clap::Error,
    command: &clap::Command,
    arguments: impl Iterator<Item = OsString>,
) -> Failure {
    let help = format!("see '{} --help'", path(command, arguments));
    if why.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Failure::usage("usage", "no command was named", help);
    }
    let text = why.render().to_string();
    let end = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more");
    let lines = text.lines().map(str::trim).take_while(end).filter(|line| !line.is_empty());
    let (tips, what): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with("tip: "));
    let what = what.join(" ");
    let similar = tips.iter().filter_map(|tip| tip.strip_prefix("tip: ")).find(|tip| {
        // The other tips say how to hand an unknown flag on, which nobody has meant.
        tip.contains("similar")
    });
    let advice = similar.map_or_else(|| help.clone(), |similar| format!("{similar}, or {help}"));
    Failure::usage("usage", what.strip_prefix("error: ").unwrap_or(&what), advice)
}

/// Text of a flag, which every setting has to be; the parser's own refusal does not name the flag.
pub(crate) fn utf8() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().try_map(|text| text.into_string().map_err(|_| "it is not UTF-8"))
}

/// The command that was named, with the commands above it.
fn path(mut command: &clap::Command, arguments: impl Iterator<Item = OsString>) -> String {
    let mut path = command.get_name().to_owned();
    for word in arguments.skip(1) {
        let Some(below) = command.find_subcommand(word) else { break };
        path = format!("{path} {}", below.get_name());
        command = below;
    }
    path
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command, value_parser};

    use super::*;

    fn said(words: &[&str]) -> String {
        let size = Arg::new("size").long("size").value_parser(value_parser!(u8));
        let list = Command::new("list").arg(size);
        let command = Command::new("tool")
            .subcommand(Command::new("group").subcommand_required(true).subcommand(list));
        let arguments = || ["tool"].iter().chain(words).map(OsString::from);
        let why = command.clone().try_get_matches_from(arguments()).expect_err("wrong");
        usage(&why, &command, arguments()).line("tool")
    }

    #[test]
    fn help_is_that_of_the_command_that_was_named() {
        let line = said(&["group", "list", "--size", "x"]);
        assert!(line.ends_with("; see 'tool group list --help'"), "{line}");
        assert!(line.contains("invalid value 'x' for '--size <size>'"), "{line}");
        assert!(said(&["frobnicate"]).ends_with("; see 'tool --help'"));
    }

    #[test]
    fn only_what_may_have_been_meant_is_advice() {
        let line = said(&["group", "list", "--sise", "1"]);
        assert!(
            line.ends_with(
                "; a similar argument exists: '--size', or see 'tool group list --help'"
            ),
            "{line}"
        );
        let line = said(&["group", "list", "--foo"]);
        assert!(
            line.ends_with("unexpected argument '--foo' found; see 'tool group list --help'"),
            "{line}"
        );
    }
}
