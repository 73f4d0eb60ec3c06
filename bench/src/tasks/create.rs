//! Creating and closing N task-local files against one multifile of N tasks, by one process.

use std::{
    fs::{self, File},
    path::Path,
    time::{Duration, Instant},
};

use multifile::{Disk, NewTask, Options, Writer};

use super::{Effort, Place, Places, compare};
use crate::report::Report;

/// Numbers of tasks, up to the most that [`Effort`] allows.
const COUNTS: [u32; 5] = [1, 64, 1024, 16_384, 65_536];
/// From this many on, rounds are long.
const MANY: u32 = 16_384;
/// Rounds then.
const ROUNDS_MANY: usize = 5;
/// Bytes that every task asks for in a block.
const CHUNK: u64 = 4096;

/// Measures the smaller numbers: `--quick` may not reach the last.
pub(super) fn measure_fewer(report: &mut Report, places: &Places, effort: &Effort) {
    for count in COUNTS.into_iter().filter(|count| *count < effort.tasks) {
        measure(report, places, effort, count);
    }
}

pub(super) fn measure(report: &mut Report, places: &Places, effort: &Effort, count: u32) {
    let usual = if count >= MANY { ROUNDS_MANY.min(effort.rounds) } else { effort.rounds };
    let rounds = effort.rounds_or(usual);
    for (name, place) in places.all() {
        let case = [format!("create/{count}/{name}")];
        compare(report, effort, &case, place, rounds, |place| round(place, count));
    }
}

fn round(place: &Place, count: u32) -> anyhow::Result<[[Duration; 1]; 2]> {
    let folder = place.path("files");
    let names: Vec<_> = (0..count).map(|task| folder.join(format!("task.{task:05}"))).collect();
    fs::create_dir(&folder)?;
    let start = Instant::now();
    for name in &names {
        drop(File::create_new(name)?);
    }
    let files = start.elapsed();
    place.clear()?;
    // Or the multifile would wait for the journal of thousands of files.
    place.settle()?;
    let path = place.path("multifile");
    let tasks = tasks(count);
    let start = Instant::now();
    create(&path, &tasks)?;
    let multifile = start.elapsed();
    place.clear()?;
    Ok([[files], [multifile]])
}

/// So many tasks that ask for little.
pub(super) fn tasks(count: u32) -> Vec<NewTask> {
    let numbers = (0..count).map(|local_rank| NewTask {
        file: 0,
        local_rank,
        global_rank: local_rank.into(),
        chunk_len: CHUNK,
    });
    numbers.collect()
}

/// Creates and closes a multifile of these tasks.
pub(super) fn create(path: &Path, tasks: &[NewTask]) -> anyhow::Result<()> {
    let writer = Writer::create(&Disk::new(), path, tasks, &Options::default())?;
    Ok(writer.close()?)
}
