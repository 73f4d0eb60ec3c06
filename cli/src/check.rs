//! `kakehi check`: what delegation can and cannot do for a program, read from its files.
//!
//! Nothing of the program is executed, and nothing of it is trusted: every table is read with
//! bounds, and a damaged file is an error.

mod calls;
mod closure;
mod judge;

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
};

use clap::ValueHint;
use serde_json::{Value, json};

use self::{closure::Object, judge::Calls};
use crate::{
    config::{Config, Environment, Flags},
    failure::{Code, Failure},
    finding::{self, Finding},
    image::{Content, Image},
    library,
    loader::Loader,
    output, report,
    voice::{self, Screen},
};

/// Scripts may name scripts; the kernel allows four levels.
const SCRIPT_DEPTH_MAX: usize = 4;

/// Lists which calls of a program are delegated, which are not, and the consequence.
///
/// Reads the program and the libraries it needs, and runs nothing.
///
/// Exit status: 0 when the program can be delegated, with or without notes; 1 when it cannot, or
/// there is no such program.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The program: a path, or a name in PATH.
    #[arg(value_hint = ValueHint::CommandName)]
    program: OsString,
    /// Its arguments, which change nothing: a command line can be checked as it is.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
    /// Prints one JSON document with every call and its users.
    #[arg(long)]
    json: bool,
}

pub(crate) fn check(args: &Args, environment: &Environment) -> Result<(), Failure> {
    let config = Config::load(environment, &Flags::default())?;
    let name = args.program.to_string_lossy();
    let mut findings = Vec::new();
    if !args.arguments.is_empty() {
        voice::step(format_args!("{name} is checked whatever its arguments are"));
    }
    let found = resolve(&args.program, environment, &mut findings)?;
    let document = match found {
        Found::Program(path, image) => {
            let loader = Loader::new(environment);
            let objects = closure::objects(&path, *image, &loader);
            let calls = judge(&path, &objects, &config, &mut findings);
            describe(&name, &path, &objects, &calls)
        }
        Found::Other(path) => json!({"program": name, "path": path.to_string_lossy()}),
    };
    print(args.json, document, &findings)?;
    let problems = finding::problems(&findings);
    if problems.is_empty() {
        return if args.json { Ok(()) } else { conclude(&name, &findings) };
    }
    Err(Failure::new(
        Code::Failure,
        format_args!("check {name}"),
        format_args!("it cannot be delegated ({})", problems.join(", ")),
        "'kakehi run' runs it all the same, undelegated",
    ))
}

/// Prints the verdict on a program that has no problem.
fn conclude(name: &str, findings: &[Finding]) -> Result<(), Failure> {
    let notes = match finding::notes(findings) {
        0 => String::new(),
        notes => format!("; {} above may matter", report::count(notes, "note", "s")),
    };
    let verdict = format!("{WORKS} for {name}: 'kakehi run -- {name}'{notes}.");
    finding::conclude(&verdict, WORKS.len())
}

const WORKS: &str = "Kakehi works";

/// Where the way through scripts ended.
enum Found {
    Program(PathBuf, Box<Image>),
    /// A file that no preload library for this machine can be loaded into.
    Other(PathBuf),
}

/// The program that the kernel would execute for `name`, through its scripts.
fn resolve(
    name: &OsStr,
    environment: &Environment,
    findings: &mut Vec<Finding>,
) -> Result<Found, Failure> {
    let mut path = find(name, environment)?;
    for _ in 0..=SCRIPT_DEPTH_MAX {
        let content = Content::read(&path).map_err(|why| {
            Failure::new(Code::Failure, path.display(), why, "name a program you can read")
        })?;
        let (interpreter, argument) = match content {
            Content::Image(image) => return Ok(Found::Program(path, image)),
            Content::Script(interpreter, argument) => (interpreter, argument),
            Content::Foreign => {
                findings.push(Finding::problem(
                    "machine",
                    format_args!("{} is for another machine", path.display()),
                    "this machine cannot run it",
                ));
                return Ok(Found::Other(path));
            }
            Content::Unknown => {
                let why = "neither an ELF program nor a script that begins with #!";
                let advice = "name the program that is started";
                return Err(Failure::new(Code::Failure, path.display(), why, advice));
            }
        };
        let found = format!("{} is run by {}", path.display(), interpreter.display());
        let meaning = "the interpreter is checked; check the programs it starts one by one";
        findings.push(Finding::ok("script", found, meaning));
        path = match env_program(&interpreter, argument.as_deref()) {
            Some(program) => find(OsStr::new(program), environment)?,
            None => find(interpreter.as_os_str(), environment)?,
        };
    }
    let why = format!("more than {SCRIPT_DEPTH_MAX} scripts name each other");
    Err(Failure::new(Code::Failure, path.display(), why, "name the interpreter itself"))
}

fn find(name: &OsStr, environment: &Environment) -> Result<PathBuf, Failure> {
    let found = environment.find_program(name);
    let why = match found.map(|path| (path.metadata(), path)) {
        Some((Ok(file), path)) if file.is_file() => return Ok(path),
        Some((Ok(file), _)) if file.is_dir() => "it is a folder".to_owned(),
        Some((Ok(_), _)) => "it is no file".to_owned(),
        Some((Err(why), _)) if why.kind() != io::ErrorKind::NotFound => why.to_string(),
        _ => "no such program".to_owned(),
    };
    let advice = "name a program by its path or by a name in PATH";
    Err(Failure::new(Code::Failure, name.to_string_lossy(), why, advice))
}

/// Returns the program that `#!/usr/bin/env [-S] [NAME=VALUE]… PROGRAM` starts.
fn env_program<'a>(interpreter: &Path, argument: Option<&'a str>) -> Option<&'a str> {
    let words = argument?.split_ascii_whitespace();
    let mut programs = words.filter(|word| !word.starts_with('-') && !word.contains('='));
    programs.next().filter(|_| interpreter.file_name() == Some(OsStr::new("env")))
}

fn judge(
    path: &Path,
    objects: &[Object],
    config: &Config,
    findings: &mut Vec<Finding>,
) -> Option<Calls> {
    let program = &objects.first()?.image;
    findings.extend(judge::loading(path, program));
    findings.push(judge::libraries(objects));
    findings.extend(judge::sanitizer(objects));
    findings.extend(judge::raw_calls(objects));
    match interposed(config) {
        Ok(interposed) => {
            let calls = Calls::of(objects, &interposed);
            findings.extend(calls.findings());
            findings.extend(judge::own_definitions(program, &interposed));
            Some(calls)
        }
        Err(why) => {
            let meaning = "which calls are covered is read from the library, so it is unknown";
            findings.push(Finding::note("preload", why, meaning));
            None
        }
    }
}

/// Returns the names that the preload library defines: the calls that are covered.
fn interposed(config: &Config) -> Result<BTreeSet<String>, Failure> {
    let path = library::find(config)?;
    let wrong = |why: String| {
        Failure::new(Code::Failure, path.display(), why, "set KAKEHI_PRELOAD to the library")
    };
    match Content::read(&path).map_err(|why| wrong(why.to_string()))? {
        Content::Image(image) => Ok(image.exports),
        _ => Err(wrong("not a library for this machine".to_owned())),
    }
}

fn describe(name: &str, path: &Path, objects: &[Object], calls: &Option<Calls>) -> Value {
    let libraries = objects.iter().skip(1);
    let libraries: Vec<_> =
        libraries.map(|object| json!({"name": object.name, "path": object.path})).collect();
    let raw = objects.iter().filter(|object| !object.image.sites.0.is_empty());
    let raw: Vec<_> =
        raw.map(|object| json!({"object": object.name, "calls": object.image.sites.0})).collect();
    json!({"program": name, "path": path.to_string_lossy(), "libraries": libraries,
        "calls": calls, "system_calls": raw})
}

fn print(as_json: bool, mut document: Value, findings: &[Finding]) -> Result<(), Failure> {
    if !as_json {
        return output::print(&finding::lines(findings, Screen::stdout()));
    }
    if let Value::Object(fields) = &mut document {
        fields.insert("delegated".into(), finding::problems(findings).is_empty().into());
        fields.insert("findings".into(), json!(findings));
    }
    output::print_json(&document)
}
