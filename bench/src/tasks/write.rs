//! Writing: a multifile against what a program would use instead, by one rank and by several.

use std::{
    fs::File,
    io::Write as _,
    path::Path,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use multifile::{Disk, Group as _, NewTask, Options, ParWriter, Style, Writer, group::Threads};

use super::{Effort, Place, Places, spreads};
use crate::{report::Report, spread::Spread, stream::Stream};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Ranks that write together.
const RANKS: u32 = 4;

/// What a multifile is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// `write` on a plain file.
    Plain,
    /// `fwrite` on a stream of the C library.
    Stdio,
    /// Several ranks, each on a file of its own.
    Files,
}

impl Peer {
    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Stdio => "stdio",
            Self::Files => "files",
        }
    }
}

const CASES: [(&str, usize, Peer); 4] = [
    ("1MiB", MIB, Peer::Plain),
    ("4KiB", 4 * KIB, Peer::Stdio),
    ("1MiB", MIB, Peer::Files),
    ("4KiB", 4 * KIB, Peer::Files),
];

/// Measures all cases on both file systems; what is in memory bears the name alone, because a disk
/// tells more of itself than of either side.
pub(super) fn measure(report: &mut Report, places: &Places, effort: &Effort) {
    for (size_name, size, peer) in CASES {
        for (place_name, place) in places.all() {
            let mut count = effort.volume / size;
            if peer == Peer::Files {
                count /= RANKS as usize;
            }
            let data = vec![0x5a; size];
            let times = place.and_then(|place| {
                let round = || round(place, peer, &data, count);
                // The first touches memory that the file system has not had yet.
                round().map_err(|why| format!("{why:#}"))?;
                effort.alternate(effort.rounds, round)
            });
            let [theirs, ours, ratio] = spreads(&times);
            let ranks = if peer == Peer::Files { RANKS as usize } else { 1 };
            let rate = |time: Spread| Spread {
                median: to_rate(size * count * ranks, time.median),
                min: to_rate(size * count * ranks, time.max),
                max: to_rate(size * count * ranks, time.min),
            };
            let peer = peer.name();
            let name = format!("write/{size_name}/{peer}/{place_name}");
            report.row(format!("{name}/{peer}"), "MiB/s", theirs.map(rate));
            report.row(format!("{name}/multifile"), "MiB/s", ours.map(rate));
            report.ratio(name, ratio);
        }
    }
}

/// MiB/s of so many bytes in so many milliseconds.
fn to_rate(bytes: usize, ms: f64) -> f64 {
    bytes as f64 / MIB as f64 / ms * 1e3
}

/// Both sides write `data` so many times, each rank, and close.
fn round(
    place: &Place,
    peer: Peer,
    data: &[u8],
    count: usize,
) -> anyhow::Result<(Duration, Duration)> {
    let path = place.path("written");
    let theirs = match peer {
        Peer::Plain => timed(|| plain(&path, data, count))?,
        Peer::Stdio => timed(|| stdio(&path, data, count))?,
        Peer::Files => {
            together(|group| plain(&path.with_extension(group.rank().to_string()), data, count))?
        }
    };
    remove(place, data.len() * count)?;
    let ours = match peer {
        Peer::Plain | Peer::Stdio => timed(|| multifile(&path, data, count))?,
        Peer::Files => together(|group| share(group, &path, data, count))?,
    };
    remove(place, data.len() * count)?;
    Ok((theirs, ours))
}

fn timed(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

/// From the moment all ranks are ready to the end of the last.
fn together(work: impl Fn(&Threads) -> anyhow::Result<()> + Sync) -> anyhow::Result<Duration> {
    let ready = Barrier::new(RANKS as usize + 1);
    thread::scope(|scope| {
        let ranks = Threads::new(RANKS).into_iter().map(|group| {
            let (ready, work) = (&ready, &work);
            scope.spawn(move || {
                ready.wait();
                work(&group)
            })
        });
        let ranks: Vec<_> = ranks.collect();
        ready.wait();
        timed(|| {
            ranks.into_iter().try_for_each(|rank| match rank.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    })
}

fn plain(path: &Path, data: &[u8], count: usize) -> anyhow::Result<()> {
    let mut file = File::create_new(path)?;
    (0..count).try_for_each(|_| Ok(file.write_all(data)?))
}

fn stdio(path: &Path, data: &[u8], count: usize) -> anyhow::Result<()> {
    let mut stream = Stream::create(path)?;
    (0..count).try_for_each(|_| stream.write(data))?;
    Ok(stream.close()?)
}

/// One task, one chunk: what a program that knows its size asks for.
fn multifile(path: &Path, data: &[u8], count: usize) -> anyhow::Result<()> {
    let tasks = NewTask::in_one_file(&[(data.len() * count) as u64]);
    let mut writer = Writer::create(&Disk::new(), path, &tasks, &Options::default())?;
    let mut task = writer.task(0)?;
    (0..count).try_for_each(|_| task.write(data))?;
    Ok(writer.close()?)
}

/// The same by one rank of several.
fn share(group: &Threads, path: &Path, data: &[u8], count: usize) -> anyhow::Result<()> {
    let rank = group.rank();
    let chunk_len = (data.len() * count) as u64;
    let task = NewTask { file: 0, local_rank: rank, global_rank: rank.into(), chunk_len };
    let options = Options { style: Style::Parallel, ..Options::default() };
    let mut writer = ParWriter::create(group, &Disk::new(), path, task, &options)?;
    let mut task = writer.task(0)?;
    (0..count).try_for_each(|_| task.write(data))?;
    Ok(writer.close(group)?)
}

/// Removes what was written before any of it goes to a disk; it must have been `len` bytes a rank
/// at least.
fn remove(place: &Place, len: usize) -> anyhow::Result<()> {
    let written = place.len()?;
    ensure!(written >= len as u64, "{written} bytes were written, not {len}");
    Ok(place.clear()?)
}
