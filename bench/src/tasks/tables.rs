//! Results that do not depend on bandwidth: memory, density, collective operations, opening one
//! task.

use std::{
    cell::Cell, env, fs, os::unix::fs::MetadataExt as _, path::Path, process::Command, thread,
    time::Instant,
};

use anyhow::{Context as _, ensure};
use multifile::{
    Disk, Group, NewTask, Options, Packing, ParReader, ParWriter, Style, TaskReader, Writer,
    group::Threads,
    parallel::{BuddyWriter, NewSet},
};

use super::{Effort, Place, Places, create};
use crate::{report::Report, spread::Spread};

const MIB: f64 = 1_048_576.0;
/// Tasks of the multifile whose tasks write little, and what they write and ask for.
const SMALL: (u32, usize, u64) = (1024, 100, 1 << 20);
/// Ranks that open and close together.
const RANKS: u32 = 64;
/// Steps that are counted, in the order of [`together`].
const STEPS: [&str; 4] = ["open", "write", "close", "open/read"];
/// How they open, and what the names of the cases end in then.
const WAYS: [(Way, &str); 4] =
    [(Way::Plain, ""), (Way::Mapped, "/mapped"), (Way::Merge, "/merge"), (Way::Buddy, "/buddy")];
/// Tasks of the smaller multifile of which one task is opened.
const FEW: u32 = 64;
/// Opens in a row that are timed together.
const OPENS: u32 = 200;

/// Measures all of it on the disk.
pub(super) fn measure(report: &mut Report, places: &Places, effort: &Effort) {
    let place = &places.disk;
    let text = |why: anyhow::Error| format!("{why:#}");
    let count = effort.tasks;
    let rss = format!("rss/{count}");
    if effort.wants([&rss]) {
        report.row(rss, "MiB", repeat(effort, || resident(place, count)).map_err(text));
    }
    if effort.wants(["density/small"]) {
        let density = repeat(effort, || density(place)).map_err(text);
        report.row("density/small", "allocated/needed", density.clone());
        report.ratio("density/small", density);
    }
    for (way, suffix) in WAYS {
        let cases = STEPS.map(|step| format!("collectives/{step}{suffix}"));
        if effort.wants(&cases) {
            let calls = collectives(place, way).map_err(text);
            for (index, case) in cases.into_iter().enumerate() {
                let calls = calls.as_ref().map_err(String::clone);
                let calls = calls.map(|calls| f64::from(calls.get(index).copied().unwrap_or(0)));
                let calls = calls.map(|calls| Spread { median: calls, min: calls, max: calls });
                report.row(case, "calls a rank", calls);
            }
        }
    }
    let cases = [FEW, count].map(|count| format!("open_rank/{count}"));
    if effort.wants(&cases) {
        open_rank(report, place, effort, cases);
    }
    // What is left behind by a failure must not stay for the next.
    place.clear().ok();
}

/// A value of every round.
fn repeat(effort: &Effort, measure: impl Fn() -> anyhow::Result<f64>) -> anyhow::Result<Spread> {
    let values = (0..effort.rounds).map(|_| measure()).collect::<anyhow::Result<Vec<_>>>()?;
    Spread::of(values).context("no round was run")
}

/// Peak of a process that creates and closes, MiB.
fn resident(place: &Place, count: u32) -> anyhow::Result<f64> {
    let path = place.path("activated");
    let mut command = Command::new(env::current_exe()?);
    let output = command.arg("activate").arg(count.to_string()).arg(&path).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::remove_file(&path)?;
    let bytes: u64 = String::from_utf8(output.stdout)?.trim().parse()?;
    Ok(bytes as f64 / MIB)
}

/// Allocated bytes of a multifile whose tasks write little, by what they wrote and a file-system
/// block each.
fn density(place: &Place) -> anyhow::Result<f64> {
    let (count, len, chunk) = SMALL;
    let path = place.path("small");
    let tasks = NewTask::in_one_file(&vec![chunk; usize::try_from(count)?]);
    let options = Options { durable: true, ..Options::default() };
    let mut writer = Writer::create(&Disk::new(), &path, &tasks, &options)?;
    for task in 0..tasks.len() {
        writer.task(task)?.write(&vec![b'x'; len])?;
    }
    let fs_block_len = u64::from(writer.fs_block_len());
    writer.close()?;
    let allocated = fs::metadata(&path)?.blocks() * 512;
    fs::remove_file(&path)?;
    let needed = u64::from(count) * (len as u64 + fs_block_len);
    Ok(allocated as f64 / needed as f64)
}

/// Counts the collective operations of one rank.
#[derive(Debug)]
struct Counted {
    group: Threads,
    calls: Cell<u32>,
}

impl Counted {
    fn count<T>(&self, result: multifile::Result<T>) -> multifile::Result<T> {
        self.calls.set(self.calls.get() + 1);
        result
    }
}

impl Group for Counted {
    fn rank(&self) -> u32 {
        self.group.rank()
    }

    fn size(&self) -> u32 {
        self.group.size()
    }

    fn gather(&self, mine: &[u8]) -> multifile::Result<Vec<u8>> {
        self.count(self.group.gather(mine))
    }

    fn scatter(&self, all: &[u8], mine: &mut [u8]) -> multifile::Result<()> {
        self.count(self.group.scatter(all, mine))
    }

    fn broadcast(&self, bytes: &mut [u8]) -> multifile::Result<()> {
        self.count(self.group.broadcast(bytes))
    }

    fn barrier(&self) -> multifile::Result<()> {
        self.count(self.group.barrier())
    }
}

/// How ranks open a multifile together.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// One task for each rank.
    Plain,
    /// Two tasks for each rank.
    Mapped,
    /// Ranks' data goes to the streams of some of them.
    Merge,
    /// Two physical files, each with a copy.
    Buddy,
}

/// The most operations of any rank for each of [`STEPS`].
fn collectives(place: &Place, way: Way) -> anyhow::Result<[u32; 4]> {
    let path = place.path("together");
    let ranks: Vec<_> = thread::scope(|scope| {
        let ranks = Threads::new(RANKS).into_iter();
        let ranks: Vec<_> =
            ranks.map(|group| scope.spawn(|| together(group, &path, way))).collect();
        ranks.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let mut most = [0; 4];
    for calls in ranks {
        let calls = calls.map_err(|_| anyhow::anyhow!("a rank panicked"))??;
        for (most, calls) in most.iter_mut().zip(calls) {
            *most = calls.max(*most);
        }
    }
    place.clear()?;
    Ok(most)
}

/// Creates, writes, closes, and opens to read; counts each.
fn together(group: Threads, path: &Path, way: Way) -> multifile::Result<[u32; 4]> {
    let group = Counted { group, calls: Cell::new(0) };
    let (rank, disk, calls) = (group.rank(), Disk::new(), || group.calls.take());
    // More blocks than fit a record are no reason for another call.
    let data = vec![7; if rank == 1 { 300 } else { 1 } * 4096];
    let task = |file, local_rank| {
        let global_rank = i64::from(local_rank + file * RANKS / 2);
        NewTask { file, local_rank, global_rank, chunk_len: 4096 }
    };
    if let Way::Buddy = way {
        let task = task(rank / (RANKS / 2), rank % (RANKS / 2));
        let options = &Options { style: Style::Parallel, ..Options::default() };
        let set = NewSet { storage: &disk, path, options };
        let mut writer = BuddyWriter::create(&group, set, 1, task)?;
        let open = calls();
        writer.write(&data)?;
        let write = calls();
        writer.close(&group)?;
        let close = calls();
        ParReader::open_with_buddies(&group, &disk, path, 1, |_| Ok(()))?;
        return Ok([open, write, close, calls()]);
    }
    let (style, packing) = match way {
        Way::Mapped => (Style::Mapped, Packing::Aligned),
        Way::Merge => (Style::Parallel, Packing::Merge { size: None }),
        Way::Plain | Way::Buddy => (Style::Parallel, Packing::Aligned),
    };
    let options = Options { style, packing, ..Options::default() };
    let wanted = [2 * rank, 2 * rank + 1];
    let mut writer = match way {
        Way::Mapped => {
            let tasks = wanted.map(|local_rank| task(0, local_rank));
            ParWriter::create_mapped(&group, &disk, path, &tasks, &options)?
        }
        _ => ParWriter::create(&group, &disk, path, task(0, rank), &options)?,
    };
    let open = calls();
    match way {
        Way::Merge => writer.write_merged(&group, &data)?,
        _ => writer.task(0)?.write(&data)?,
    }
    let write = calls();
    writer.close(&group)?;
    let close = calls();
    match way {
        Way::Mapped => ParReader::open_mapped(&group, &disk, path, &wanted, |_| Ok(()))?,
        _ => ParReader::open(&group, &disk, path)?,
    };
    Ok([open, write, close, calls()])
}

/// Opening the last task alone must not depend on how many there are.
fn open_rank(report: &mut Report, place: &Place, effort: &Effort, [few, many]: [String; 2]) {
    let made = [FEW, effort.tasks].map(|count| {
        let path = place.path(&format!("open{count}"));
        create::create(&path, &create::tasks(count)).map(|()| (path, count - 1))
    });
    let [Ok(small), Ok(large)] = made else {
        report.row(many, "us", Err("the multifiles could not be made".to_owned()));
        return;
    };
    let open = |(path, task): &(std::path::PathBuf, u32)| -> multifile::Result<f64> {
        let start = Instant::now();
        for _ in 0..OPENS {
            TaskReader::open(&Disk::new(), path, *task)?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(OPENS))
    };
    let times = (0..effort.rounds).map(|_| Ok((open(&small)?, open(&large)?)));
    let times: Result<Vec<_>, String> =
        times.collect::<multifile::Result<_>>().map_err(|why| why.to_string());
    let of = |value: &dyn Fn(&(f64, f64)) -> f64| {
        let times = times.as_ref().map_err(String::clone)?;
        Spread::of(times.iter().map(value)).ok_or_else(|| "no round was run".to_owned())
    };
    report.row(few, "us", of(&|times| times.0));
    report.row(many.clone(), "us", of(&|times| times.1));
    report.ratio(many, of(&|times| times.1 / times.0));
}
