//! Writing: a multifile against what a program would use instead, by one rank and by several.
//!
//! Chunks are aligned to 1 MiB: the page cache takes what is aligned so in far fewer pieces. A
//! kernel lets one writer at a time into a file, so several ranks write a set of as many physical
//! files; `files/one` is the same with a single one, which is what the lock costs.

use std::{
    fs::File,
    io::Write as _,
    path::Path,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use multifile::{Disk, Group as _, NewTask, Options, ParWriter, Style, Writer, group::Threads};

use super::{Effort, Place, Places, spreads};
use crate::{report::Report, spread::Spread, stream::Stream};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Alignment of chunks.
const ALIGNMENT: u32 = 1 << 20;
/// Ranks that write together.
const RANKS: u32 = 4;

/// Peer of a multifile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// `write` on a plain file.
    Plain,
    /// `fwrite` on a stream of the C library.
    Stdio,
    /// Several ranks, each on a file of its own; the multifile has so many physical files.
    Files { physical: u32 },
}

/// Name, bytes a call, and peer; first those that tell most, `--quick` may not reach the last.
const CASES: [(&str, usize, Peer); 6] = [
    ("1MiB/plain", MIB, Peer::Plain),
    ("4KiB/stdio", 4 * KIB, Peer::Stdio),
    ("1MiB/files", MIB, Peer::Files { physical: RANKS }),
    ("4KiB/files", 4 * KIB, Peer::Files { physical: RANKS }),
    ("1MiB/files/one", MIB, Peer::Files { physical: 1 }),
    ("4KiB/files/one", 4 * KIB, Peer::Files { physical: 1 }),
];

/// One round of a case.
struct Round<'a> {
    place: &'a Place,
    peer: Peer,
    data: &'a [u8],
    count: usize,
}

/// Measures all cases on both file systems. In memory they bear the name alone: a disk tells more
/// of itself than of either side.
pub(super) fn measure(report: &mut Report, places: &Places, effort: &Effort) {
    for (case, size, peer) in CASES {
        let ranks = if matches!(peer, Peer::Files { .. }) { RANKS as usize } else { 1 };
        let count = effort.volume / size / ranks;
        let data = vec![0x5a; size];
        for (suffix, place) in places.memory_first() {
            let name = format!("write/{case}{suffix}");
            let sides = ["native", "multifile"].map(|side| format!("{name}/{side}"));
            if !effort.wants(sides.iter().chain([&name])) {
                continue;
            }
            let times = place.and_then(|place| {
                let round = Round { place, peer, data: &data, count };
                // The first touches memory that the file system has not had yet.
                round.run(0).map_err(|why| format!("{why:#}"))?;
                effort.alternate(effort.rounds_or(effort.write_rounds), |number| round.run(number))
            });
            let [theirs, ours, ratio] = spreads(&times);
            let rate = |ms: f64| (size * count * ranks) as f64 / MIB as f64 / ms * 1e3;
            let rates = |time: Spread| Spread {
                median: rate(time.median),
                min: rate(time.max),
                max: rate(time.min),
            };
            report.row(format!("{name}/native"), "MiB/s", theirs.map(rates));
            report.row(format!("{name}/multifile"), "MiB/s", ours.map(rates));
            report.ratio(name, ratio);
        }
    }
}

impl Round<'_> {
    /// Has both sides write, every other round ours first; the times of theirs and of ours.
    fn run(&self, number: usize) -> anyhow::Result<(Duration, Duration)> {
        if number % 2 == 1 {
            let ours = self.ours()?;
            return Ok((self.theirs()?, ours));
        }
        Ok((self.theirs()?, self.ours()?))
    }

    fn theirs(&self) -> anyhow::Result<Duration> {
        let time = match self.peer {
            Peer::Plain => timed(|| self.plain())?,
            Peer::Stdio => timed(|| self.stdio())?,
            Peer::Files { .. } => self.files()?,
        };
        self.remove().map(|()| time)
    }

    fn ours(&self) -> anyhow::Result<Duration> {
        let time = match self.peer {
            Peer::Plain | Peer::Stdio => timed(|| self.multifile())?,
            Peer::Files { physical } => self.set(physical)?,
        };
        self.remove().map(|()| time)
    }

    fn plain(&self) -> anyhow::Result<()> {
        let mut file = File::create_new(self.place.path("written"))?;
        (0..self.count).try_for_each(|_| Ok(file.write_all(self.data)?))
    }

    fn stdio(&self) -> anyhow::Result<()> {
        let mut stream = Stream::create(&self.place.path("written"))?;
        (0..self.count).try_for_each(|_| stream.write(self.data))?;
        Ok(stream.close()?)
    }

    /// One task, one chunk: what a program that knows its size asks for.
    fn multifile(&self) -> anyhow::Result<()> {
        let tasks = NewTask::in_one_file(&[self.chunk_len()]);
        let path = self.place.path("written");
        let mut writer = Writer::create(&Disk::new(), &path, &tasks, &options(Style::Serial))?;
        let mut task = writer.task(0)?;
        (0..self.count).try_for_each(|_| task.write(self.data))?;
        Ok(writer.close()?)
    }

    fn files(&self) -> anyhow::Result<Duration> {
        let create = |group: &Threads| {
            let path = self.place.path("written").with_extension(group.rank().to_string());
            Ok(File::create_new(path)?)
        };
        let write =
            |file: &mut File| (0..self.count).try_for_each(|_| Ok(file.write_all(self.data)?));
        together(create, write, |_, _| Ok(()))
    }

    fn set(&self, physical: u32) -> anyhow::Result<Duration> {
        let path = self.place.path("written");
        together(
            |group| self.share(group, &path, physical),
            |writer| {
                let mut task = writer.task(0)?;
                (0..self.count).try_for_each(|_| task.write(self.data))?;
                Ok(task.flush()?)
            },
            |writer, group| Ok(writer.close(group)?),
        )
    }

    /// One rank's part of a set of so many physical files.
    fn share(
        &self,
        group: &Threads,
        path: &Path,
        physical: u32,
    ) -> anyhow::Result<ParWriter<Disk>> {
        let (rank, in_each) = (group.rank(), RANKS / physical);
        let (file, local_rank) = (rank / in_each, rank % in_each);
        let chunk_len = self.chunk_len();
        let task = NewTask { file, local_rank, global_rank: rank.into(), chunk_len };
        Ok(ParWriter::create(group, &Disk::new(), path, task, &options(Style::Parallel))?)
    }

    /// Bytes that one rank writes.
    fn chunk_len(&self) -> u64 {
        (self.data.len() * self.count) as u64
    }

    /// Removes what was written before any of it goes to a disk.
    fn remove(&self) -> anyhow::Result<()> {
        let (written, len) = (self.place.len()?, self.chunk_len());
        ensure!(written >= len, "{written} bytes were written, not {len}");
        Ok(self.place.clear()?)
    }
}

fn options(style: Style) -> Options {
    Options { style, fs_block_len: Some(ALIGNMENT), ..Options::default() }
}

fn timed(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

/// Opens on every rank, writes on every rank, closes: timed from the moment that all have opened
/// to the moment that the last has written.
fn together<W>(
    open: impl Fn(&Threads) -> anyhow::Result<W> + Sync,
    write: impl Fn(&mut W) -> anyhow::Result<()> + Sync,
    close: impl Fn(W, &Threads) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<Duration> {
    let ready = Barrier::new(RANKS as usize);
    let times: Vec<_> = thread::scope(|scope| {
        let ranks = Threads::new(RANKS).into_iter().map(|group| {
            let (ready, open, write, close) = (&ready, &open, &write, &close);
            scope.spawn(move || {
                let opened = open(&group);
                ready.wait();
                let start = Instant::now();
                let mut opened = opened?;
                write(&mut opened)?;
                let end = Instant::now();
                close(opened, &group).map(|()| (start, end))
            })
        });
        let ranks: Vec<_> = ranks.collect();
        let times = ranks.into_iter().map(|rank| match rank.join() {
            Ok(times) => times,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        times.collect::<anyhow::Result<_>>()
    })?;
    let first = times.iter().map(|(start, _)| *start).min();
    let last = times.iter().map(|(_, end)| *end).max();
    first.zip(last).map(|(first, last)| last - first).context("no rank")
}
