//! Names in `/proc`, made without a heap.

use core::ffi::CStr;

use rustix::fd::RawFd;

/// `/proc/thread-self/fd/N`, as a C string in `space`. `/proc/self` is the first thread's, and
/// empty when that one has ended before the others.
///
/// `None` for a negative number, which refers to nothing.
pub fn link_of(fd: RawFd, space: &mut [u8; 32]) -> Option<&CStr> {
    numbered(b"/proc/thread-self/fd/", u32::try_from(fd).ok()?, b"", space)
}

/// A number between two parts of a name; `None` when there is no room for it.
pub(crate) fn numbered<'a>(
    before: &[u8],
    mut number: u32,
    behind: &[u8],
    space: &'a mut [u8; 32],
) -> Option<&'a CStr> {
    let mut digits = [0; 10];
    let mut first = digits.len();
    loop {
        first -= 1;
        *digits.get_mut(first)? = b'0' + u8::try_from(number % 10).ok()?;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    let parts = before.iter().chain(digits.get(first..)?).chain(behind).chain(&[0]);
    debug_assert!(first < digits.len(), "a number has a digit");
    let mut places = space.iter_mut();
    for byte in parts {
        *places.next()? = *byte;
    }
    CStr::from_bytes_until_nul(space).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_has_a_link() {
        let mut space = [0; 32];
        assert_eq!(link_of(1_048_575, &mut space), Some(c"/proc/thread-self/fd/1048575"));
        let mut space = [0; 32];
        assert_eq!(link_of(0, &mut space), Some(c"/proc/thread-self/fd/0"));
        let mut space = [0; 32];
        let longest = link_of(RawFd::MAX, &mut space);
        assert_eq!(longest, Some(c"/proc/thread-self/fd/2147483647"));
        assert_eq!(link_of(-9, &mut [0; 32]), None);
    }
}
