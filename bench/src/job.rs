//! Requests to a worker, and its answers: one line each.

use std::{fmt, path::PathBuf, str::FromStr};

use anyhow::{Context as _, bail};

/// A worker's job, and which part of it is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Creates the file and writes it from start to end; timed: the writes and the close.
    Write,
    /// The same; timed: the writes alone.
    Burst,
    /// Reads the file from its start; timed: the reads.
    Read,
    /// Sends requests without I/O to the daemon in the folder `path`; timed: all of them.
    Nothing,
}

const VERBS: [(Verb, &str); 4] = [
    (Verb::Write, "write"),
    (Verb::Burst, "burst"),
    (Verb::Read, "read"),
    (Verb::Nothing, "nothing"),
];

/// One measurement: `count` calls of `size` bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) verb: Verb,
    pub(crate) size: usize,
    pub(crate) count: usize,
    pub(crate) path: PathBuf,
}

/// Duration of the timed part: by the clock, and by the thread's CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) wall_ns: u64,
    pub(crate) cpu_ns: u64,
}

/// A worker's answer; `Err` says why there is no sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer(pub(crate) Result<Sample, String>);

impl Job {
    /// Bytes that all calls move.
    pub(crate) fn volume(&self) -> u64 {
        (self.size as u64) * (self.count as u64)
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.verb, self.size, self.count, self.path.display())
    }
}

impl FromStr for Job {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let mut words = line.splitn(4, ' ');
        let mut next = || words.next().context("a job has four words");
        Ok(Self {
            verb: next()?.parse()?,
            size: next()?.parse()?,
            count: next()?.parse()?,
            path: next()?.into(),
        })
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = VERBS.iter().find(|(verb, _)| verb == self).map_or("", |(_, word)| word);
        f.write_str(word)
    }
}

impl FromStr for Verb {
    type Err = anyhow::Error;

    fn from_str(word: &str) -> anyhow::Result<Self> {
        let verb = VERBS.iter().find(|(_, name)| *name == word).map(|(verb, _)| *verb);
        verb.with_context(|| format!("'{word}' is no job"))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(sample) => write!(f, "ok {} {}", sample.wall_ns, sample.cpu_ns),
            Err(why) => write!(f, "error {}", why.replace('\n', " ")),
        }
    }
}

impl FromStr for Answer {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let answer = match line.split_once(' ') {
            Some(("ok", times)) => {
                let (wall, cpu) = times.split_once(' ').context("an answer has two times")?;
                Ok(Sample { wall_ns: wall.parse()?, cpu_ns: cpu.parse()? })
            }
            Some(("error", why)) => Err(why.to_owned()),
            _ => bail!("'{line}' is no answer"),
        };
        Ok(Self(answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_survive_the_pipe() {
        for (verb, word) in VERBS {
            let job = Job { verb, size: 4096, count: 3, path: "/a b/c".into() };
            assert_eq!(job.to_string(), format!("{word} 4096 3 /a b/c"));
            assert_eq!(job.to_string().parse::<Job>().expect("a job"), job);
        }
        for line in ["", "write", "write 1 2", "write x 2 /a", "fly 1 2 /a"] {
            assert!(line.parse::<Job>().is_err(), "{line}");
        }
    }

    #[test]
    fn answers_survive_the_pipe() {
        let sample = Sample { wall_ns: 12, cpu_ns: 7 };
        for answer in [Answer(Ok(sample)), Answer(Err("no space left".to_owned()))] {
            assert_eq!(answer.to_string().parse::<Answer>().expect("an answer"), answer);
        }
        assert_eq!(Answer(Err("a\nb".to_owned())).to_string(), "error a b");
        assert!("ok 1".parse::<Answer>().is_err());
    }
}
