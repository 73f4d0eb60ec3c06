//! Every workload under every policy, while somebody is killed or stopped: nothing that was
//! accepted is lost without a word, nothing is there twice, and no hole is in front of anything.
//!
//! What a daemon takes with it that alone knows the way to its files (mapped and coalesced ones),
//! its programs are told. What client and daemon take with them together is young.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use rustix::{
    process::{Signal, kill_process},
    time::{ClockId, clock_gettime},
};
use serde_json::Value;

use crate::{
    harness::{Daemon, Folder, SOON, kakehi, note, pause, python, random, succeed},
    records::{Kind, Writer},
    remote::server::{Scheme, Server},
};

const WORKLOADS: [Kind; 7] = [
    Kind::Blocks,
    Kind::Checked,
    Kind::Shared,
    Kind::Renamed,
    Kind::Bodies,
    Kind::Stdio,
    Kind::Inserted,
];
const WAYS: [Way; 5] = [Way::Hybrid, Way::Delegate, Way::Coalesced, Way::Remote, Way::Kept];
const VICTIMS: [Victim; 5] =
    [Victim::Client, Victim::Daemon, Victim::Both, Victim::Server, Victim::Stopped];
/// Writers of a file that several append to.
const SHARING: u64 = 4;
/// Times that one of a stopped pair is stopped.
const STOPS: u32 = 5;
/// How old what both take with them may be, on a machine with other work.
const LOSS_MAX: Duration = Duration::from_secs(1);
/// Rounds of `make soak`.
const ROUNDS: usize = 16;

/// How programs come to their files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Hybrid,
    Delegate,
    Coalesced,
    Remote,
    /// Of a server that keeps them in a multifile.
    Kept,
}

/// Receiver of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Client,
    Daemon,
    Both,
    Server,
    Stopped,
}

/// One cell of each workload and way, with another victim each.
#[test]
fn every_workload_survives_a_kill_under_every_policy() {
    let mut rng = random("a slice of kills");
    let cells = WORKLOADS.iter().flat_map(|kind| WAYS.map(|way| (*kind, way)));
    let mut signals = 0;
    for (index, (kind, way)) in cells.enumerate() {
        let victims: Vec<_> = VICTIMS.into_iter().filter(|victim| way.has(*victim)).collect();
        signals += strike(&mut rng, kind, way, victims[index % victims.len()]);
    }
    note(format_args!("{signals} signals"));
}

#[test]
#[ignore = "an hour: for `make soak`"]
fn thousands_of_kills_of_anybody_lose_nothing_under_any_policy() {
    let mut rng = random("kills of anybody");
    #[expect(clippy::disallowed_methods, reason = "a test has no configuration but this")]
    let rounds = std::env::var("ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().expect("a number"));
    let mut signals = 0;
    for _ in 0..rounds {
        for kind in WORKLOADS {
            for way in WAYS {
                for victim in VICTIMS.into_iter().filter(|victim| way.has(*victim)) {
                    signals += strike(&mut rng, kind, way, victim);
                }
            }
        }
        note(format_args!("{signals} signals"));
    }
}

impl Way {
    fn has(self, victim: Victim) -> bool {
        let has_server = matches!(self, Self::Remote | Self::Kept);
        match victim {
            Victim::Server => has_server,
            // As any server's clients.
            _ => self != Self::Kept,
        }
    }

    /// True if a program has its files without a daemon, too.
    fn is_local(self) -> bool {
        matches!(self, Self::Hybrid | Self::Delegate)
    }
}

/// A daemon, its server, and where a program's files are for it and for others.
struct Scene {
    folder: Folder,
    daemon: Daemon,
    server: Option<Server>,
    way: Way,
}

impl Scene {
    fn new(way: Way) -> Self {
        let folder = Folder::new();
        fs::create_dir(folder.join("local")).expect("a folder");
        let server = match way {
            Way::Remote => Some(Server::start(&folder, Scheme::Tcp)),
            Way::Kept => Some(Server::start_coalescing(&folder, Scheme::Tcp)),
            _ => None,
        };
        if way == Way::Remote {
            fs::create_dir(folder.join("root/job")).expect("a folder");
        }
        let daemon = daemon(&folder, way, server.as_ref());
        Self { folder, daemon, server, way }
    }

    /// Starts the writers of a workload.
    fn start(&self, kind: Kind, count: u64, record_len: usize) -> Vec<Writer> {
        let writers = if kind == Kind::Shared { SHARING } else { 1 };
        let path = self.folder.join("local/out");
        let writer = |index: u64| {
            let log = self.folder.join(format!("{index}.log"));
            let paths = (path.clone(), log);
            Writer::start_as(index, &self.daemon, kind, paths, count, record_len)
        };
        let writers: Vec<_> = (0..writers).map(writer).collect();
        for writer in &writers {
            assert!(writer.reaches(1, SOON), "nothing is accepted: {}", writer.said());
        }
        writers
    }

    /// Ends what still runs, and returns where the files are then.
    fn end(self, is_daemon_alive: bool) -> (Folder, PathBuf) {
        let Self { folder, daemon: mut first, server, way } = self;
        if is_daemon_alive {
            first.end();
        } else {
            first.running.wait(SOON);
            fs::remove_dir_all(&first.socket).expect("what a killed daemon leaves");
            if way == Way::Coalesced {
                // The next one goes on with the multifile.
                daemon(&folder, way, None).end();
            }
        }
        server.into_iter().for_each(Server::end);
        let place = match way {
            Way::Hybrid | Way::Delegate => folder.join("local"),
            Way::Remote => folder.join("root/job"),
            Way::Coalesced => extracted(&folder, "kept.sion"),
            Way::Kept => extracted(&folder, "job.sion"),
        };
        (folder, place)
    }
}

fn daemon(folder: &Folder, way: Way, server: Option<&Server>) -> Daemon {
    let local = folder.join("local");
    let flags: Vec<String> = match (way, server) {
        (Way::Hybrid, _) => vec![],
        (Way::Delegate, _) => vec!["--rule".into(), "/**=delegate".into()],
        (_, Some(server)) => server.flags(&local).into(),
        _ => vec!["--coalesce".into(), "local=kept.sion".into()],
    };
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let mut daemon = Daemon::start(folder, "job", &flags);
    // The programs have to know of the folders, too.
    let mut env = Command::new(kakehi());
    env.args(["env", "--json", "--socket"]).arg(&daemon.socket).args(flags);
    let told = succeed(env.current_dir(folder.path()), SOON);
    let told: Value = serde_json::from_str(&told).expect("JSON");
    for (name, value) in told.as_object().expect("an object") {
        daemon.set(name, value.as_str().expect("text"));
    }
    daemon
}

fn extracted(folder: &Folder, name: &str) -> PathBuf {
    let to = folder.join("out");
    let mut extract = Command::new(kakehi());
    succeed(extract.args(["multifile", "extract"]).arg(folder.join(name)).arg(&to), SOON);
    to
}

/// Has a workload run, and somebody be hit. Returns the signals that were sent.
fn strike(rng: &mut fastrand::Rng, kind: Kind, way: Way, victim: Victim) -> u32 {
    let what = format!("{kind:?} {way:?} {victim:?}");
    if kind == Kind::Inserted && python(&what, "inserted").is_none() {
        return 0;
    }
    let _named = Named(&what);
    let mut scene = Scene::new(way);
    let ends = !matches!(victim, Victim::Client | Victim::Both);
    let count = match kind {
        _ if !ends => 0,
        Kind::Bodies => rng.u64(8..30),
        Kind::Inserted => rng.u64(10..60),
        _ => 64 * rng.u64(4..40),
    };
    let record_len = if kind == Kind::Checked { 4096 } else { 8 * rng.usize(2..64) };
    let mut writers = scene.start(kind, count, record_len);
    pause(Duration::from_micros(rng.u64(..30_000)));
    let signals = hit(rng, &mut scene, &writers, victim);
    let struck_at = now();
    for writer in &mut writers {
        let status = writer.running.wait(SOON);
        // It was appending to a file to which others have appended since: that may be in doubt.
        let may_doubt = (kind, way) == (Kind::Shared, Way::Delegate);
        let is_told = victim == Victim::Daemon && (!way.is_local() || may_doubt);
        assert!(!ends || is_told || status.success(), "{what}: {status}: {}", writer.said());
        writer.is_told = is_told && !status.success();
        assert_ne!(status.code(), Some(3), "{what}: {}", writer.said());
    }
    let is_daemon_alive = !matches!(victim, Victim::Daemon | Victim::Both);
    let (_folder, place) = scene.end(is_daemon_alive);
    let told = writers.iter().filter(|writer| writer.is_told && way.is_local()).count();
    assert!(told < writers.len(), "{what}: not all can be in doubt");
    for writer in &mut writers {
        // Of what all are killed over nobody is told.
        writer.torn_max = if victim == Victim::Both { 1 } else { told };
        check(&what, writer, &place, (way, victim), struck_at);
    }
    signals
}

/// Names the cell if a check fails.
struct Named<'a>(&'a str);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            note(self.0);
        }
    }
}

/// Asserts that the files of a writer have what they have to.
fn check(what: &str, writer: &mut Writer, place: &Path, hit: (Way, Victim), struck_at: u64) {
    writer.found_in(place);
    writer.assert_in_order();
    let accepted = writer.accepted();
    let missing = writer.missing(&accepted);
    // What was made durable, or closed, nobody takes with him.
    let is_safe = matches!(writer.kind, Kind::Inserted | Kind::Renamed);
    let age_max = match hit {
        _ if writer.is_told => return,
        _ if is_safe => None,
        (way, Victim::Daemon) if !way.is_local() => return,
        (_, Victim::Both) => Some(LOSS_MAX),
        _ => None,
    };
    let is_old = |at: u64| Some(Duration::from_nanos(struck_at.saturating_sub(at))) > age_max;
    let lost: Vec<_> = missing.iter().filter(|one| is_old(one.at)).collect();
    let (first, last) = (lost.first(), lost.last());
    let counts = (lost.len(), missing.len(), accepted.len());
    assert!(lost.is_empty(), "{what}: {counts:?}: {first:?} to {last:?}");
}

/// Sends the signals; returns how many.
fn hit(rng: &mut fastrand::Rng, scene: &mut Scene, writers: &[Writer], victim: Victim) -> u32 {
    let clients: Vec<_> = writers.iter().map(|writer| writer.running.pid()).collect();
    let pids = match victim {
        Victim::Client => clients,
        Victim::Daemon => vec![scene.daemon.pid()],
        Victim::Both => {
            let mut pids = clients;
            pids.insert(rng.usize(..=pids.len()), scene.daemon.pid());
            pids
        }
        Victim::Server => {
            if let Some(server) = &mut scene.server {
                server.kill_and_restart();
            }
            return 1;
        }
        Victim::Stopped => {
            for _ in 0..STOPS {
                let client = *rng.choice(&clients).expect("one");
                let pid = if rng.bool() { scene.daemon.pid() } else { client };
                // It may have ended.
                kill_process(pid, Signal::STOP).ok();
                pause(Duration::from_micros(rng.u64(..20_000)));
                kill_process(pid, Signal::CONT).ok();
                pause(Duration::from_micros(rng.u64(..2_000)));
            }
            return 2 * STOPS;
        }
    };
    // One that was given a count may have ended before; it has not been waited for.
    pids.iter().for_each(|pid| kill_process(*pid, Signal::KILL).expect("it is there"));
    u32::try_from(pids.len()).expect("few")
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
