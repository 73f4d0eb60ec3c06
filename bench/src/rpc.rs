//! `kakehi-bench rpc`: a client streams packets to a server that writes them, after chapter 3 of
//! the 2024 thesis; what its one thread reaches, against what network and storage allow.
//!
//! The rows and their yardsticks `limit` and `bound` are explained in docs/reference/bench.md.
//!
//! CPU time is here what the server's core was busy with, on which it is kept: a process is told
//! its own time and that of the interrupts that found it running, but nobody's of those that found
//! the core idle, as most do in `file`, and of the kernel threads that complete writes. In
//! `integrated` one core does it all. Where no core is kept, CPU time is the process's. Without
//! root the kernel tells idle time in hundredths of a second, so `--quick` is then imprecise.
//!
//! The file is there before, in its whole length, and is written over and over from its start,
//! past the page cache where the file system can. All programs speak `packet`. A round runs every
//! program once, each in processes of its own, client and server on a core each, and the next round
//! in the opposite order. What is compared is measured side by side, and fio's best depth is the
//! one whose median is. Where programs wait, they sleep: CPU times are of work alone, and the rates
//! need a machine with nothing else to do.
//!
//! Under `--transport ucx` packets are UCX messages, which go through shared memory here. The peers
//! speak TCP only, `bound` leaves the bare stream out, and `connections` are TCP's.
//!
//! In `connections` all clients together have at most 1,536 packets on the way: each its share, or
//! 64 if that is more, for which it then waits in line. The buffers of these packets, and the
//! stages of what is received ahead, all clients share, and they take turns to be received from.

mod answers;
mod cells;
mod client;
mod crowds;
mod intake;
mod packet;
#[cfg(feature = "peers")]
mod peers;
mod psync;
mod run;
mod server;
pub(crate) mod side;
mod ucx;

use self::packet::Transport;

use std::{path::PathBuf, time::Duration};

use crate::{
    files::TestFiles,
    machine::{self, Cores, Machine},
    options::{Common, Deadline, Only},
    report::Report,
};

/// When the last case of `--quick` begins.
const QUICK: Duration = Duration::from_secs(45);

/// Measures a server that receives and writes in one thread, against network and storage alone.
///
/// Without --quick it moves 10 GiB at each point, and an eighth of that by blocking calls to a
/// disk. The thesis moved 128 GiB, and 16 GiB in small packets.
///
/// Ratios are our rate by the other's: more than 1 is faster. Exit status: 0, also when a case was
/// skipped; 1 when nothing could be measured; 2 when an argument is wrong.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Folder for the file that is written.
    #[arg(long, value_name = "DIR", default_value = ".", value_parser = machine::folder)]
    dir: PathBuf,
    /// Transport of the packets.
    #[arg(long, default_value = "tcp")]
    transport: Transport,
}

/// How much is measured.
#[derive(Clone, Debug)]
struct Effort {
    only: Only,
    rounds: usize,
    /// Bytes a run moves. For its first 100 MiB a virtual disk's host is slower, and so is the
    /// core: it takes a run of 256 MiB a tenth longer for each byte than one of 1 GiB.
    volume: u64,
    /// Bytes of the one long run in which memory might grow: in packets of less than 32 KiB, and in
    /// others.
    long_volumes: [u64; 2],
    /// Length of the file.
    span: u64,
    /// Depths that fio tries: in packets of less than 32 KiB, and in others.
    depths: [&'static [u32]; 2],
    /// No case is begun after this.
    end: Deadline,
}

impl Effort {
    /// The whole bench moves 10 GiB at each point; the thesis moved 128 GiB, and 16 GiB in small
    /// packets. It does so in several rounds, since the machine is not the same from one second to
    /// the next.
    fn of(args: &Args) -> Self {
        let (only, span) = (args.common.only(), 256 << 20);
        let end = args.common.end(QUICK, QUICK);
        if args.common.quick {
            let volume = 256 << 20;
            let depths: [&[u32]; 2] = [&[64], &[16]];
            let rounds = args.common.rounds_or(3);
            Self { only, rounds, volume, long_volumes: [volume; 2], span, depths, end }
        } else {
            let depths: [&[u32]; 2] = [&[16, 64, 128, 256], &[4, 16, 64, 128]];
            let (volume, long_volumes) = (1 << 30, [1 << 30, 4 << 30]);
            let rounds = args.common.rounds_or(10);
            Self { only, rounds, volume, long_volumes, span, depths, end }
        }
    }

    fn depths(&self, size: usize) -> &'static [u32] {
        Self::by_size(self.depths, size)
    }

    fn by_size<T>([small, large]: [T; 2], size: usize) -> T {
        if size < 32 << 10 { small } else { large }
    }
}

/// Runs the bench and prints what it found.
pub(crate) fn rpc(args: &Args) -> anyhow::Result<()> {
    let cores = Cores::find();
    let effort = Effort::of(args);
    let machine = Machine { idle: "park", ..Machine::with(cores, &args.dir) };
    let mut report = Report::new("rpc", machine, effort.rounds);
    let transport = args.transport;
    match if transport == Transport::Ucx { ucx::probe() } else { Ok(()) } {
        Ok(()) => {
            let places = TestFiles::create(&args.dir, effort.span)?;
            cells::measure(&effort, &places, cores, transport, &mut report);
        }
        Err(why) => cells::skip(&mut report, &effort, &why),
    }
    report.publish(&args.common)
}
