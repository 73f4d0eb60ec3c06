//! Kills in the middle of transfers, of a client with its programs or of a server: the other side
//! notices in time, and serves all others.
//!
//! Over UCX, as it is shipped, no keep-alive helps: the end of the stream beside the messages has
//! to. And what is killed within a message leaves the server's worker deaf.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{
    LONG, local,
    server::{Scheme, Server},
};
use crate::harness::{
    Folder, Running, SOON, kakehi, note, pause, processes_of, program, random, succeed, wait_for,
};

/// Within which a server lets go of a killed client's connection and serves another, and a client
/// tells its program that a server stays away.
const NOTICED_MAX: Duration = Duration::from_secs(10);
/// Within which a client that is not heard any more has come again.
const HEARD_MAX: Duration = Duration::from_secs(20);
/// Transfers that a program may have under way, one for each of its processes, and some more.
const UNDER_WAY: u64 = 12;
/// Growth of a server's memory after the first kill, however many follow: less than the buffers of
/// a UCX worker.
const GROWTH_MAX: u64 = 12 << 20;
/// Descriptors and segments by which it may: two clients that come at a time may be on one UCX
/// worker or on two.
const OTHERS_GROWTH_MAX: usize = 16;

pub(super) fn killed_client_is_let_go_of_and_others_are_served(scheme: Scheme) {
    crate::views::needs_view!();
    let folder = Folder::alone();
    let server = Server::start(&folder, scheme);
    kill_clients(&folder, &server, 5);
    server.end();
}

/// Few kills hit the middle of a message.
pub(super) fn a_hundred_killed_clients_leave_a_server_nothing(scheme: Scheme) {
    let folder = Folder::alone();
    let server = Server::start(&folder, scheme);
    let first = kill_clients(&folder, &server, 100);
    let is_over = |held: Held| held.files == 0 && held.others < first.others + OTHERS_GROWTH_MAX;
    assert!(wait_for(LONG, || is_over(held(&server))), "{first:?}, {:?}", held(&server));
    server.end();
}

pub(super) fn server_killed_in_the_middle_of_transfers_is_noticed(scheme: Scheme) {
    let folder = Folder::alone();
    let mut server = Server::start(&folder, scheme);
    let mut rng = random("a server killed in transfers");
    for _ in 0..3 {
        let mut job = Job::start(&folder, &server, "job", |command| {
            command.env("KAKEHI_REMOTE_TIMEOUT", "1s");
        });
        job.goes_on(SOON);
        pause(Duration::from_micros(rng.u64(0..100_000)));
        server.kill();
        let killed = Instant::now();
        assert_eq!(job.running.wait(SOON).code(), Some(1), "{}", job.said());
        let time = killed.elapsed();
        note(format_args!("{scheme}: a job has ended {time:.1?} after its server"));
        assert!(time < NOTICED_MAX, "{time:?}");
        assert!(job.said().contains("Input/output error"), "{}", job.said());
        server.restart();
    }
    server.end();
}

/// Kills so many clients, one after another. Returns what the server held after the first.
#[track_caller]
fn kill_clients(folder: &Folder, server: &Server, rounds: usize) -> Held {
    let mut rng = random("clients killed in transfers");
    let (mut longest, mut first) = ([Duration::ZERO; 3], None);
    for round in 0..rounds {
        let wait = Duration::from_micros(rng.u64(0..100_000));
        let times = kill_client(folder, server, wait, round % 2 == 1);
        longest.iter_mut().zip(times).for_each(|(longest, time)| *longest = time.max(*longest));
        first.get_or_insert_with(|| held(server));
    }
    let (first, last) = (first.expect("a round"), held(server));
    let [noticed, served, heard] = longest;
    note(format_args!(
        "{rounds} kills: noticed after {noticed:.1?}, new clients served after {served:.1?}, \
         others heard after {heard:.1?}; {} MiB, then {} MiB resident",
        first.rss_bytes >> 20,
        last.rss_bytes >> 20
    ));
    assert!(noticed.max(served) < NOTICED_MAX && heard < HEARD_MAX, "{longest:?}");
    assert!(last.rss_bytes < first.rss_bytes + GROWTH_MAX, "{first:?}, {last:?}");
    // A client that may come back keeps its files, and the ledger of its session.
    assert!(last.others <= first.others + rounds + OTHERS_GROWTH_MAX, "{first:?}, {last:?}");
    assert!(last.segments <= first.segments + OTHERS_GROWTH_MAX, "{first:?}, {last:?}");
    first
}

/// Kills a client beside another that may be on the same worker of the server; one that `stops`
/// leaves what the server sends to it until it is killed. Returns how long after that the server
/// had let go of its connections, served a new client, and heard the other.
#[track_caller]
fn kill_client(folder: &Folder, server: &Server, wait: Duration, stops: bool) -> [Duration; 3] {
    let other = Job::start(folder, server, "other", |_| ());
    other.goes_on(SOON);
    let before = sockets(server);
    let victim = Job::start(folder, server, "victim", |_| ());
    victim.goes_on(SOON);
    let its: Vec<_> = sockets(server).difference(&before).cloned().collect();
    assert!(!its.is_empty() && held(server).files > 0, "{its:?}: nothing is open");
    if stops {
        victim.stop_daemon();
    }
    pause(wait);
    let killed = Instant::now();
    victim.kill();
    let times = thread::scope(|scope| {
        let served = scope.spawn(|| {
            serve_one_more(folder, server);
            killed.elapsed()
        });
        let heard = scope.spawn(|| {
            other.goes_on(LONG);
            killed.elapsed()
        });
        let is_let_go = || its.iter().all(|socket| !sockets(server).contains(socket));
        assert!(wait_for(LONG, is_let_go), "{its:?} of {:?}", held(server));
        let noticed = killed.elapsed();
        [noticed, served.join().expect("served"), heard.join().expect("heard")]
    });
    other.end();
    let has_none = || connections(folder, server) == 0;
    assert!(wait_for(SOON, has_none), "{} are connected", connections(folder, server));
    times
}

/// A program at its transfers, with a daemon of its own.
struct Job {
    running: Running,
    folder: PathBuf,
}

impl Job {
    #[track_caller]
    fn start(folder: &Folder, server: &Server, name: &str, set: impl FnOnce(&mut Command)) -> Self {
        // Every process of the job names it.
        let own = folder.join(name);
        fs::create_dir_all(&own).expect("folder");
        let log = fs::File::create(own.join("log")).expect("log");
        let progress = own.join("progress");
        fs::write(&progress, "").expect("progress");
        let mut command = server.run(folder);
        command.env("XDG_RUNTIME_DIR", &own).arg(program("transfers"));
        command.arg(local(folder).join(name)).arg(progress);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        set(&mut command);
        Self { running: Running::start(&mut command), folder: own }
    }

    /// Transfers that were done.
    fn progress(&self) -> u64 {
        let bytes = fs::read(self.folder.join("progress")).expect("progress");
        let counts = bytes.chunks_exact(8).filter_map(|count| count.first_chunk());
        counts.map(|count| u64::from_le_bytes(*count)).sum()
    }

    /// More transfers are done from now on than were under way.
    #[track_caller]
    fn goes_on(&self, time: Duration) {
        let before = self.progress();
        let is_done = wait_for(time, || self.progress() > before + UNDER_WAY);
        assert!(is_done, "no progress after {before}: {}", self.said());
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.join("log")).expect("log")
    }

    #[track_caller]
    fn end(mut self) {
        drop(self.running.child.stdin.take());
        let status = self.running.wait(SOON);
        assert!(status.success(), "{status}: {}", self.said());
    }

    fn stop_daemon(&self) {
        let is_daemon = |(_, arguments): &(i32, String)| arguments.contains(" serve ");
        let daemon = processes_of(&self.folder).into_iter().find(is_daemon).expect("a daemon");
        kill_process(Pid::from_raw(daemon.0).expect("a process"), Signal::STOP).expect("stopped");
    }

    /// Kills all of it at once, and the daemon first: it would end in order without the others. As
    /// often as there is one that has just been started.
    #[track_caller]
    fn kill(mut self) {
        let kill = || {
            let mut all = processes_of(&self.folder);
            all.sort_by_key(|(_, arguments)| !arguments.contains(" serve "));
            for (pid, _) in &all {
                let pid = Pid::from_raw(*pid).expect("a process");
                kill_process(pid, Signal::KILL).ok(); // It may be gone.
            }
            all
        };
        let all = kill();
        assert!(all.first().is_some_and(|(_, name)| name.contains(" serve ")), "{all:?}");
        self.running.wait(SOON);
        assert!(wait_for(SOON, || kill().is_empty()), "{:?}", processes_of(&self.folder));
    }
}

/// A client that comes once.
#[track_caller]
fn serve_one_more(folder: &Folder, server: &Server) {
    let own = folder.join("one");
    fs::create_dir_all(&own).expect("folder");
    let mut command = server.run(folder);
    command.env("XDG_RUNTIME_DIR", own).args(["sh", "-c", "echo x >\"$0\"; cat \"$0\""]);
    assert_eq!(succeed(command.arg(local(folder).join("one")), LONG), "x\n");
}

/// Files and mappings of a server.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// Of its root.
    files: usize,
    others: usize,
    /// Memory that UCX shares with peers.
    segments: usize,
    rss_bytes: u64,
}

#[track_caller]
fn held(server: &Server) -> Held {
    let (files, others): (Vec<_>, Vec<_>) =
        links(server).into_iter().partition(|link| link.starts_with(server.job()));
    let maps = fs::read_to_string(format!("/proc/{}/maps", server.running.child.id()));
    let segments = maps.expect("maps").lines().filter(|line| line.contains("/SYSV")).count();
    Held { files: files.len(), others: others.len(), segments, rss_bytes: server.rss_bytes() }
}

fn sockets(server: &Server) -> BTreeSet<PathBuf> {
    let is_socket = |link: &PathBuf| link.to_string_lossy().starts_with("socket:");
    links(server).into_iter().filter(is_socket).collect()
}

/// Returns the targets of the server's descriptors.
#[track_caller]
fn links(server: &Server) -> Vec<PathBuf> {
    let fds = fs::read_dir(format!("/proc/{}/fd", server.running.child.id()));
    // One may be closed meanwhile.
    fds.expect("descriptors").flatten().filter_map(|fd| fs::read_link(fd.path()).ok()).collect()
}

/// Connections that the server says it has.
#[track_caller]
fn connections(folder: &Folder, server: &Server) -> u64 {
    let socket = folder.join("kakehi").join(server.running.child.id().to_string());
    let mut command = Command::new(kakehi());
    let status = succeed(command.args(["status", "--json", "--socket"]).arg(socket), SOON);
    let status: Value = serde_json::from_str(&status).expect("JSON");
    status["serving"]["connections"].as_u64().expect("a number")
}
