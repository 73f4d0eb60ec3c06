//! Rate of the cores without a daemon: the same writes, as plain system calls of a thread each.
//!
//! The peak is in a cell of few files that stay in the cache. As many files and buffers as the
//! largest cell has do not: threads that go round them wait for memory, and so does a daemon. How
//! much they lose by that alone is what `scaling/max_cell` is to be compared with.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt as _,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use super::{
    Effort,
    fleet::Disk,
    grid::Place,
    storm::{FILE_LEN, WRITE_LEN},
};
use crate::spread::{Spread, interval};

/// Writes to one file before the next one has its turn: what a lane holds.
const BATCH: usize = 32;

/// Writes a second of the largest cell's files and buffers, by those of one file and one buffer a
/// thread.
pub(super) fn scaling(effort: &Effort, largest: Place, dir: &Path) -> Result<Spread, String> {
    let ratios = (|| -> anyhow::Result<Vec<f64>> {
        let disk = Disk::create(dir, largest.jobs)?;
        let cores = thread::available_parallelism().map_or(1, usize::from).min(largest.jobs);
        let open = |index| Writer::open(&disk, (index..largest.jobs).step_by(cores), largest.depth);
        let mut writers = (0..cores).map(open).collect::<io::Result<Vec<_>>>()?;
        let mut rate = |place| {
            thread::scope(|scope| {
                let run = |writer: &mut Writer| writer.rate(place, effort.turn);
                let start = |writer| scope.spawn(move || run(writer));
                let threads: Vec<_> = writers.iter_mut().map(start).collect();
                let join = |thread: thread::ScopedJoinHandle<'_, io::Result<f64>>| {
                    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
                };
                threads.into_iter().map(join).sum::<io::Result<f64>>()
            })
        };
        let one = Place { jobs: 1, depth: 1 };
        (0..effort.rounds).map(|_| Ok(rate(largest)? / rate(one)?)).collect()
    })();
    let ratios = ratios.map_err(|why| format!("{why:#}"))?;
    interval(ratios).ok_or_else(|| "no round was run".to_owned())
}

/// One thread's part of the files.
struct Writer {
    files: Vec<File>,
    buffers: Vec<u8>,
    random: fastrand::Rng,
}

impl Writer {
    fn open(disk: &Disk, indices: impl Iterator<Item = usize>, depth: usize) -> io::Result<Self> {
        let open = |index| OpenOptions::new().write(true).open(disk.file(index));
        let files = indices.map(open).collect::<io::Result<Vec<_>>>()?;
        let buffers = vec![0x5a; files.len() * depth * WRITE_LEN];
        Ok(Self { files, buffers, random: fastrand::Rng::with_seed(1) })
    }

    /// Goes round the files, of so many jobs at most, a batch each; returns writes a second.
    fn rate(&mut self, place: Place, time: Duration) -> io::Result<f64> {
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
