//! The settings: their names and meanings, and the types their values have.
//!
//! Every type prints the text it parses, so a value survives the way through an environment
//! variable into another process.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use crate::similar::did_you_mean;

/// Every setting and what it means. `config` refuses any other name.
pub(crate) const SETTINGS: [(&str, &str); 23] = [
    ("socket", "folder of the job daemon's socket; unset: by the job's name"),
    ("job", "name of the job; unset: by the scheduler, the launcher, or the process id"),
    ("idle", "what an idle daemon core does: interrupt, park, spin, poll-idle"),
    ("quiet", "how long poll-idle polls at most while nothing happens"),
    ("engine", "how the daemon executes file I/O: auto, uring, threads"),
    ("cores", "cores of the daemon, the program gets the others; unset: shared"),
    ("rules", "GLOB=POLICY list, first match wins; POLICY: pass, hybrid, delegate"),
    ("remote", "server of mapped folders: tcp://, ucx://HOST:PORT, unix://PATH; or their folder"),
    ("spread", "which of several servers a process uses: file (by path), rank (by its number)"),
    ("key", "file with the job key, mode 0600"),
    ("map", "LOCAL=REMOTE list: files below LOCAL are the server's below REMOTE"),
    ("coalesce", "LOCAL=FILE list: files below LOCAL are kept in the multifile FILE"),
    (
        "view",
        "mount mapped and coalesced folders for all programs: none, auto (if possible), always",
    ),
    ("remote_timeout", "how long a lost server may stay away before its files fail with EIO"),
    ("staging", "staging memory per process, 256KiB or more"),
    ("memory", "staging memory of all sessions together"),
    ("sync", "delegate, but every call returns when it has completed"),
    ("disable", "run programs untouched"),
    ("fence_timeout", "how long a client waits for a silent daemon before it fences it"),
    ("direct", "size from which a write under hybrid goes to the kernel directly"),
    ("stage_after", "time a file's small writes must have taken before they are staged"),
    ("preload", "path of libkakehi_preload.so; unset: ../lib beside this program"),
    ("log", "what the daemon logs: off, error, warn, info, debug, trace"),
];

/// Defines an enum whose variants are words, with `Display` and `FromStr`; and what they are to the
/// daemon, whose variants have the same names.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident as $theirs:ty {
        $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+
    }) => {
        words! { $(#[$doc])* $name { $($(#[$variant_doc])* $variant = $word,)+ } }

        impl From<$name> for $theirs {
            fn from(value: $name) -> Self {
                match value { $($name::$variant => Self::$variant,)+ }
            }
        }
    };
    ($(#[$doc:meta])* $name:ident {
        $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name { $($(#[$variant_doc])* $variant,)+ }

        impl $name {
            /// Every word.
            pub(crate) const WORDS: &[&str] = &[$($word),+];
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $word,)+ })
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => {
                        let meant = did_you_mean(text, Self::WORDS.iter().copied());
                        let words = Self::WORDS.join(", ");
                        Err(format!("'{text}' is not one of {words}{meant}"))
                    }
                }
            }
        }
    };
}

words! {
    /// Idle policy of a daemon core.
    #[expect(clippy::enum_variant_names, reason = "a word of users and of the daemon")]
    Idle as daemon::Idle {
        /// A doorbell for every request and every completion: the conventional baseline.
        Interrupt = "interrupt",
        /// Blocks at once; a doorbell wakes it.
        Park = "park",
        /// Polls on, on a core of its own.
        Spin = "spin",
        /// Polls while nobody else wants the core.
        PollIdle = "poll-idle",
    }
}

words! {
    /// How the daemon executes file I/O.
    Engine as daemon::Choice {
        /// By what each file can do.
        Auto = "auto",
        /// io_uring.
        Uring = "uring",
        /// Plain system calls on threads.
        Threads = "threads",
    }
}

words! {
    /// Policy of the files a rule matches.
    Policy {
        /// The kernel serves them; nothing is delegated.
        Pass = "pass",
        /// The client opens them, the daemon writes what it staged.
        Hybrid = "hybrid",
        /// Every call is executed by the daemon.
        Delegate = "delegate",
        /// As `delegate`, and there is no such file on this node: set by a map.
        Remote = "remote",
    }
}

words! {
    /// Which of several servers of remote files a process uses.
    Spread as daemon::Spread {
        /// Each file has its own, whoever asks.
        File = "file",
        /// Each process has its own, by its rank.
        Rank = "rank",
    }
}

words! {
    /// True if mapped and coalesced folders are mounted.
    View as daemon::Viewing {
        /// They are not.
        None = "none",
        /// They are where they can be.
        Auto = "auto",
        /// They are, or nothing runs.
        Always = "always",
    }
}

words! {
    /// The least severe message that is logged.
    Level {
        /// Nothing.
        Off = "off",
        /// Data was or may be lost.
        Error = "error",
        /// Something works otherwise than asked.
        Warn = "warn",
        /// Sessions that come and go.
        Info = "info",
        /// Decisions per file.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

/// A switch; `1`, `true`, `yes`, `on` and their opposites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Switch(pub(crate) bool);

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { "1" } else { "0" })
    }
}

impl FromStr for Switch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "1" | "true" | "yes" | "on" => Ok(Self(true)),
            "0" | "false" | "no" | "off" => Ok(Self(false)),
            _ => Err(format!("'{text}' is not one of 1, 0, true, false, yes, no, on, off")),
        }
    }
}

/// Core numbers, ascending and without repetition; written `0,2-3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cores(pub(crate) Vec<u32>);

impl Cores {
    /// One more than the largest core number the kernel can be built for.
    const END: u32 = 8192;
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.0.chunk_by(|core, next| core + 1 == *next);
        for (index, run) in runs.enumerate() {
            f.write_str(if index == 0 { "" } else { "," })?;
            match run {
                [first, .., last] => write!(f, "{first}-{last}")?,
                [only] => write!(f, "{only}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

impl FromStr for Cores {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || format!("'{text}' is not a list of cores like 0 or 0,2-3");
        let mut cores = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |digits: &str| digits.trim().parse::<u32>().map_err(|_| wanted());
            let (first, last) = (number(first)?, number(last)?);
            if first > last || last >= Self::END {
                return Err(wanted());
            }
            cores.extend(first..=last);
        }
        cores.sort_unstable();
        cores.dedup();
        let (count, count_max) = (cores.len(), daemon::CORES_MAX);
        if count > count_max {
            return Err(format!("'{text}' has {count} cores, and a daemon serves on {count_max}"));
        }
        Ok(Self(cores))
    }
}

/// Which files, and what is done with them; written `GLOB=POLICY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Matches absolute paths; `**` crosses folders.
    pub(crate) glob: String,
    pub(crate) policy: Policy,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.glob, self.policy)
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (glob, policy) = text
            .rsplit_once('=')
            .filter(|(glob, _)| !glob.is_empty())
            .ok_or_else(|| format!("'{text}' is not GLOB=POLICY, for example 'out/**=delegate'"))?;
        let policy = policy.parse().map_err(|_| {
            // The last one is a map's alone.
            let words = || Policy::WORDS.iter().copied().filter(|word| *word != "remote");
            let (meant, words) = (did_you_mean(policy, words()), words().collect::<Vec<_>>());
            format!("'{text}': '{policy}' is not one of {}{meant}", words.join(", "))
        })?;
        Ok(Self { glob: glob.to_owned(), policy })
    }
}

/// Rules in the order they are tried; written with [`Rules::SEPARATOR`] between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules(pub(crate) Vec<Rule>);

impl Rules {
    /// No rule can contain it: a glob with `;` has to be written with `?` in its place.
    pub(crate) const SEPARATOR: char = ';';

    /// Relative globs start at `folder`; what they name is written as programs' paths are compared,
    /// without `.` and `..`.
    pub(crate) fn starting_at(mut self, folder: &Path) -> Self {
        let folder = literal(folder).replace(Self::SEPARATOR, "?");
        for rule in &mut self.0 {
            if !rule.glob.starts_with('/') {
                rule.glob = format!("{folder}/{}", rule.glob);
            }
            rule.glob = plain(&rule.glob);
        }
        self
    }
}

/// A glob that matches this path alone.
pub(crate) fn literal(path: &Path) -> String {
    let mut glob = String::new();
    for c in path.display().to_string().chars() {
        match c {
            '[' | '{' => glob.extend(['[', c, ']']),
            c => glob.push(c),
        }
    }
    glob
}

/// A glob without `.`, `..`, and doubled slashes: no path that a rule sees has them.
fn plain(glob: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in glob.split('/') {
        match part {
            "" | "." => {}
            // What `**` stands for is not known.
            ".." if parts.last().is_some_and(|last| *last != "**") => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Most globs that braces may make of one.
const BRACES_MAX: usize = 64;

/// The globs that one with `{a,b}` stands for, in order; a brace without a comma is one.
fn unbraced(glob: &str) -> Result<Vec<String>, String> {
    let too_many = || format!("'{glob}' stands for more than {BRACES_MAX} globs");
    let (mut done, mut rest) = (Vec::new(), vec![glob.to_owned()]);
    while let Some(glob) = rest.pop() {
        match braces(&glob) {
            None => done.push(glob),
            Some((before, choices, behind)) => {
                let made = choices.iter().rev().map(|one| format!("{before}{one}{behind}"));
                rest.extend(made);
            }
        }
        if done.len() + rest.len() > BRACES_MAX {
            return Err(too_many());
        }
    }
    Ok(done)
}

/// The first braces with a comma of their own: what is before, between, and behind them.
fn braces(glob: &str) -> Option<(&str, Vec<&str>, &str)> {
    let is_set = |at: usize| glob.get(at.checked_sub(1)?..at + 2).filter(|text| *text == "[{]");
    for (open, _) in glob.match_indices('{').filter(|(at, _)| is_set(*at).is_none()) {
        let (mut depth, mut from, mut choices) = (0, open + 1, Vec::new());
        for (at, c) in glob.char_indices().skip_while(|(at, _)| *at <= open) {
            match c {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                ',' if depth == 0 => {
                    choices.push(glob.get(from..at)?);
                    from = at + 1;
                }
                '}' if choices.is_empty() => break,
                '}' => {
                    choices.push(glob.get(from..at)?);
                    return Some((glob.get(..open)?, choices, glob.get(at + 1..)?));
                }
                _ => {}
            }
        }
    }
    None
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&rules.join(&Self::SEPARATOR.to_string()))
    }
}

impl FromStr for Rules {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut rules = Vec::new();
        for part in text.split(Self::SEPARATOR).filter(|part| !part.is_empty()) {
            let Rule { glob, policy } = part.parse()?;
            rules.extend(unbraced(&glob)?.into_iter().map(|glob| Rule { glob, policy }));
        }
        Ok(Self(rules))
    }
}

/// A path; absolute once the configuration is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SettingPath(pub(crate) PathBuf);

impl fmt::Display for SettingPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl FromStr for SettingPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("an empty text is no path".to_owned()),
            _ => Ok(Self(text.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_lists_print_as_they_parse() {
        for (text, printed) in [("0", "0"), ("0,2-3", "0,2-3"), ("3,1,2,2", "1-3")] {
            let cores: Cores = text.parse().expect("a list");
            assert_eq!(cores.to_string(), printed);
        }
        assert!("0-31,1024-1055".parse::<Cores>().is_ok());
        for text in ["", "a", "3-1", "0,", "-1", "8192", "0-4294967295", "0-64"] {
            assert!(text.parse::<Cores>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_rule_splits_at_its_last_equals_sign() {
        let rule: Rule = "/a=b/*=pass".parse().expect("a rule");
        assert_eq!((rule.glob.as_str(), rule.policy), ("/a=b/*", Policy::Pass));
        for text in ["", "pass", "=pass", "/a=", "/a=fast"] {
            assert!(text.parse::<Rule>().is_err(), "{text}");
        }
        let why = "/a=fast".parse::<Rule>().expect_err("no policy");
        assert_eq!(why, "'/a=fast': 'fast' is not one of pass, hybrid, delegate");
    }

    #[test]
    fn relative_globs_start_at_the_current_folder() {
        let rules: Rules = "out/*=pass;/**=delegate".parse().expect("rules");
        let rules = rules.starting_at(Path::new("/home/u"));
        assert_eq!(rules.to_string(), "/home/u/out/*=pass;/**=delegate");

        let rules: Rules = "./a/../b//./*=pass;/x/./y=pass;../c=pass".parse().expect("rules");
        let rules = rules.starting_at(Path::new("/home/[u]"));
        assert_eq!(rules.to_string(), "/home/[[]u]/b/*=pass;/x/y=pass;/home/c=pass");

        let rules: Rules = "out/*=pass".parse().expect("a rule");
        assert_eq!(rules.starting_at(Path::new("/a;b")).to_string(), "/a?b/out/*=pass");
    }

    #[test]
    fn braces_make_several_rules_of_one() {
        for (text, printed) in [
            ("/a.{c,h}=pass", "/a.c=pass;/a.h=pass"),
            ("/{a,b}/{c,}=pass", "/a/c=pass;/a/=pass;/b/c=pass;/b/=pass"),
            ("/{a,b{c,d}}=pass", "/a=pass;/bc=pass;/bd=pass"),
            ("/{a}=pass;/[{]a,b}=pass;/{a=pass", "/{a}=pass;/[{]a,b}=pass;/{a=pass"),
        ] {
            let rules: Rules = text.parse().expect(text);
            assert_eq!(rules.to_string(), printed);
        }
        assert!("/{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}=pass".parse::<Rules>().is_err());
    }
}
