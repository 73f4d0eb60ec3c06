//! Counts the memory that the current thread holds, to bound what hostile files can make us take.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use multifile::{Disk, NewTask, Options, Writer};

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The most bytes held at once during `run` beyond what was held before, and its result.
pub(crate) fn peak_during<T>(run: impl FnOnce() -> T) -> (usize, T) {
    let before = HELD.get();
    PEAK.set(before);
    let result = run();
    (usize::try_from(PEAK.get() - before).unwrap_or(0), result)
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(change: isize) {
    // A thread that ends has no counters any more, and nothing to count.
    if let Ok(held) = HELD.try_with(|held| held.replace(held.get() + change) + change) {
        PEAK.set(PEAK.get().max(held));
    }
}

fn signed(len: usize) -> isize {
    isize::try_from(len).unwrap_or(isize::MAX)
}

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: the caller keeps the promises of `dealloc`, and `at` is the system's.
        unsafe { System.dealloc(at, layout) }
    }
}

/// A task that nobody writes to costs its places in tables, and no state of its own.
#[test]
fn a_multifile_of_many_idle_tasks_is_created_in_little_memory() {
    let folder = tempfile::TempDir::new().unwrap();
    let tasks = NewTask::in_one_file(&vec![4096; 65_536]);
    let (held, closed) = peak_during(|| {
        let path = folder.path().join("many.sion");
        Writer::create(&Disk::new(), &path, &tasks, &Options::default())?.close()
    });
    assert_eq!(closed, Ok(()));
    assert!(held < 6 << 20, "{held} bytes");
}
