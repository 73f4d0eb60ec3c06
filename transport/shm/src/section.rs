//! Sections of a thread in which handlers of signals must not run: while it holds a lock.
//!
//! A handler may make any call of those that take locks, and it may never return. So whatever calls
//! the program's handlers asks first whether its thread [is inside](is_inside) a section, and if so
//! keeps the signal back and [notes](defer) it; the end of the outermost section releases it. That
//! costs a section a few plain instructions and no system call.
//!
//! A handler that cannot wait, or may come into a long wait, [suspends](suspended) the section: it
//! runs as if there were none, and may leave it by a jump.
//!
//! # Memory ordering
//!
//! A section's words belong to one thread and to the handlers that interrupt it, so they are plain
//! stores in the order of the program. A handler leaves `depth` as it has found it. `deferred` is
//! looked at once `depth` is lowered: from then on nothing is added to it.

use core::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence},
    time::Duration,
};

use crate::Once;

/// How long a section that waits for somebody else keeps handlers back before it [lets them
/// in](let_in).
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Lets signals come that were deferred, bit `n - 1` standing for signal `n`.
pub type Release = fn(u64);

/// State of a thread: the locks that it holds, and the signals kept back.
#[repr(C)]
struct Section {
    /// Locks that it holds.
    depth: AtomicU32,
    /// Signals kept back.
    deferred: AtomicU64,
}

static RELEASE: Once<Release> = Once::new();

/// Has signals that are [deferred](defer) released by `release`, from now on.
pub fn release_by(release: Release) {
    // A second one is the same: a process has one library that calls handlers.
    match RELEASE.set(release) {
        Ok(_) | Err(_) => {}
    }
}

/// The calling thread begins to take a lock.
#[inline]
pub(crate) fn enter() {
    let Some(section) = section() else { return };
    section.depth.store(section.depth.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
}

/// The calling thread has given a lock up, or did not get it.
#[inline]
pub(crate) fn leave() {
    let Some(section) = section() else { return };
    compiler_fence(Ordering::SeqCst);
    let depth = section.depth.load(Ordering::Relaxed);
    debug_assert!(depth > 0, "who leaves has entered");
    section.depth.store(depth - 1, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    if section.deferred.load(Ordering::Relaxed) != 0 {
        section.release_outside();
    }
}

/// True if the calling thread holds a lock.
#[inline]
#[must_use]
pub fn is_inside() -> bool {
    section().is_some_and(|section| section.depth.load(Ordering::Relaxed) != 0)
}

/// True if the calling thread neither holds a lock nor has a signal to release.
#[inline]
#[must_use]
pub fn is_idle() -> bool {
    section().is_none_or(|section| {
        section.depth.load(Ordering::Relaxed) == 0 && section.deferred.load(Ordering::Relaxed) == 0
    })
}

/// Notes signals that the calling thread, which is [inside](is_inside), does not get until it is
/// outside.
pub fn defer(signals: u64) {
    if let Some(section) = section() {
        section.deferred.fetch_or(signals, Ordering::Relaxed);
    }
}

/// Runs what may come into a section, as a handler does, as if the calling thread were in none.
pub fn suspended<T>(run: impl FnOnce() -> T) -> T {
    let Some(section) = section() else { return run() };
    let depth = section.depth.load(Ordering::Relaxed);
    section.depth.store(0, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    let deferred = section.deferred.swap(0, Ordering::Relaxed);
    let done = run();
    section.deferred.fetch_or(deferred, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    section.depth.store(depth, Ordering::Relaxed);
    done
}

/// Lets deferred signals come in the midst of a section, which waits for long.
pub fn let_in() {
    let Some(section) = section() else { return };
    let deferred = section.deferred.swap(0, Ordering::Relaxed);
    if deferred != 0 {
        suspended(|| release(deferred));
    }
}

impl Section {
    #[cold]
    #[inline(never)]
    fn release_outside(&self) {
        if self.depth.load(Ordering::Relaxed) == 0 {
            release(self.deferred.swap(0, Ordering::Relaxed));
        }
    }
}

fn release(signals: u64) {
    if let Some(release) = RELEASE.get() {
        release(signals);
    }
}

// Found without a call at a fixed distance from the thread pointer: libraries that have this are
// loaded at the start, or fit what libc keeps free for such.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
core::arch::global_asm!(
    ".pushsection .tbss, \"awT\", %nobits",
    ".balign 8",
    ".globl kakehi_section",
    ".hidden kakehi_section",
    ".type kakehi_section, %object",
    ".size kakehi_section, {len}",
    "kakehi_section:",
    ".zero {len}",
    ".popsection",
    len = const size_of::<Section>(),
);

/// The calling thread's.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn section() -> Option<&'static Section> {
    let place: *const Section;
    // SAFETY: the thread pointer plus the distance that the linker has noted; it changes nothing.
    unsafe {
        core::arch::asm!(
            "mov {place}, fs:[0]",
            "add {place}, [rip + kakehi_section@GOTTPOFF]",
            place = out(reg) place, options(nostack, pure, readonly),
        );
    }
    // SAFETY: zeros at first, which are a section; no other thread uses it, so it lives for longer
    // than any use.
    Some(unsafe { &*place })
}

/// The calling thread's.
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline]
fn section() -> Option<&'static Section> {
    let place: *const Section;
    // SAFETY: the thread pointer plus the distance that the linker has noted; it changes nothing.
    unsafe {
        core::arch::asm!(
            "mrs {place}, tpidr_el0",
            "adrp {distance}, :gottprel:kakehi_section",
            "ldr {distance}, [{distance}, :gottprel_lo12:kakehi_section]",
            "add {place}, {place}, {distance}",
            place = out(reg) place, distance = out(reg) _, options(nostack, pure, readonly),
        );
    }
    // SAFETY: zeros at first, which are a section; no other thread uses it, so it lives for longer
    // than any use.
    Some(unsafe { &*place })
}

/// No handlers are deferred here.
#[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
const fn section() -> Option<&'static Section> {
    None
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use core::sync::atomic::AtomicBool;
    use std::{sync::mpsc, thread};

    use super::*;
    use crate::Lock;

    /// Signals that came, one bit each: every test has its own.
    static CAME: AtomicU64 = AtomicU64::new(0);
    static WAS_INSIDE: AtomicBool = AtomicBool::new(false);

    fn come(signals: u64) {
        CAME.fetch_or(signals, Ordering::Relaxed);
        WAS_INSIDE.fetch_or(is_inside(), Ordering::Relaxed);
    }

    fn has_come(signal: u64) -> bool {
        CAME.load(Ordering::Relaxed) & signal != 0
    }

    #[test]
    fn signals_of_a_section_come_where_the_outermost_lock_is_given_up() {
        release_by(come);
        let (outer, inner) = (Lock::new(()), Lock::new(()));
        assert!(is_idle());
        let held = outer.lock().expect("free");
        defer(1);
        drop(inner.lock().expect("free"));
        assert!(inner.try_lock().is_some() && outer.try_lock().is_none());
        assert!(is_inside() && !has_come(1));
        drop(held);
        assert!(is_idle() && has_come(1));

        let held = outer.lock().expect("free");
        defer(2);
        // A handler that cannot wait takes locks of its own, and leaves them.
        suspended(|| {
            assert!(is_idle());
            drop(inner.lock().expect("free"));
        });
        assert!(is_inside() && !has_come(2));
        let_in();
        assert!(is_inside() && has_come(2));
        drop(held);
        assert!(is_idle() && !WAS_INSIDE.load(Ordering::Relaxed));
    }

    #[test]
    fn signals_come_into_a_section_that_waits_for_another_lock_for_long() {
        release_by(come);
        let (outer, inner) = (Lock::new(()), Lock::new(()));
        let held = outer.lock().expect("free");
        let (taken, is_taken) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let held = inner.lock().expect("free");
                taken.send(()).expect("awaited");
                let (_open, never) = mpsc::channel::<()>();
                never.recv_timeout(2 * PATIENCE).expect_err("nothing is sent");
                drop(held);
            });
            is_taken.recv().expect("sent");
            defer(4);
            drop(inner.lock().expect("another's"));
            assert!(is_inside() && has_come(4));
        });
        drop(held);
    }
}
