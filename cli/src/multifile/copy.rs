//! Moving bytes with all cores and little memory.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    num::NonZero,
    os::unix::fs::FileExt as _,
    path::Path,
    sync::{Mutex, PoisonError},
    thread,
};

use super::{file_failure, progress::Progress};
use crate::failure::{Code, Failure};

/// Largest number of threads: more do not make a file system faster.
const THREADS_MAX: usize = 8;
/// Bytes moved by one call.
const BUFFER_LEN: u64 = 1 << 20;

/// Does every job with as many threads as there are cores; the results are in any order. The first
/// failure ends all of them.
pub(crate) fn in_parallel<T: Send, U: Send>(
    jobs: impl Iterator<Item = T> + Send,
    work: impl Fn(T) -> Result<U, Failure> + Sync,
) -> Result<Vec<U>, Failure> {
    let jobs = Mutex::new(Some(jobs));
    let take = || jobs.lock().unwrap_or_else(PoisonError::into_inner).as_mut()?.next();
    let run = || {
        let mut done = Vec::new();
        while let Some(job) = take() {
            done.push(work(job).inspect_err(|_| {
                *jobs.lock().unwrap_or_else(PoisonError::into_inner) = None;
            })?);
        }
        Ok(done)
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX);
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let mut all = run()?;
        for thread in others {
            match thread.join() {
                Ok(done) => all.extend(done?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(all)
    })
}

/// Where bytes go: a file, from a position on, where nothing has been written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) file: &'a File,
    pub(crate) path: &'a Path,
    pub(crate) at: u64,
}

impl Target<'_> {
    /// Writes the next `len` bytes of `from` here, long runs of zeros as holes; `failed` says what
    /// became of a read.
    ///
    /// # Errors
    ///
    /// When reading or writing fails, when `from` ends before, or when `progress` is to stop.
    pub(crate) fn take(
        self,
        from: &mut impl Read,
        len: u64,
        progress: &Progress,
        failed: impl Fn(&std::io::Error) -> Failure,
    ) -> Result<(), Failure> {
        let mut buffer = vec![0; usize::try_from(len.min(BUFFER_LEN)).unwrap_or(0)];
        let (mut done, mut is_hole) = (0, false);
        while done < len {
            let wanted = usize::try_from(len - done).unwrap_or(usize::MAX).min(buffer.len());
            let part = buffer.get_mut(..wanted).unwrap_or_default();
            match from.read(part) {
                Ok(0) => return Err(failed(&ErrorKind::UnexpectedEof.into())),
                Ok(count) => {
                    let part = part.get(..count).unwrap_or_default();
                    is_hole = part.iter().all(|byte| *byte == 0);
                    if !is_hole {
                        self.write(part, done)?;
                    }
                    done += count as u64;
                    progress.advance(count as u64)?;
                }
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(failed(&why)),
            }
        }
        // The file is to be as long all the same.
        if is_hole { self.write(&[0], len - 1) } else { Ok(()) }
    }

    fn write(&self, part: &[u8], behind: u64) -> Result<(), Failure> {
        let written = self.file.write_all_at(part, self.at + behind);
        written.map_err(|why| file_failure(self.path, &why))
    }
}

/// Says that the plain file at `path` became shorter while it was read.
pub(crate) fn input_failure(path: &Path, why: &std::io::Error) -> Failure {
    if why.kind() == ErrorKind::UnexpectedEof {
        let why = "it became shorter while it was read";
        return Failure::new(Code::Failure, path.display(), why, "wait until nobody writes it");
    }
    file_failure(path, why)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn every_job_is_done_once() {
        let sum = AtomicUsize::new(0);
        let add = |job| {
            sum.fetch_add(job, Ordering::Relaxed);
            Ok(())
        };
        in_parallel(0..1000, add).expect("no failure");
        assert_eq!(sum.into_inner(), 499_500);
    }

    #[test]
    fn the_first_failure_ends_all_threads() {
        let done = AtomicUsize::new(0);
        let fail = |_| -> Result<(), Failure> {
            done.fetch_add(1, Ordering::Relaxed);
            Err(Failure::usage("a", "b", "c"))
        };
        in_parallel(0..1_000_000, fail).expect_err("a failure");
        assert!(done.into_inner() <= THREADS_MAX);
    }
}
