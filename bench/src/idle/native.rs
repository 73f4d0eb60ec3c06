//! What one thread can do without a daemon: the same writes, as plain system calls.
//!
//! The peak is in a cell of few files that stay in the cache. As many files and buffers as the
//! largest cell has do not: a thread that goes round them waits for memory, and a daemon on one
//! core is such a thread. How much it loses by that alone is what `scaling/max_cell` is to be
//! compared with.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt as _,
    path::Path,
    time::{Duration, Instant},
};

use super::{
    Effort,
    fleet::Disk,
    grid::Place,
    judge::interval,
    storm::{FILE_LEN, WRITE_LEN},
};
use crate::spread::Spread;

/// Writes to one file before the next one has its turn: what a lane holds.
const BATCH: usize = 32;

/// Writes a second of the largest cell's files and buffers, by those of one file and one buffer.
pub(super) fn scaling(effort: &Effort, largest: Place, dir: &Path) -> Result<Spread, String> {
    let ratios = (|| -> anyhow::Result<Vec<f64>> {
        let disk = Disk::create(dir, largest.jobs)?;
        let mut writer = Writer::open(&disk, largest)?;
        let one = Place { jobs: 1, depth: 1 };
        (0..effort.rounds)
            .map(|_| Ok(writer.rate(largest, effort.turn)? / writer.rate(one, effort.turn)?))
            .collect()
    })();
    let ratios = ratios.map_err(|why| format!("{why:#}"))?;
    interval(ratios).ok_or_else(|| "no round was run".to_owned())
}

struct Writer {
    files: Vec<File>,
    buffers: Vec<u8>,
    random: fastrand::Rng,
}

impl Writer {
    fn open(disk: &Disk, largest: Place) -> anyhow::Result<Self> {
        let open = |index| OpenOptions::new().write(true).open(disk.file(index));
        Ok(Self {
            files: (0..largest.jobs).map(open).collect::<Result<_, _>>()?,
            buffers: vec![0x5a; largest.jobs * largest.depth * WRITE_LEN],
            random: fastrand::Rng::with_seed(1),
        })
    }

    /// Goes round the files of so many jobs, a batch each; returns writes a second.
    fn rate(&mut self, place: Place, time: Duration) -> anyhow::Result<f64> {
        let len = self.buffers.len() / self.files.len();
        let (start, mut count) = (Instant::now(), 0);
        for round in 0.. {
            let jobs = self.files.iter().zip(self.buffers.chunks(len)).take(place.jobs);
            for (file, buffers) in jobs {
                let buffers = buffers.chunks(WRITE_LEN).take(place.depth).cycle();
                for buffer in buffers.skip(round * BATCH % place.depth).take(BATCH) {
                    let at = self.random.u64(0..FILE_LEN / WRITE_LEN as u64) * WRITE_LEN as u64;
                    file.write_all_at(buffer, at)?;
                    count += 1;
                }
                if start.elapsed() >= time {
                    return Ok(f64::from(count) / start.elapsed().as_secs_f64());
                }
            }
        }
        Ok(0.0)
    }
}
