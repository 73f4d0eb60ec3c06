//! The program of a case of `kakehi-bench here`: plain calls of the C library, as any program's.

use std::{
    fs::File,
    hint::black_box,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

/// Lengths, bytes.
pub(super) const LINE: usize = 100;
pub(super) const PIECE: usize = 4 << 10;
pub(super) const FILE: usize = 4 << 10;
pub(super) const CHECKPOINT: usize = MIB;
pub(super) const MIB: usize = 1 << 20;
const READ: usize = 64 << 10;

/// The calls of a case.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Args {
    pub(super) verb: Verb,
    pub(super) count: u64,
    pub(super) folder: PathBuf,
    /// How long a computation behind the writes takes.
    pub(super) computation: Duration,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(super) enum Verb {
    Lines,
    Small,
    Files,
    Large,
    Checkpoint,
    Cold,
    Warm,
}

/// Makes the calls; prints the nanoseconds they took.
pub(crate) fn play(args: &Args) -> anyhow::Result<()> {
    let begin = Instant::now();
    let path = args.folder.join("file");
    match args.verb {
        Verb::Lines => drop(write(&path, LINE, args.count)?),
        Verb::Small => drop(write(&path, PIECE, args.count)?),
        Verb::Large => drop(write(&path, CHECKPOINT, args.count)?),
        Verb::Files => {
            for number in 0..args.count {
                write(&args.folder.join(format!("rank.{number:05}")), FILE, 1)?;
            }
        }
        Verb::Checkpoint => {
            let file = write(&path, CHECKPOINT, args.count)?;
            compute(args.computation);
            drop(file);
        }
        Verb::Cold | Verb::Warm => {
            let (mut file, mut bytes) = (File::open(&path)?, vec![0; READ]);
            while file.read(&mut bytes)? > 0 {}
        }
    }
    Ok(writeln!(io::stdout(), "{}", begin.elapsed().as_nanos())?)
}

fn write(path: &Path, len: usize, count: u64) -> io::Result<File> {
    let bytes = vec![b'k'; len];
    let mut file = File::create_new(path)?;
    (0..count).try_for_each(|_| file.write_all(&bytes))?;
    Ok(file)
}

/// Uses the processor for so long.
fn compute(time: Duration) {
    let end = Instant::now() + time;
    let mut sum = 0_u64;
    while Instant::now() < end {
        sum = (0..1000).fold(black_box(sum), |sum, one| sum.wrapping_mul(31).wrapping_add(one));
    }
    black_box(sum);
}
