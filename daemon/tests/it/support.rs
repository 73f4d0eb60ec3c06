//! A daemon on a thread of the test, and waiting with a deadline.

use std::{
    os::fd::OwnedFd,
    path::Path,
    sync::mpsc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use daemon::{Choice, Config, Error, Idle, Standby, Summary, caller};
use tempfile::TempDir;

/// The longest any test waits for one thing.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A daemon that serves in a folder of its own.
pub(crate) struct Daemon {
    dir: TempDir,
    thread: Option<JoinHandle<Result<Summary, Error>>>,
}

impl Daemon {
    pub(crate) fn start() -> Self {
        Self::with(|_| {})
    }

    /// Starts a daemon whose configuration was changed by `change`.
    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::of(None, change)
    }

    /// The same, of a run that is attached by this connection.
    pub(crate) fn of(run: Option<OwnedFd>, change: impl FnOnce(&mut Config)) -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let mut config = Config::new(dir.path().to_owned());
        config.engine = Choice::Auto;
        config.idle = Idle::Park;
        config.staging = 1 << 20;
        change(&mut config);
        let (tell, ready) = mpsc::channel();
        let begun = move |_: Option<&_>| tell.send(()).expect("the test waits");
        let standby = |run| Standby::of_daemon(dir.path()).expect("nobody else's").attaching(run);
        let standby = run.map(standby);
        let serve = move || daemon::serve(config, standby, begun).map(|(summary, _)| summary);
        let thread = Some(thread::spawn(serve));
        ready.recv_timeout(DEADLINE).expect("the daemon listens");
        Self { dir, thread }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        let answer = caller::ask(self.folder(), caller::Control::Status).expect("it serves");
        serde_json::from_str(&answer).expect("JSON")
    }

    /// Stops the daemon and returns what it has done.
    pub(crate) fn stop(self) -> Summary {
        caller::ask(self.folder(), caller::Control::Stop).expect("it serves");
        self.end()
    }

    /// Waits for the daemon to end by itself.
    pub(crate) fn end(mut self) -> Summary {
        let thread = self.thread.take().expect("it was started");
        until("the daemon ends", || thread.is_finished());
        thread.join().expect("no panic").expect("no error")
    }
}

/// Waits until `condition` holds.
#[expect(clippy::disallowed_methods, reason = "a test may look again after a while")]
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "not before the deadline: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
