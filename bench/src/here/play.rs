//! The program of a case of `kakehi-bench here`: plain calls of the C library, as any program's.

use std::{
    fs::File,
    hint::black_box,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Lengths, bytes.
pub(super) const LINE: usize = 100;
pub(super) const PIECE: usize = 4 << 10;
pub(super) const FILE: usize = 4 << 10;
pub(super) const CHECKPOINT: usize = MIB;
pub(super) const MIB: usize = 1 << 20;
const READ: usize = 64 << 10;

/// Makes the calls of a case, for kakehi-bench itself; prints the nanoseconds they took.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    verb: Verb,
    count: u64,
    folder: PathBuf,
    /// How long a computation behind the writes takes.
    #[arg(long, default_value_t = 0)]
    compute_us: u64,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Lines,
    Small,
    Files,
    Large,
    Checkpoint,
    Cold,
    Warm,
}

impl Verb {
    /// How it is called on the command line.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Lines => "lines",
            Self::Small => "small",
            Self::Files => "files",
            Self::Large => "large",
            Self::Checkpoint => "checkpoint",
            Self::Cold => "cold",
            Self::Warm => "warm",
        }
    }
}

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
            compute(Duration::from_micros(args.compute_us));
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
