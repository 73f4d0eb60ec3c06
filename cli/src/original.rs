//! The command-line tools of SIONlib, by their own names: `kakehi` installed as `siondump` is
//! `siondump`, with the options and the output that scripts know.
//!
//! One fault of the original is mended: a failure ends with code 1, one line on standard error, and
//! no half output.

mod cat;
mod defrag;
mod dump;
mod options;
mod split;
mod usage;

use std::{
    ffi::{OsStr, OsString},
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use self::options::{Asked, Options};
use crate::{
    failure::{Code, Failure},
    output,
};

/// The SIONlib release whose tools these stand for.
const RELEASE: &str = "1.7p6";
/// Format version it writes.
const FORMAT_VERSION: u32 = 5;

/// One of the tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    Dump,
    Split,
    Cat,
    Defrag,
    Version,
}

impl Tool {
    /// The tool that a program called `name` is, if any.
    pub(crate) fn named(name: &OsStr) -> Option<Self> {
        match Path::new(name).file_name()?.to_str()? {
            "siondump" => Some(Self::Dump),
            "sionsplit" => Some(Self::Split),
            "sioncat" => Some(Self::Cat),
            "siondefrag" => Some(Self::Defrag),
            "sionversion" => Some(Self::Version),
            _ => None,
        }
    }

    /// Does what the tool does; `program` is the name it was started by.
    pub(crate) fn run(self, program: &OsStr, arguments: Vec<OsString>) -> ExitCode {
        match self.start(program, arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(Stop::Told(text)) => {
                // Nobody is left to tell when standard error is gone; the code still says it.
                write!(io::stderr(), "{text}").ok();
                Code::Failure.into()
            }
            Err(Stop::Failed(failure)) => {
                writeln!(io::stderr(), "{}", failure.line(self.name())).ok();
                Code::Failure.into()
            }
        }
    }

    fn start(self, program: &OsStr, arguments: Vec<OsString>) -> Result<(), Stop> {
        let (flags, valued, names) = match self {
            Self::Dump => ("amMlkKSv", "", 1),
            Self::Split => ("vg", "d", 2),
            Self::Cat => ("v", "tbo", 1),
            Self::Defrag => ("v", "Qqn", 2),
            Self::Version => return Ok(output::print(&version(program))?),
        };
        let options = match Options::parse(arguments, flags, valued, names) {
            Asked::Run(options) => options,
            Asked::Version => {
                let name = self.name();
                let text = format!("{name}: version {RELEASE}, file format {FORMAT_VERSION}\n");
                return Err(Stop::Told(text));
            }
            Asked::Usage => return Err(Stop::Told(self.usage().to_owned())),
        };
        match self {
            Self::Dump => dump::dump(&options)?,
            Self::Split => split::split(&options)?,
            Self::Cat => cat::cat(&options)?,
            Self::Defrag | Self::Version => defrag::defrag(&options)?,
        }
        Ok(())
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Dump => "siondump",
            Self::Split => "sionsplit",
            Self::Cat => "sioncat",
            Self::Defrag => "siondefrag",
            Self::Version => "sionversion",
        }
    }

    const fn usage(self) -> &'static str {
        match self {
            Self::Dump => {
                "usage: siondump [-a] [-m] [-M] [-l] [-k] [-K] [-S] [-v] [-V] [-h] <file>\n\
                 \x20 -a  every block of every task\n\
                 \x20 -l  with -a: sizes in bytes\n\
                 \x20 -m  the mapping of tasks to files\n\
                 \x20 -M  the same, by file\n\
                 \x20 -k  keys and what is under them\n\
                 \x20 -K  records in the order they were written\n\
                 \x20 -S  the size of internal structures\n"
            }
            Self::Split => {
                "usage: sionsplit [-v] [-g] [-d <digits>] [-V] [-h] <file> <prefix>\n\
                 \x20 -g  number files by global rank\n\
                 \x20 -d  digits of the number (5)\n"
            }
            Self::Cat => {
                "usage: sioncat [-v] [-t <task>] [-b <block>] [-o <out>] [-V] [-h] <file>\n\
                 \x20 -t  only this task\n\
                 \x20 -b  only this block\n\
                 \x20 -o  write to a file\n"
            }
            Self::Defrag | Self::Version => {
                "usage: siondefrag [-Q <MiB>] [-q <bytes>] [-n <files>] [-v] [-V] [-h] <in> <out>\n\
                 \x20 -Q, -q  file-system block size of the output (that of the input)\n\
                 \x20 -n      physical files of the output (1)\n"
            }
        }
    }
}

/// Why a tool ends early.
enum Stop {
    /// It was asked for a text.
    Told(String),
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

fn version(program: &OsStr) -> String {
    let (own, program) = (env!("CARGO_PKG_VERSION"), program.to_string_lossy());
    format!(
        "SIONlib Version 1.7.6 (git_rev kakehi-{own}), fileformat version {FORMAT_VERSION} \
         ({program})\n"
    )
}
