//! A server that many processes stream into: `kakehi run --remote` into `kakehi serve`, both as a
//! user starts them, on one machine.
//!
//! The best that a server can reach, after chapter 3 of the 2024 thesis, follows from what as many
//! processes stream into a program that drops everything, and from what they write to the file
//! system itself:
//!
//! `limit = min(receive, write, 1 / (CPU time of receive + CPU time of write))`
//!
//! CPU time is the receiver's, without those who send, and the writers'. On one machine the clients
//! and their daemon take cores from the server, and the sender alone from the receiver.

use std::{
    ffi::OsStr,
    fs,
    io::{self, ErrorKind, Read as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::fd::AsFd as _,
    path::Path,
    process::Command,
    thread,
    time::Instant,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    time::{ClockId, clock_gettime},
};

use super::{
    volumes::{Volume, succeed},
    whole::{Extent, IDLE, Setting, Tools},
};
use crate::{
    kakehi::{Daemon, Environment},
    options::{Only, size_name},
    process::cpu_of_children,
    report::Report,
    rounds::{Rounds, spread},
    scratch::Scratch,
    spread::Spread,
};

const PREFIX: &str = "serve";
const CLIENTS: u64 = 16;
const SIZES: [u64; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Bytes of a client and a run.
const VOLUME: u64 = 48 << 20;
/// Bytes that are received at a time.
const PIECE: usize = 1 << 20;

/// A server of a folder, and the daemon of a job whose mapped folder it is.
struct Pair {
    /// Ends first, or it would miss its server.
    job: Daemon,
    server: Daemon,
    environment: Environment,
    scratch: Scratch,
}

/// Work of each client.
#[derive(Clone, Copy)]
struct Load {
    /// By a call.
    size: u64,
    /// In all.
    bytes: u64,
}

impl Load {
    /// Of all clients together.
    fn megabytes(self) -> f64 {
        (self.bytes * CLIENTS) as f64 / 1e6
    }
}

/// One run.
#[derive(Clone, Copy)]
struct Sample {
    /// MB/s.
    rate: f64,
    /// CPU seconds of an MB.
    cpu: f64,
}

/// A round.
struct Round {
    kakehi: Sample,
    receive: Sample,
    write: Sample,
}

impl Round {
    /// MB of a CPU second that receives and writes, and nothing else.
    fn core(&self) -> f64 {
        1.0 / (self.receive.cpu + self.write.cpu)
    }

    fn limit(&self) -> f64 {
        self.receive.rate.min(self.write.rate).min(self.core())
    }
}

/// True if any case is to be measured.
pub(super) fn is_wanted(only: &Only) -> bool {
    SIZES.iter().any(|size| only.wants([name_of(*size)]))
}

fn name_of(size: u64) -> String {
    format!("{PREFIX}/{}", size_name(usize::try_from(size).unwrap_or(usize::MAX)))
}

/// Measures every size on every volume that is a disk's.
pub(super) fn measure(report: &mut Report, with: &Setting<'_>) {
    let Setting { only, tools, volumes, extent } = with;
    for volume in volumes.all.iter().filter(|volume| volume.name != "tmpfs") {
        if !is_wanted(only) {
            break;
        }
        let pair = volume.folder.clone().and_then(|folder| Pair::start(&folder));
        let mut is_used = false;
        for size in SIZES.into_iter().filter(|size| only.wants([name_of(*size)])) {
            let ready = pair.as_ref().and_then(|pair| Ok((pair, tools.as_ref()?)));
            let ready = ready.map_err(String::clone);
            let load = Load { size, bytes: VOLUME / extent.divisor / size * size };
            let rounds = ready.and_then(|(pair, tools)| pair.rounds(tools, volume, load, extent));
            is_used |= rounds.is_ok();
            say(report, &format!("{}/{}", name_of(size), volume.name), &rounds);
        }
        if let (Ok(pair), true) = (&pair, is_used) {
            let peak = pair.server.peak_memory().map_err(|why| format!("{why:#}"));
            let peak = peak.and_then(|mib| Spread::of([mib]).ok_or_else(String::new));
            report.row(format!("{PREFIX}/memory/{}", volume.name), "MiB", peak);
        }
    }
}

impl Pair {
    fn start(root: &Path) -> Result<Self, String> {
        let scratch = Scratch::create().map_err(|why| why.to_string())?;
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
        let address = free.map_err(|why| why.to_string())?;
        let (url, key) = (format!("tcp://{address}"), scratch.path().join("key"));
        let local = scratch.path().join("to");
        fs::create_dir(&local).map_err(|why| why.to_string())?;
        let map = format!("{}=/", local.display());
        let (url, key) = (OsStr::new(&url), key.as_os_str());
        let start = |flags: &[(&str, &OsStr)]| {
            Daemon::start_with(IDLE, None, &[], flags).map_err(|why| format!("{why:#}"))
        };
        let server = start(&[("--listen", url), ("--root", root.as_os_str()), ("--key", key)])?;
        let mapped = [("--remote", url), ("--key", key), ("--map", OsStr::new(&map))];
        let job = start(&mapped)?;
        let environment = job.environment_with(&mapped).map_err(|why| format!("{why:#}"))?;
        Ok(Self { job, server, environment, scratch })
    }

    /// Every side in turn, after one round that is not counted.
    fn rounds(&self, tools: &Tools, volume: &Volume, load: Load, extent: &Extent) -> Rounds<Round> {
        let mut rounds = Vec::new();
        for round in 0..=extent.rounds {
            match extent.end.check() {
                Err(why) if rounds.is_empty() => return Err(why),
                Err(_) => break,
                Ok(()) => {}
            }
            let kakehi = self.stream(tools, load)?;
            let receive = receive(tools, load)?;
            let file = volume.folder.as_ref()?.join("file");
            let write = write(tools, load, &file, &Environment::new())?;
            if round > 0 {
                rounds.push(Round { kakehi, receive, write });
            }
        }
        Ok(rounds)
    }

    fn stream(&self, tools: &Tools, load: Load) -> Result<Sample, String> {
        let cpu = || self.server.cpu_time().map_err(|why| format!("{why:#}"));
        let delegated = || self.job.bytes_delegated().map_err(|why| format!("{why:#}"));
        let (file, before) = (self.scratch.path().join("to/file"), (cpu()?, delegated()?));
        let written = write(tools, load, &file, &self.environment)?;
        let servers = cpu()?.saturating_sub(before.0);
        let (moved, all) = (delegated()?.saturating_sub(before.1), load.bytes * CLIENTS);
        if moved < all {
            return Err(format!("{moved} of {all} bytes went through the library"));
        }
        Ok(Sample { cpu: servers.as_secs_f64() / load.megabytes(), ..written })
    }
}

/// Has the processes write their files, and removes those.
fn write(
    tools: &Tools,
    load: Load,
    file: &Path,
    environment: &Environment,
) -> Result<Sample, String> {
    let mut command = tools.calls("write")?;
    command.args([load.size, load.bytes, CLIENTS].map(|number| number.to_string())).arg(file);
    let (before, start) = (cpu_of_children(), Instant::now());
    succeed(command.envs(environment))?;
    let (time, cpu) = (start.elapsed(), cpu_of_children().saturating_sub(before));
    let mut remove = Command::new("sh");
    remove.args(["-c", "rm -f \"$0\".*"]).arg(file).envs(environment);
    succeed(&mut remove)?;
    let (rate, cpu) = (load.megabytes() / time.as_secs_f64(), cpu.as_secs_f64() / load.megabytes());
    Ok(Sample { rate, cpu })
}

/// Has the processes stream into a thread that drops everything. CPU time is that thread's.
fn receive(tools: &Tools, load: Load) -> Result<Sample, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|why| why.to_string())?;
    let address = listener.local_addr().map_err(|why| why.to_string())?;
    let mut command = tools.calls("send")?;
    command.args(
        [load.size, load.bytes, CLIENTS, address.port().into()].map(|number| number.to_string()),
    );
    thread::scope(|scope| {
        let start = Instant::now();
        let receiver = scope.spawn(move || drop_all(&listener));
        succeed(&mut command)?;
        let received = receiver.join().map_err(|_| "the receiver panicked".to_owned())?;
        let wanted = load.bytes * CLIENTS;
        match received {
            Ok((received, cpu)) if received == wanted => {
                let rate = load.megabytes() / start.elapsed().as_secs_f64();
                Ok(Sample { rate, cpu: cpu / load.megabytes() })
            }
            Ok((received, _)) => Err(format!("{received} of {wanted} bytes were received")),
            Err(why) => Err(why.to_string()),
        }
    })
}

/// Receives from all clients in turn until each has closed. Returns the number of bytes, and CPU
/// seconds.
fn drop_all(listener: &TcpListener) -> io::Result<(u64, f64)> {
    let mut streams: Vec<TcpStream> = Vec::new();
    for _ in 0..CLIENTS {
        let (stream, _) = listener.accept()?;
        stream.set_nonblocking(true)?;
        streams.push(stream);
    }
    let (mut piece, mut received) = (vec![0; PIECE], 0);
    while !streams.is_empty() {
        let mut polled: Vec<_> = streams
            .iter()
            .map(|stream| PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN))
            .collect();
        poll(&mut polled, None)?;
        let ready: Vec<_> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
        let mut at = 0..;
        let mut failed = None;
        streams.retain_mut(|stream| {
            let is_ready = at.next().and_then(|at: usize| ready.get(at)).copied().unwrap_or(false);
            match is_ready.then(|| stream.read(&mut piece)) {
                None => true,
                Some(Ok(len)) => {
                    received += len as u64;
                    len > 0
                }
                Some(Err(why)) if why.kind() == ErrorKind::WouldBlock => true,
                Some(Err(why)) => {
                    failed = Some(why);
                    false
                }
            }
        });
        if let Some(why) = failed {
            return Err(why);
        }
    }
    let cpu = clock_gettime(ClockId::ThreadCPUTime);
    Ok((received, cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9))
}

fn say(report: &mut Report, name: &str, rounds: &Rounds<Round>) {
    let spread = |value: fn(&Round) -> f64| spread(rounds, value);
    if rounds.is_err() {
        report.row(name, "MB/s", spread(|round| round.kakehi.rate));
        return;
    }
    report.row(format!("{name}/kakehi"), "MB/s", spread(|round| round.kakehi.rate));
    report.row(format!("{name}/receive"), "MB/s", spread(|round| round.receive.rate));
    report.row(format!("{name}/write"), "MB/s", spread(|round| round.write.rate));
    report.row(format!("{name}/core"), "MB/s", spread(Round::core));
    report.ratio(format!("{name}:limit"), spread(|round| round.kakehi.rate / round.limit()));
    report.ratio(format!("{name}:core"), spread(|round| 1.0 / round.kakehi.cpu / round.core()));
}
