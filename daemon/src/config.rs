//! Configuration by the starter of a daemon.

use std::{collections::BTreeMap, os::fd::OwnedFd, path::PathBuf, sync::Arc, time::Duration};

use coalesce::Coalesce;
use executor::{Idle, QUIET};
use remote::{Address, Spread};
use uring::Choice;

use crate::mounts::Mount;

/// Staging memory of one session, bytes, unless somebody decides otherwise.
pub const STAGING: u64 = 32 << 20;
/// How long a daemon that is to end waits for clients, unless somebody decides otherwise.
pub const LINGER: Duration = Duration::from_secs(2);
/// Cores that a daemon serves on at most.
pub const CORES_MAX: usize = shm::EXECUTORS_MAX;

/// The configuration of one daemon.
#[derive(Clone, Debug)]
pub struct Config {
    /// Folder of the socket; exists, mode 0700.
    pub folder: PathBuf,
    /// Idle policy of the executors.
    pub idle: Idle,
    /// Under poll-idle, how long nothing must have happened before the last executor parks too.
    pub quiet: Duration,
    /// How file I/O is executed.
    pub engine: Choice,
    /// Cores to serve on, one executor pinned to each; empty: one executor or two, not pinned.
    pub cores: Vec<usize>,
    /// Staging memory of one session, bytes.
    pub staging: u64,
    /// Staging memory of all sessions together, bytes.
    pub memory: u64,
    /// A pipe to the `run` that starts the daemon for its job. With one, the daemon ends once every
    /// `run` that attached has gone, and the clients too; and does not wait for a server of remote
    /// files when nobody reads the pipe any more. The first signal then does not end it.
    pub starter: Option<Arc<OwnedFd>>,
    /// How long a daemon that is to end waits for clients to leave by themselves.
    pub linger: Duration,
    /// Set for a daemon that stays, however long, for programs of its job that go on when nobody is
    /// attached any more. Called with the starter's pipe once one has, for longer than `linger`.
    pub stays: Option<fn(&OwnedFd)>,
    /// Variables for UCX that the user has set, names and values: the daemon leaves them to UCX.
    pub ucx_variables: Vec<(String, String)>,
    /// The servers that have the files below some folders.
    pub remote: Option<Remote>,
    /// Files to serve to daemons elsewhere.
    pub serving: Option<Serving>,
    /// Take samples of the counters over time, for [`Summary::samples`](crate::Summary::samples).
    pub takes_samples: bool,
    /// Trace sampled requests, for [`Summary::traced`](crate::Summary::traced).
    pub takes_trace: bool,
    /// The program that the daemon was started for, to be told to who asks.
    pub command: Option<String>,
    /// True if the folders below which files are a server's are mounted.
    pub view: Viewing,
    /// Where another job's view is at a folder, the daemon does not start.
    pub refuses_taken: bool,
    /// The job has mounts of its own.
    pub has_own_mounts: bool,
    /// Nothing can be changed through the views.
    pub is_read_only: bool,
    /// The user's settings by name, for answers to questions.
    pub settings: BTreeMap<String, String>,
}

/// True if mapped and coalesced folders are file systems, for programs that no client serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Viewing {
    /// They are not.
    None,
    /// They are where they can be.
    Auto,
    /// They are, or the daemon does not start.
    Always,
}

/// How a daemon reaches a server, or several that serve one folder of a shared file system.
#[derive(Clone, Debug)]
pub struct Remote {
    /// The user's name for them: an address, or a folder of addresses.
    pub name: String,
    /// Where they listen, in an order that all clients agree on. Not empty.
    pub addresses: Vec<Address>,
    /// Which of them a request goes to.
    pub spread: Spread,
    /// File with the job key: this user's, mode 0600. Without one only Unix sockets are met.
    pub key: Option<PathBuf>,
    /// Which folders are theirs.
    pub mounts: Vec<Mount>,
    /// After so long without a connection every remote file fails with `EIO`, for good.
    pub timeout: Duration,
}

/// How a daemon serves daemons elsewhere.
#[derive(Clone, Debug)]
pub struct Serving {
    /// Where to listen; with port 0 at any.
    pub address: Address,
    /// The folder that is served, and nothing outside it.
    pub root: PathBuf,
    /// Folders below it whose files are in multifiles.
    pub coalesced: Vec<Coalesce>,
    /// File with the job key; made when it is missing. Without one only processes of this user,
    /// and root's, are let in, through a Unix socket.
    pub key: Option<PathBuf>,
    /// Folder to leave a file in that has the address listened at.
    pub address_folder: Option<PathBuf>,
}

impl Config {
    /// The server that this daemon is for its own node.
    pub(crate) fn own(&self) -> Option<&Remote> {
        let serving = self.serving.as_ref()?;
        self.remote.as_ref().filter(|remote| remote.addresses == [serving.address.clone()])
    }

    /// The usual configuration for a daemon in `folder`.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            idle: Idle::PollIdle,
            quiet: QUIET,
            engine: Choice::default(),
            cores: Vec::new(),
            staging: STAGING,
            memory: 1 << 30,
            starter: None,
            linger: LINGER,
            stays: None,
            ucx_variables: Vec::new(),
            remote: None,
            serving: None,
            takes_samples: false,
            takes_trace: false,
            command: None,
            view: Viewing::None,
            refuses_taken: false,
            has_own_mounts: false,
            is_read_only: false,
            settings: BTreeMap::new(),
        }
    }
}
