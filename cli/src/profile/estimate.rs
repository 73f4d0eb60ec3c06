//! The cost that the same writes would have had without delegation: measured when the job has
//! ended, by writes of the same sizes to the same file system.

use std::{
    fs::File,
    io::{self, Write as _},
    path::Path,
    time::{Duration, Instant},
};

use super::records::{Class, Records};

/// Calls that are made for each size, if their bytes are no more than [`BYTES_MAX`].
const CALLS: u64 = 256;
const BYTES_MAX: u64 = 16 << 20;

/// Times of all processes together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Estimate {
    /// Time that writes and closes took, by those calls that were timed.
    pub(crate) taken: Duration,
    /// Time that they would have taken.
    pub(crate) native: Duration,
    pub(crate) writes: u64,
}

impl Estimate {
    /// `None`: too little was written to say anything, or nothing can be tried where it was.
    pub(super) fn of(records: &Records) -> Option<Self> {
        let folder = records.files.iter().filter(|file| file.written > 0).find_map(|file| {
            let folder = Path::new(&file.path).parent()?;
            // What was there may have been removed, or be below a mapped folder.
            tempfile::tempfile_in(folder).is_ok().then(|| folder.to_owned())
        })?;
        let (mut taken_ns, mut native_ns, mut writes) = (0_u128, 0_u128, 0);
        for class in records.writes.iter().filter(|class| class.timed > 0) {
            let (calls, timed) = (u128::from(class.calls), u128::from(class.timed));
            taken_ns += u128::from(class.timed_ns) * calls / timed;
            native_ns += u128::from(write_ns(&folder, *class).ok()?) * calls;
            writes += class.calls;
        }
        let closes: u64 = records.processes.iter().map(|process| process.closes).sum();
        taken_ns += records.processes.iter().map(|it| u128::from(it.close_ns)).sum::<u128>();
        native_ns += u128::from(close_ns(&folder).ok()?) * u128::from(closes);
        let time = |ns: u128| Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX));
        let estimate = Self { taken: time(taken_ns), native: time(native_ns), writes };
        (writes > 0).then_some(estimate)
    }
}

/// Mean time of a write of the mean size of a class, ns.
fn write_ns(folder: &Path, class: Class) -> io::Result<u64> {
    let size = (class.bytes / class.calls.max(1)).clamp(1, BYTES_MAX);
    let calls = CALLS.min(BYTES_MAX / size).max(4);
    let data = vec![0x5a; usize::try_from(size).unwrap_or(1)];
    let mut file = tempfile::tempfile_in(folder)?;
    let began = Instant::now();
    for _ in 0..calls {
        file.write_all(&data)?;
    }
    Ok(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX) / calls)
}

/// Mean time to close a file that something was written to, ns.
fn close_ns(folder: &Path) -> io::Result<u64> {
    const FILES: u32 = 16;
    let mut time = Duration::ZERO;
    for _ in 0..FILES {
        // One that has a name: a file system may do less for those without.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(b"x")?;
        let (file, path): (File, _) = file.into_parts();
        let began = Instant::now();
        drop(file);
        time += began.elapsed();
        drop(path);
    }
    Ok(u64::try_from((time / FILES).as_nanos()).unwrap_or(u64::MAX))
}
