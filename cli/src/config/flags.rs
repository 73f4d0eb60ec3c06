//! Flags that set what variables and files set, too.

use clap::ValueHint;

use crate::{
    settings::{Engine, Idle, Rules, Spread},
    usage::{OneOf, utf8},
};

/// Flags that override settings, for the commands that start or describe a daemon.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct Flags {
    /// Folder of the job daemon's socket. Default: one of the job's, named after it.
    #[arg(long, value_name = "DIR", value_parser = utf8(), value_hint = ValueHint::DirPath)]
    socket: Option<String>,
    #[arg(skip)]
    job: Option<String>,
    /// Policy of the files GLOB matches: pass, hybrid (default), or delegate. The first match wins;
    /// `**` crosses folders, a relative GLOB starts at the current folder.
    #[arg(long = "rule", value_name = "GLOB=POLICY", value_parser = utf8())]
    rules: Vec<String>,
    /// Idle policy of a daemon core: poll-idle (default), park, spin, or interrupt.
    #[arg(long, value_name = "POLICY", value_parser = OneOf(Idle::WORDS))]
    #[arg(hide_possible_values = true)]
    idle: Option<String>,
    /// How the daemon executes file I/O: auto (default), uring, or threads.
    #[arg(long, value_name = "ENGINE", value_parser = OneOf(Engine::WORDS))]
    #[arg(hide_possible_values = true)]
    engine: Option<String>,
    /// Cores of the daemon, like 0,2-3; the program gets the others. Default: they share all.
    #[arg(long, value_name = "LIST")]
    cores: Option<String>,
    /// Where the files of mapped folders are: tcp://HOST:PORT, ucx://HOST:PORT, unix://PATH, or the
    /// folder in which several servers of one root have left their addresses.
    #[arg(long, value_name = "URL|DIR", value_parser = utf8())]
    remote: Option<String>,
    /// Which of several servers a process uses: by file (default) or by rank.
    #[arg(long, value_name = "HOW", value_parser = OneOf(Spread::WORDS))]
    #[arg(hide_possible_values = true)]
    spread: Option<String>,
    /// File with the job key, which server and clients share; mode 0600. Without one only
    /// unix://PATH serves, for programs of the server's user and root.
    #[arg(long, value_name = "FILE", value_parser = utf8(), value_hint = ValueHint::FilePath)]
    key: Option<String>,
    /// Every file below LOCAL is the server's below REMOTE; LOCAL itself stays empty.
    #[arg(long = "map", value_name = "LOCAL=REMOTE", value_parser = utf8())]
    maps: Vec<String>,
    /// Every file below LOCAL is kept in the multifile FILE, which is made when it is missing;
    /// LOCAL itself stays empty. '%h' in FILE is the node's name. With --listen, LOCAL is below
    /// --root.
    #[arg(long = "coalesce", value_name = "LOCAL=FILE", value_parser = utf8())]
    coalesced: Vec<String>,
    /// When to mount these folders for programs that the library does not reach: auto (default,
    /// where it is possible), none, or always.
    #[arg(long, value_name = "WHEN")]
    view: Option<String>,
}

/// Flags that say which daemon is asked.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Whom {
    /// Folder of the job daemon's socket.
    #[arg(long, value_name = "DIR", value_parser = utf8(), value_hint = ValueHint::DirPath)]
    socket: Option<String>,
    /// Name of the job, as 'kakehi jobs' lists it. Default: this process's, or the only one.
    #[arg(long, value_name = "NAME", value_parser = utf8(), conflicts_with = "socket")]
    job: Option<String>,
}

impl From<&Whom> for Flags {
    fn from(whom: &Whom) -> Self {
        let Whom { socket, job } = whom.clone();
        Self { socket, job, ..Self::default() }
    }
}

impl Flags {
    pub(super) fn given(&self) -> impl Iterator<Item = (&'static str, &'static str, String)> {
        let separator = Rules::SEPARATOR.to_string();
        let rules = (!self.rules.is_empty()).then(|| self.rules.join(&separator));
        let maps = (!self.maps.is_empty()).then(|| self.maps.join(&separator));
        let coalesced = (!self.coalesced.is_empty()).then(|| self.coalesced.join(&separator));
        [
            ("socket", "--socket", self.socket.clone()),
            ("job", "--job", self.job.clone()),
            ("rules", "--rule", rules),
            ("idle", "--idle", self.idle.clone()),
            ("engine", "--engine", self.engine.clone()),
            ("cores", "--cores", self.cores.clone()),
            ("remote", "--remote", self.remote.clone()),
            ("spread", "--spread", self.spread.clone()),
            ("key", "--key", self.key.clone()),
            ("map", "--map", maps),
            ("coalesce", "--coalesce", coalesced),
            ("view", "--view", self.view.clone()),
        ]
        .into_iter()
        .filter_map(|(name, flag, text)| Some((name, flag, text?)))
    }
}
