//! Says whether calls go to the process's one client, and which descriptors are the program's.

use core::{
    mem::MaybeUninit,
    sync::atomic::{AtomicUsize, Ordering},
};

use client::{Backing, Client, Errno, thread};
use libc::{AT_FDCWD, c_int};

use crate::kernel::{Outcome, kernel};

/// The process around the client: see its `Host` in `start.rs`.
pub(crate) struct Program;

/// Threads that can be in `vfork` at once; a further one makes a child with memory of its own.
const THREADS: usize = 64;
/// A thread that waits for its child.
pub(crate) struct Waiting {
    /// Its thread pointer; 0 in a free place.
    pub(crate) thread: AtomicUsize,
    /// Its children, each the last one's.
    pub(crate) depth: AtomicUsize,
}

pub(crate) static WAITING: [Waiting; THREADS] =
    [const { Waiting { thread: AtomicUsize::new(0), depth: AtomicUsize::new(0) } }; THREADS];

pub(crate) static BACKING: Backing = Backing::new();
pub(crate) static CLIENT: Client = Client::new(&Program, &BACKING);

/// [`SERVED`] while calls go to the client, plus [`IN_VFORK`] for each thread in `vfork`.
static STATE: AtomicUsize = AtomicUsize::new(IDLE);
const IDLE: usize = 0;
const SERVED: usize = 1;
const IN_VFORK: usize = 2;

/// The client, if anything is delegated in this process.
#[inline]
pub(crate) fn client() -> Option<&'static Client> {
    match STATE.load(Ordering::Relaxed) {
        SERVED => Some(&CLIENT),
        IDLE => None,
        state => beside_vfork(state),
    }
}

/// The client, if a name may mean something else to it than to the kernel.
#[inline]
pub(crate) fn ruled() -> Option<&'static Client> {
    client().filter(|client| client.is_ruled())
}

/// The child of a `vfork` runs in this process's memory, and its numbers are not this process's.
#[cold]
fn beside_vfork(state: usize) -> Option<&'static Client> {
    (state & SERVED != 0 && !is_child()).then_some(&CLIENT)
}

/// A thread enters `vfork`.
pub(crate) fn enter_vfork() {
    STATE.fetch_add(IN_VFORK, Ordering::AcqRel);
}

/// A thread is back from `vfork`.
pub(crate) fn leave_vfork() {
    STATE.fetch_sub(IN_VFORK, Ordering::AcqRel);
}

/// Gives every open file to the kernel, and makes plain system calls from now on. False: it has
/// done so before.
pub(crate) fn retire() -> bool {
    let Some(client) = client() else { return false };
    client.detach_served();
    STATE.fetch_and(!SERVED, Ordering::AcqRel);
    true
}

/// Takes [`retire`] back, for files that are opened from now on.
pub(crate) fn resume() {
    STATE.fetch_or(SERVED, Ordering::AcqRel);
}

/// True in the child of a `vfork`.
fn is_child() -> bool {
    WAITING.iter().any(|place| place.thread.load(Ordering::Relaxed) == thread())
}

/// Before the calling thread gets a descriptor table of its own. One that is alone in its process
/// has one.
pub(crate) fn before_own_table() {
    if client().is_some() && !is_alone() {
        retire();
    }
}

/// True if the process has one thread.
fn is_alone() -> bool {
    let mut found = MaybeUninit::<libc::stat>::zeroed();
    let path = c"/proc/self/task".as_ptr();
    // SAFETY: a C string, and there is room for the answer.
    let asked = unsafe { kernel!(SYS_newfstatat, AT_FDCWD, path, found.as_mut_ptr(), 0) };
    // SAFETY: integers all through, and zero where the kernel has not filled it in.
    let found = unsafe { found.assume_init() };
    // A folder has a link from above, its own, and one from each folder in it.
    asked.is_ok() && found.st_nlink == 3
}

/// To the program, a number of the client's own refers to nothing.
pub(crate) fn is_programs(fd: c_int) -> Outcome<()> {
    let is_own = client().is_some_and(|client| client.is_own(fd));
    if is_own { Err(Errno::BADF) } else { Ok(()) }
}
