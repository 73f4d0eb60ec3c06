//! `kakehi env`: what to export when a program cannot be wrapped by `kakehi run`.

use std::{
    ffi::OsStr,
    io::{self, Write as _},
    os::unix::ffi::OsStrExt as _,
};

use serde_json::{Map, Value};

use crate::{
    config::{Config, Environment, Flags, Origin},
    failure::{Code, Failure},
    job::Job,
    library::{self, LD_PRELOAD},
    output,
};

/// Prints the variables a program needs, as shell commands
///
/// For programs that 'kakehi run' cannot wrap. Start a daemon as well:
///
///     eval "$(kakehi env)"; kakehi serve --background && ./app
///
/// If exactly one daemon of 'kakehi serve' is running, the program joins it.
///
/// Exit status: 0; 1 when the preload library is missing; 2 when a setting is wrong.
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags,
    /// Prints one JSON document: variable to value.
    #[arg(long)]
    json: bool,
}

pub(crate) fn env(args: &Args, environment: &Environment) -> Result<(), Failure> {
    let config = Config::load(environment, &args.flags)?;
    let job = match Job::served(&config, environment)? {
        Some(job) => {
            writeln!(io::stderr(), "kakehi: programs join the daemon in {}", job.folder.display())
                .ok();
            job
        }
        None => Job::find(&config, environment)?,
    };
    let variables = variables(&config, &job, environment)?;
    if args.json {
        let document: Map<_, _> =
            variables.into_iter().map(|(name, value)| (name, Value::String(value))).collect();
        return output::print_json(&document);
    }
    let line = |(name, value): &(String, String)| format!("export {name}={}\n", quoted(value));
    output::print(&variables.iter().map(line).collect::<String>())
}

/// The loader's variable, the job, its folder, and every setting that somebody set.
pub(crate) fn variables(
    config: &Config,
    job: &Job,
    environment: &Environment,
) -> Result<Vec<(String, String)>, Failure> {
    let library = library::find(config)?;
    let mut variables = vec![
        (LD_PRELOAD.to_owned(), text(&library::preloading(environment, &library))?),
        ("KAKEHI_JOB".to_owned(), job.name.clone()),
        ("KAKEHI_SOCKET".to_owned(), text(job.folder.as_os_str())?),
    ];
    for row in &config.rows {
        let ours = ["job", "socket"].contains(&row.name);
        if let (Some(value), false, false) = (&row.value, row.origin == Origin::Default, ours) {
            variables.push((row.variable(), value.clone()));
        }
    }
    Ok(variables)
}

fn text(value: &OsStr) -> Result<String, Failure> {
    value.to_str().map(ToOwned::to_owned).ok_or_else(|| {
        Failure::new(
            Code::Failure,
            value.as_bytes().escape_ascii(),
            "a variable's value has to be UTF-8",
            "choose a path in UTF-8",
        )
    })
}

/// `value` as one word of any POSIX shell.
fn quoted(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-:,@%+=".contains(&byte);
    if !value.is_empty() && value.bytes().all(plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_special_characters_are_quoted() {
        assert_eq!(quoted("/a/b-1.so"), "/a/b-1.so");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("a b;$c"), "'a b;$c'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
