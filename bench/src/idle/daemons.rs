//! The daemon that jobs ask, and, when the RAM disk is elsewhere, the one at the other end of a
//! transport, under the same policy.

use std::{
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::ensure;

use super::{Target, fleet::Disk};
use crate::{kakehi::Daemon, scratch::Scratch};

/// Longest time until a server has said where it listens.
const PATIENCE: Duration = Duration::from_secs(10);

/// One daemon or two. The one that jobs ask ends first.
pub(super) struct Daemons {
    near: Daemon,
    far: Option<Daemon>,
    /// Where jobs find the files.
    folder: PathBuf,
    _keys: Option<Scratch>,
}

impl Daemons {
    /// Starts what a policy needs to serve the disk to jobs.
    pub(super) fn start(
        policy: &str,
        target: Target,
        disk: &Disk,
        variables: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let start = |flags: &[(&str, &OsStr)]| Daemon::start_with(policy, None, variables, flags);
        let Some(listen) = target.listen() else {
            let folder = disk.folder().to_owned();
            return Ok(Self { near: start(&[])?, far: None, folder, _keys: None });
        };
        // Every server has a root of its own, in which it keeps a record of what it does.
        let root = disk.share(policy)?;
        let keys = Scratch::create()?;
        let key = keys.path().join("key");
        let far = start(&[
            ("--listen", listen.as_ref()),
            ("--root", root.as_ref()),
            ("--key", key.as_ref()),
            ("--address-file", keys.path().as_ref()),
        ])?;
        let folder = disk.folder().join(format!("{policy}-remote"));
        let mut map = OsString::from(&folder);
        map.push("=/");
        let url = address(keys.path())?;
        let near = start(&[("--remote", url.as_ref()), ("--map", &map), ("--key", key.as_ref())])?;
        Ok(Self { near, far: Some(far), folder, _keys: Some(keys) })
    }

    /// Stops the processes until they are to [resume](Self::resume).
    pub(super) fn pause(&self) {
        self.each().for_each(Daemon::pause);
    }

    /// Lets stopped processes go on.
    pub(super) fn resume(&self) {
        self.each().for_each(Daemon::resume);
    }

    /// Folder of the socket that jobs connect to.
    pub(super) fn socket(&self) -> PathBuf {
        self.near.folder()
    }

    /// A job's file, as the job names it.
    pub(super) fn file(&self, index: usize) -> PathBuf {
        self.folder.join(index.to_string())
    }

    /// The rule under which jobs open their files.
    pub(super) fn rule(&self) -> &'static str {
        if self.far.is_some() { "/**=remote" } else { "/**=delegate" }
    }

    fn each(&self) -> impl Iterator<Item = &Daemon> {
        self.far.iter().chain([&self.near])
    }
}

impl Drop for Daemons {
    /// One that is stopped would not hear the other's goodbye, which waits for it.
    fn drop(&mut self) {
        self.resume();
    }
}

/// The address that a server has left in this folder, beside the key.
fn address(folder: &Path) -> anyhow::Result<String> {
    let start = Instant::now();
    loop {
        for entry in fs::read_dir(folder)?.flatten() {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            if text.contains("://") && text.ends_with('\n') {
                return Ok(text.trim_end().to_owned());
            }
        }
        ensure!(start.elapsed() < PATIENCE, "the server does not say where it listens");
        std::thread::yield_now();
    }
}
