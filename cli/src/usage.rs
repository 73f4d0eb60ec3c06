//! Usage errors: the parser's message as one line, with the nearest valid word or the help to read.

use std::ffi::{OsStr, OsString};

use clap::{
    builder::{OsStringValueParser, PossibleValue, TypedValueParser},
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::failure::Failure;

/// Returns the usage error of `command` for `arguments`, which begin with the program's name.
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
    let what: Vec<_> = lines.filter(|line| !line.starts_with("tip: ")).collect();
    let what = what.join(" ") + &meant(why);
    if let Some(word) = program(why) {
        let advice = format!("to run a program: 'kakehi run -- {word}', or {help}");
        return Failure::usage("usage", format_args!("'{word}' is not a command"), advice);
    }
    Failure::usage("usage", what.strip_prefix("error: ").unwrap_or(&what), help)
}

/// `, did you mean 'X'?`, or nothing: the parser's nearest command, flag, or value.
fn meant(why: &clap::Error) -> String {
    let kinds =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    let nearest = kinds.into_iter().find_map(|kind| match why.get(kind)? {
        ContextValue::String(word) => Some(word),
        // The parser has the nearest one last.
        ContextValue::Strings(words) => words.last(),
        _ => None,
    });
    nearest.map_or_else(String::new, |word| format!(", did you mean '{word}'?"))
}

/// Returns the program's path that was given in place of a command.
fn program(why: &clap::Error) -> Option<&str> {
    let is_subcommand = why.kind() == ErrorKind::InvalidSubcommand;
    let word = match why.get(ContextKind::InvalidSubcommand)? {
        ContextValue::String(word) if is_subcommand => word,
        _ => return None,
    };
    word.contains('/').then_some(word)
}

/// True if the command line has `--json`: then errors are JSON, those of the parser included. The
/// arguments of a program behind `run` or `bench` do not count.
pub(crate) fn wants_json(arguments: impl Iterator<Item = OsString>) -> bool {
    let mut words = arguments.skip(1).take_while(|word| word != "--").peekable();
    let has_programs = words.peek().is_some_and(|word| word == "run" || word == "bench");
    !has_programs && words.any(|word| word == "--json")
}

/// Parser of a setting's word that completions offer. The configuration, which has all layers,
/// checks the word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneOf(pub(crate) &'static [&'static str]);

impl TypedValueParser for OneOf {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        utf8().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(PossibleValue::new)))
    }
}

/// Returns the parser of a flag whose value is UTF-8. clap's own refusal does not name the flag.
pub(crate) fn utf8() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().try_map(|text| text.into_string().map_err(|_| "it is not UTF-8"))
}

/// Returns the name of the command that was given, with the commands above it.
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
        let line = said(&["./app"]);
        assert!(line.contains("'./app' is not a command; to run a program: 'kakehi run -- ./app'"));
    }

    #[test]
    fn json_is_asked_for_by_the_command_not_by_its_program() {
        let wants = |line: &str| wants_json(line.split(' ').map(OsString::from));
        assert!(wants("kakehi status --json") && wants("kakehi check ./app --json"));
        assert!(!wants("kakehi status") && !wants("kakehi run ./app --json"));
        assert!(!wants("kakehi check -- ./app --json"));
    }

    #[test]
    fn only_what_may_have_been_meant_is_advice() {
        let line = said(&["group", "list", "--sise", "1"]);
        assert!(
            line.ends_with("'--sise' found, did you mean '--size'?; see 'tool group list --help'"),
            "{line}"
        );
        let line = said(&["grop"]);
        assert!(line.contains("subcommand 'grop', did you mean 'group'?; see"), "{line}");
        let line = said(&["group", "list", "--foo"]);
        assert!(
            line.ends_with("unexpected argument '--foo' found; see 'tool group list --help'"),
            "{line}"
        );
    }
}
