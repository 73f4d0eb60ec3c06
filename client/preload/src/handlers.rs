//! Handlers of signals, which wait while their thread is in the midst of a call on a file.
//!
//! A handler may write to, close, or pass on the very file whose call it interrupts. Natively it
//! comes before that call or behind it. So the kernel is given a function of this library for each
//! handler: in a [section] it sends the signal to its thread once more, blocked, and what comes
//! behind the section lets it in. Elsewhere it is a jump to the program's handler, whose frame a
//! debugger or an exception finds as without this library.
//!
//! Signals of a thread's own faults never wait. A real-time signal that was sent to a thread, not
//! to the process, comes behind those of its number that were pending with it. Handlers that are
//! installed by instruction, and those of libc, come as without this library.

use core::{
    ffi::c_void,
    mem, ptr,
    sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering},
};

use client::{Errno, section};
use libc::{SIG_BLOCK, SIG_DFL, SIG_ERR, SIG_IGN, SIG_UNBLOCK, c_int, sighandler_t, siginfo_t};

use crate::{
    bits::unsigned,
    elf, errno,
    interpose::{interpose, next},
    kernel::{ask, kernel},
    process_client::client,
    signals::{Action, FAULTS, SET_LEN, SIGNALS, bit, change_mask},
};

/// As the program declares a handler that wants to know most. One that does not ignores the rest.
type Handler = unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// Flags beside a handler's address that the kernel does not have: it takes each handler for one
/// that wants to know most, and that stays.
const WANTS_INFO: usize = 1 << 62;
const COMES_ONCE: usize = 1 << 63;
const FLAGS: [(c_int, usize); 2] =
    [(libc::SA_SIGINFO, WANTS_INFO), (libc::SA_RESETHAND, COMES_ONCE)];

/// Argument and answer of `sigset` for a blocked signal.
const SIG_HOLD: sighandler_t = 2;

/// The program's handlers; zero where it never had one.
static HANDLERS: [AtomicUsize; SIGNALS + 1] = [const { AtomicUsize::new(0) }; SIGNALS + 1];
static IS_STARTED: AtomicBool = AtomicBool::new(false);
/// The library behind this one that has `sigaction`: 0 until it is known, or one of the next two.
static BEHIND: AtomicU8 = AtomicU8::new(0);
const LIBC: u8 = 1;
const ANOTHER: u8 = 2;
/// Signals whose handlers that are installed by [`signal`] end waits.
static ENDING: AtomicUsize = AtomicUsize::new(0);

interpose! {
    fn sigaction|__sigaction(
        signal: c_int, action: *const libc::sigaction, before: *mut libc::sigaction,
    ) -> c_int {
        act(signal, action.as_ref().copied(), before)
    }
}

interpose! { safe:
    fn signal|bsd_signal|ssignal(signal: c_int, handler: sighandler_t) -> sighandler_t {
        let ending = ENDING.load(Ordering::Relaxed) as u64;
        let ends = place(signal).is_some() && ending & bit(signal) != 0;
        install(signal, handler, if ends { 0 } else { libc::SA_RESTART }, true)
    }

    fn sysv_signal|__sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
        install(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER, false)
    }
}

interpose! {
    fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t {
        if place(signal).is_none() {
            errno::set(Errno::INVAL);
            return SIG_ERR;
        }
        let mut found: libc::sigaction = mem::zeroed();
        let before = if handler == SIG_HOLD {
            if act(signal, None, &raw mut found) != 0 {
                return SIG_ERR;
            }
            found.sa_sigaction
        } else {
            install(signal, handler, 0, false)
        };
        let how = if handler == SIG_HOLD { SIG_BLOCK } else { SIG_UNBLOCK };
        let is_held = before != SIG_ERR && change_mask(how, bit(signal)) & bit(signal) != 0;
        if is_held { SIG_HOLD } else { before }
    }

    fn siginterrupt(signal: c_int, ends: c_int) -> c_int {
        let mut action: libc::sigaction = mem::zeroed();
        if act(signal, None, &raw mut action) != 0 {
            return -1;
        }
        #[expect(clippy::cast_possible_truncation, reason = "64-bit machines only")]
        let bit = bit(signal) as usize;
        if ends == 0 {
            ENDING.fetch_and(!bit, Ordering::Relaxed);
            action.sa_flags |= libc::SA_RESTART;
        } else {
            ENDING.fetch_or(bit, Ordering::Relaxed);
            action.sa_flags &= !libc::SA_RESTART;
        }
        act(signal, Some(action), ptr::null_mut())
    }
}

/// As `signal(3)` and its like: with these flags, and blocking the signal itself or nothing.
fn install(signal: c_int, handler: sighandler_t, flags: c_int, is_blocked: bool) -> sighandler_t {
    if handler == SIG_ERR || place(signal).is_none() {
        errno::set(Errno::INVAL);
        return SIG_ERR;
    }
    // SAFETY: integers, and a pointer that may be null.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    let mut before = action;
    (action.sa_sigaction, action.sa_flags) = (handler, flags);
    if is_blocked {
        // SAFETY: the set is this frame's.
        unsafe { libc::sigaddset(&raw mut action.sa_mask, signal) };
    }
    // SAFETY: there is room for what was before.
    let done = unsafe { act(signal, Some(action), &raw mut before) };
    if done == 0 { before.sa_sigaction } else { SIG_ERR }
}

/// As `sigaction(2)`.
///
/// # Safety
///
/// `before` is null, or there is room for an action.
unsafe fn act(
    signal: c_int,
    action: Option<libc::sigaction>,
    before: *mut libc::sigaction,
) -> c_int {
    let handlers = place(signal);
    let known = handlers.map_or(0, |place| place.load(Ordering::Relaxed));
    // In the child of a `vfork` the table is the parent's.
    let is_served = (client().is_some() || !IS_STARTED.load(Ordering::Relaxed)) && calls_libc();
    let ours = action.filter(is_handler).zip(handlers).filter(|_| is_served);
    let given = match ours {
        Some((action, place)) => {
            place.store(word(&action), Ordering::Relaxed);
            Some(to_kernel(action))
        }
        None => action,
    };
    let given = given.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: an action of this frame or none, and room for one, as the caller says.
    let done = unsafe {
        next!(
            sigaction(
                signal => c_int, given => *const libc::sigaction, before => *mut libc::sigaction,
            ) -> c_int
        )
    };
    if let (Some((_, place)), false) = (ours, done == 0) {
        place.store(known, Ordering::Relaxed);
    }
    // SAFETY: as above; libc has put one there.
    if let (Some(before), true) = (unsafe { before.as_mut() }, done == 0) {
        to_program(before, known);
    }
    done
}

/// True if libc is asked next. Another library that stands there, as the JVM's libjsig, may keep
/// what it is given and call it behind a newer handler: by ours it would come to that one again.
fn calls_libc() -> bool {
    if BEHIND.load(Ordering::Relaxed) == 0 {
        let next = elf::next(c"sigaction");
        // Before glibc 2.34 libpthread has another definition.
        let is_threads = |object: elf::Object| object.file_name().starts_with(b"libpthread");
        let is_libc = next == elf::in_glibc(c"sigaction")
            || next.and_then(|next| elf::holding(next.addr().get())).is_some_and(is_threads);
        BEHIND.store(if is_libc { LIBC } else { ANOTHER }, Ordering::Relaxed);
    }
    BEHIND.load(Ordering::Relaxed) == LIBC
}

/// True if it has a handler of the program's: not the one of this library, which a program gives
/// back that has asked the kernel.
fn is_handler(action: &libc::sigaction) -> bool {
    let ours = come as Handler as usize;
    action.sa_sigaction != ours && !matches!(action.sa_sigaction, SIG_DFL | SIG_IGN)
}

/// The word remembered for a handler.
fn word(action: &libc::sigaction) -> usize {
    let is_set = |flag: c_int| action.sa_flags & flag != 0;
    let flags = FLAGS.iter().filter(|(flag, _)| is_set(*flag));
    flags.fold(action.sa_sigaction, |word, (_, bit)| word | bit)
}

/// The action by which the kernel calls a handler of the program's.
fn to_kernel(action: libc::sigaction) -> libc::sigaction {
    let sa_flags = (action.sa_flags | libc::SA_SIGINFO) & !libc::SA_RESETHAND;
    libc::sigaction { sa_sigaction: come as Handler as usize, sa_flags, ..action }
}

/// The program's own action, where the kernel has ours; `word` is what is remembered.
fn to_program(action: &mut libc::sigaction, word: usize) {
    if action.sa_sigaction == come as Handler as usize {
        action.sa_sigaction = word & !(WANTS_INFO | COMES_ONCE);
        for (flag, bit) in FLAGS {
            action.sa_flags = action.sa_flags & !flag | if word & bit != 0 { flag } else { 0 };
        }
    }
}

fn place(signal: c_int) -> Option<&'static AtomicUsize> {
    let number = usize::try_from(signal).ok().filter(|number| *number != 0)?;
    HANDLERS.get(number)
}

/// A signal comes.
unsafe extern "C" fn come(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let word = place(signal).map_or(0, |place| place.load(Ordering::Relaxed));
    if word & COMES_ONCE != 0 || !section::is_idle() {
        // SAFETY: the kernel's arguments.
        return unsafe { come_within(signal, info, context) };
    }
    // SAFETY: the program gave it as a handler of this signal.
    let handler = unsafe { handler(word) };
    // SAFETY: the kernel's arguments.
    unsafe { handler(signal, info, context) }
}

/// A signal comes that may have to wait, or to be the last.
#[cold]
#[inline(never)]
unsafe extern "C" fn come_within(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let may_wait = FAULTS & bit(signal) == 0 && section::is_inside();
    // SAFETY: the kernel's arguments.
    if may_wait && unsafe { defer(signal, info, context.cast::<libc::ucontext_t>()) } {
        return;
    }
    let Some(place) = place(signal) else { return };
    let word = place.load(Ordering::Relaxed);
    if word & COMES_ONCE != 0 {
        reset(signal, word);
    }
    // SAFETY: the program gave it as a handler of this signal.
    let handler = unsafe { handler(word) };
    // SAFETY: the kernel's arguments.
    section::suspended(|| unsafe { handler(signal, info, context) });
}

/// Has a signal wait until its thread is behind the section; false: it cannot.
///
/// # Safety
///
/// `info` and `context` are what the kernel gave to the handler.
unsafe fn defer(signal: c_int, info: *mut siginfo_t, context: *mut libc::ucontext_t) -> bool {
    // Its handler may be one that does not block it.
    let before = change_mask(SIG_BLOCK, bit(signal));
    let Ok(process) = ask!(SYS_getpid) else { return false };
    let Ok(thread) = ask!(SYS_gettid) else { return false };
    // SAFETY: the kernel reads what it wrote there.
    let queued = unsafe { kernel!(SYS_rt_tgsigqueueinfo, process, thread, signal, info) };
    if queued.is_err() {
        change_mask(libc::SIG_SETMASK, before);
        return false;
    }
    // SAFETY: the kernel's, as the caller says.
    let mask = unsafe { &raw mut (*context).uc_sigmask };
    // SAFETY: of the context in which the thread goes on, which is the handler's to change.
    unsafe { libc::sigaddset(mask, signal) };
    section::defer(bit(signal));
    true
}

/// The client starts, or does not: libraries may have installed handlers before.
pub(crate) fn start() {
    // A handler that asks first could wait for the linker's lock.
    calls_libc();
    section::release_by(release);
    IS_STARTED.store(true, Ordering::Relaxed);
}

/// Lets signals come that were deferred.
fn release(signals: u64) {
    change_mask(SIG_UNBLOCK, signals);
}

/// Takes a handler away that comes once, if it is there still.
fn reset(signal: c_int, word: usize) {
    let mut action: Action = [0; 4];
    let (nothing, none): (*const Action, *mut Action) = (ptr::null(), ptr::null_mut());
    // SAFETY: asks only, and there is room for the answer.
    let asked = unsafe { kernel!(SYS_rt_sigaction, signal, nothing, &raw mut action, SET_LEN) };
    let [handler, flags, ..] = &mut action;
    if asked.is_ok() && *handler == come as Handler as usize {
        *handler = SIG_DFL;
        for (flag, bit) in FLAGS {
            let flag = unsigned(flag) as usize;
            *flags = *flags & !flag | if word & bit != 0 { flag } else { 0 };
        }
        // SAFETY: the kernel's own, but for what is the default.
        let reset = unsafe { kernel!(SYS_rt_sigaction, signal, &raw const action, none, SET_LEN) };
        debug_assert!(reset.is_ok(), "what was asked for can be set");
    }
}

/// # Safety
///
/// The program gave it as a handler.
unsafe fn handler(word: usize) -> Handler {
    let address = ptr::with_exposed_provenance::<c_void>(word & !(WANTS_INFO | COMES_ONCE));
    // SAFETY: a function, as the caller says; on x86-64 and AArch64 one that takes less ignores
    // the rest.
    unsafe { mem::transmute::<*const c_void, Handler>(address) }
}
