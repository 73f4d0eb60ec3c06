//! The environment of programs that are started.
//!
//! One that is given an environment of its own, as by `env -i` or Python's `env=`, would come
//! without this library, and what it writes in a remote folder would not reach the server. So
//! where folders are remote it gets the variables that this program was started with, unless it has
//! one of them: whoever sets or removes some knows of them.

use core::{
    ffi::CStr,
    iter, ptr,
    sync::atomic::{AtomicU8, AtomicUsize, Ordering},
};

use client::Client;
use libc::c_char;

use crate::{pointers::Text, process_client::client};

/// Bytes of the variables that are kept.
const ROOM: usize = 16 << 10;
/// Variables of an environment that somebody has made by hand, with those kept.
const VARIABLES: usize = 256;

/// Copies, each with its NUL: a program may write over those it was started with.
static KEPT: [AtomicU8; ROOM] = [const { AtomicU8::new(0) }; ROOM];
static KEPT_LEN: AtomicUsize = AtomicUsize::new(0);

/// `argv` or `envp`: C strings up to a null pointer.
pub(crate) type Strings = *const *const c_char;

unsafe extern "C" {
    pub(crate) static environ: Strings;
}

/// The variables of an environment.
///
/// # Safety
///
/// `variables` is null, or an array of C strings that ends with a null pointer; all stay as they
/// are for `'a`.
pub(crate) unsafe fn lines<'a>(variables: Strings) -> impl Iterator<Item = &'a CStr> {
    let mut next = variables;
    iter::from_fn(move || {
        if next.is_null() {
            return None;
        }
        // SAFETY: the end of the array was not passed.
        let line = unsafe { next.read() };
        // SAFETY: the array's elements are C strings.
        let line = unsafe { Text::new(line) }.get()?;
        // SAFETY: the element just read was not the last.
        next = unsafe { next.add(1) };
        Some(line)
    })
}

/// Keeps the variables that this program needs to be served, for those that it starts.
pub(crate) fn keep() {
    // SAFETY: libc's; read before the program runs, so nobody changes it meanwhile.
    let ours = unsafe { lines(environ) }.map(CStr::to_bytes_with_nul).filter(|line| is_ours(line));
    for line in ours {
        let len = KEPT_LEN.load(Ordering::Relaxed);
        let Some(room) = KEPT.get(len..len + line.len()) else { return };
        room.iter().zip(line).for_each(|(to, from)| to.store(*from, Ordering::Relaxed));
        KEPT_LEN.store(len + line.len(), Ordering::Relaxed);
    }
}

/// Starts a program with `variables`, and with those that were kept if it needs them.
///
/// # Safety
///
/// `variables` is as [`lines`] asks.
pub(crate) unsafe fn with_ours<T>(variables: Strings, start: impl FnOnce(Strings) -> T) -> T {
    let mut joined = [ptr::null(); VARIABLES];
    let needs_them = client().is_some_and(Client::has_remote);
    // SAFETY: `with_ours` asks for the same list as `join`.
    if needs_them && unsafe { join(variables, &mut joined) }.is_some() {
        return start(joined.as_ptr());
    }
    start(variables)
}

/// `None`: it has one of ours, or too many variables to be made by hand.
///
/// # Safety
///
/// As [`lines`] asks.
unsafe fn join(variables: Strings, joined: &mut [*const c_char; VARIABLES]) -> Option<()> {
    // The last stays null.
    let mut places = joined.iter_mut().take(VARIABLES - 1);
    // SAFETY: `join` asks for the same list as `lines`.
    for line in unsafe { lines(variables) } {
        if is_ours(line.to_bytes()) {
            return None;
        }
        *places.next()? = line.as_ptr();
    }
    let kept = KEPT.get(..KEPT_LEN.load(Ordering::Relaxed))?;
    for line in kept.split_inclusive(|byte| byte.load(Ordering::Relaxed) == 0) {
        *places.next()? = line.as_ptr().cast();
    }
    Some(())
}

fn is_ours(line: &[u8]) -> bool {
    line.starts_with(b"KAKEHI_") || line.starts_with(b"LD_PRELOAD=")
}
