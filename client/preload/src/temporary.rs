//! Temporary files and folders, which libc would make where nobody sees it.

use client::Errno;
use libc::{AT_FDCWD, c_char, c_int};

use crate::{
    errno::{answer, set},
    interpose::interpose,
    kernel::{Outcome, kernel},
    names::make_dir_at,
    open::open_at,
    pointers::Text,
};

/// Names tried before giving up, each one of 62^6.
const ATTEMPTS: u32 = 62 * 62 * 62;
const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const PATTERN: &[u8; 6] = b"XXXXXX";

interpose! {
    fn mkstemp|mkstemp64(template: *mut c_char) -> c_int => open(template, 0, 0);
    fn mkostemp|mkostemp64(template: *mut c_char, flags: c_int) -> c_int =>
        open(template, 0, flags);
    fn mkstemps|mkstemps64(template: *mut c_char, suffix_len: c_int) -> c_int =>
        open(template, suffix_len, 0);
    fn mkostemps|mkostemps64(template: *mut c_char, suffix_len: c_int, flags: c_int) -> c_int =>
        open(template, suffix_len, flags);

    fn mkdtemp(template: *mut c_char) -> *mut c_char {
        match make(template, 0, || make_dir_at(AT_FDCWD, Text::new(template), 0o700)) {
            Ok(_) => template,
            Err(errno) => {
                set(errno);
                core::ptr::null_mut()
            }
        }
    }
}

/// Opens a new file, and puts its name into the template.
///
/// # Safety
///
/// `template` is a C string that may be changed.
unsafe fn open(template: *mut c_char, suffix_len: c_int, flags: c_int) -> Outcome<c_int> {
    let flags = flags & !libc::O_ACCMODE | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    // SAFETY: a C string, in which letters have taken the place of letters.
    let attempt = || open_at(AT_FDCWD, unsafe { Text::new(template) }, flags, 0o600);
    // SAFETY: the template that this was given, on the same terms.
    unsafe { make(template, suffix_len, attempt) }
}

/// Puts one name after the other into the template, until an attempt finds that there is none.
///
/// # Safety
///
/// `template` is a C string that may be changed.
unsafe fn make<T>(
    template: *mut c_char,
    suffix_len: c_int,
    attempt: impl Fn() -> Outcome<T>,
) -> Outcome<T> {
    // SAFETY: a C string, as the caller promises.
    let len = unsafe { libc::strlen(template) };
    let suffix_len = usize::try_from(suffix_len).map_err(|_| Errno::INVAL)?;
    let at = len.checked_sub(suffix_len + PATTERN.len()).ok_or(Errno::INVAL)?;
    // SAFETY: six bytes before its end are inside the string.
    let place = unsafe { template.add(at) }.cast::<[u8; PATTERN.len()]>();
    // SAFETY: the program lends its string.
    if unsafe { place.read() } != *PATTERN {
        return Err(Errno::INVAL);
    }
    for _ in 0..ATTEMPTS {
        let mut chance = random()?;
        let letters = [(); PATTERN.len()].map(|()| {
            let index = usize::try_from(chance % 62).unwrap_or(0);
            chance /= 62;
            *LETTERS.get(index).unwrap_or(&b'a')
        });
        // SAFETY: the place that the pattern was read from, which the program lends.
        unsafe { place.write(letters) };
        match attempt() {
            Err(Errno::EXIST) => {}
            made => return made,
        }
    }
    Err(Errno::EXIST)
}

fn random() -> Outcome<u64> {
    let mut bytes = [0; 8];
    // SAFETY: there is room for eight bytes. So few come at once.
    unsafe { kernel!(SYS_getrandom, bytes.as_mut_ptr(), 8_usize, 0_u32) }?;
    Ok(u64::from_le_bytes(bytes))
}
