//! Processes of this program that do a part of a bench, and say in lines of JSON what it took.

use std::{
    env,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    process::{ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

use crate::{
    kakehi::Environment,
    process::{Process, is_ready},
};

/// The slowest that is waited for, bytes a second, after a while that starting may take.
const RATE_MIN: u64 = 8 << 20;
const START_MAX: Duration = Duration::from_secs(10);

/// The words by which this program is started to play a part, by its name among all parts.
pub(crate) fn words(part: &str, args: &impl Serialize) -> io::Result<[String; 2]> {
    Ok(["part".to_owned(), json!({ part: serde_json::to_value(args)? }).to_string()])
}

/// This program, to play a part in an empty environment.
pub(crate) fn command(part: &str, args: &impl Serialize) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.env_clear().args(words(part, args)?);
    Ok(command)
}

/// A process that plays a part. It ends when this is dropped: its standard input ends first.
pub(crate) struct Child {
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    process: Process,
}

impl Child {
    /// Starts a process with nothing but `environment`.
    pub(crate) fn start(
        part: &str,
        args: &impl Serialize,
        environment: &Environment,
    ) -> anyhow::Result<Self> {
        let mut command = command(part, args)?;
        command.envs(environment).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (orders, answers) = (child.stdin.take(), child.stdout.take());
        Ok(Self {
            orders: orders.context("a pipe to the process")?,
            answers: BufReader::new(answers.context("a pipe from the process")?),
            process: Process(child),
        })
    }

    /// Gives an order, which [`serve`] takes.
    pub(crate) fn order(&mut self, order: &impl Serialize) -> anyhow::Result<()> {
        let line = serde_json::to_string(order)? + "\n";
        self.orders.write_all(line.as_bytes()).context("a process has ended")
    }

    /// The answer to an order.
    ///
    /// # Errors
    ///
    /// As [`hear`](Self::hear), and what the process failed with.
    pub(crate) fn answer<T: DeserializeOwned>(&mut self, time: Duration) -> anyhow::Result<T> {
        self.hear::<Result<T, String>>(time)?.map_err(anyhow::Error::msg)
    }

    /// The next line.
    ///
    /// # Errors
    ///
    /// The process has ended; or it said nothing for so long, and was killed.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self, time: Duration) -> anyhow::Result<T> {
        if !is_ready(self.answers.get_ref(), time)? {
            self.kill();
            bail!("no answer within {time:?}");
        }
        let mut line = String::new();
        match self.answers.read_line(&mut line)? {
            0 => bail!("a process ended early: {}", self.last_words()),
            _ => Ok(serde_json::from_str(&line)?),
        }
    }

    /// Ends it at once.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Returns its standard error, in one line.
    fn last_words(&mut self) -> String {
        let mut said = String::new();
        if let Some(mut errors) = self.process.0.stderr.take() {
            // What could be read of it is better than nothing.
            errors.read_to_string(&mut said).ok();
        }
        let said = said.trim().replace('\n', "; ");
        said.strip_prefix("kakehi-bench: ").unwrap_or(&said).to_owned()
    }
}

/// How long a process may take that moves `volume` bytes.
pub(crate) fn patience(volume: u64) -> Duration {
    START_MAX + Duration::from_secs(volume / RATE_MIN)
}

/// Tells the process that started this one.
pub(crate) fn say(value: impl Serialize) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", serde_json::to_string(&value)?)?;
    Ok(stdout.flush()?)
}

/// Does what the orders on standard input say, one a line, until it ends; the answer to each is a
/// value, or why there is none.
pub(crate) fn serve<T: DeserializeOwned, U: Serialize>(
    mut work: impl FnMut(&T) -> anyhow::Result<U>,
) -> anyhow::Result<()> {
    for line in io::stdin().lock().lines() {
        let done = serde_json::from_str(&line?).map_err(Into::into).and_then(|order| work(&order));
        say(done.map_err(|why| format!("{why:#}")))?;
    }
    Ok(())
}
