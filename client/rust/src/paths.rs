//! Paths in full, as the daemon is sent them, and names of open files.

use core::ffi::CStr;

use rustix::{
    fd::RawFd,
    fs,
    io::{self, Errno},
};

use crate::{
    client::{Client, Host},
    config::Config,
    mirrors::without_mirror,
    rooms::Room,
    rules::{Policy, match_rules, policy_without_rules},
};

/// Bytes of a path, with its NUL.
pub(crate) const PATH_MAX: usize = 4096;
/// The folder that relative names start at, in the words of the kernel.
pub(crate) const CURRENT_FOLDER: RawFd = -100;
/// A path for the kernel, with its NUL.
pub type Path = [u8; PATH_MAX];

/// An absolute path, without `.` and `..`, and the policy that serves it.
pub(crate) struct AbsolutePath {
    bytes: Room,
    len: usize,
    /// It starts in a mirror.
    is_mirrored: bool,
    /// A `..` has taken a name away that may have been a link's, which leads elsewhere.
    is_textual: bool,
    policy: Policy,
    /// Index of the rule that says so.
    rule: Option<usize>,
}

impl AbsolutePath {
    /// Resolves `path`, relative to `dir`, without looking at links; `None` when it is too long.
    /// A path into a mirror is the remote one.
    pub(crate) fn new(config: &Config, host: &dyn Host, dir: RawFd, path: &CStr) -> Option<Self> {
        let policy = policy_without_rules(dir, path);
        let (is_mirrored, is_textual) = (false, false);
        let bytes = Room::take()?;
        let mut this = Self { bytes, len: 0, is_mirrored, is_textual, policy, rule: None };
        let path = path.to_bytes();
        if !path.starts_with(b"/") {
            this.start_at(host, dir)?;
        }
        let mut named = 0u32;
        for part in path.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => {
                    let slash = this.bytes().iter().rposition(|byte| *byte == b'/');
                    this.len = slash.unwrap_or(0);
                    this.is_textual |= named > 0;
                    named = named.saturating_sub(1);
                }
                _ => {
                    named += 1;
                    this.push(b"/")?;
                    this.push(part)?;
                }
            }
        }
        let known = without_mirror(config.folder(), this.bytes()).len();
        debug_assert!(known <= this.len, "a mirror's prefix is cut off");
        if known < this.len {
            this.bytes.copy_within(this.len - known..this.len, 0);
            (this.len, this.is_mirrored) = (known, true);
        }
        if policy != Policy::Kernels {
            (this.policy, this.rule) = match_rules(config.rules(), this.bytes());
        }
        Some(this)
    }

    /// The path's bytes, without a final NUL.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self.bytes.get(..self.len) {
            None | Some([]) => b"/",
            Some(bytes) => bytes,
        }
    }

    /// The path of the folder that it is in.
    pub(crate) fn folder(&self) -> &[u8] {
        let slash = self.bytes().iter().rposition(|byte| *byte == b'/');
        let above = slash.and_then(|slash| self.bytes().get(..slash));
        above.filter(|above| !above.is_empty()).unwrap_or(b"/")
    }

    /// Its last name.
    pub(crate) fn name(&self) -> &[u8] {
        self.bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    pub(crate) fn policy(&self) -> Policy {
        self.policy
    }

    pub(crate) fn rule(&self) -> Option<usize> {
        self.rule
    }

    /// The process itself opens what it names.
    pub(crate) fn stay_here(&mut self) {
        self.policy = Policy::Hybrid;
    }

    /// True if it is the path only if none of the names that a `..` takes away is a link's.
    pub(crate) fn is_textual(&self) -> bool {
        self.is_textual
    }

    pub(crate) fn is_remote(&self) -> bool {
        self.policy == Policy::Remote
    }

    pub(crate) fn is_mirrored(&self) -> bool {
        self.is_mirrored
    }

    /// The path as a C string in `space`.
    pub(crate) fn terminated<'a>(&self, space: &'a mut Path) -> io::Result<&'a CStr> {
        let bytes = self.bytes();
        space.get_mut(..bytes.len()).ok_or(Errno::NAMETOOLONG)?.copy_from_slice(bytes);
        *space.get_mut(bytes.len()).ok_or(Errno::NAMETOOLONG)? = 0;
        CStr::from_bytes_until_nul(space).map_err(|_| Errno::INVAL)
    }

    fn start_at(&mut self, host: &dyn Host, dir: RawFd) -> Option<()> {
        if dir == CURRENT_FOLDER {
            self.len = read_link(host, c"/proc/thread-self/cwd", &mut self.bytes[..])?;
        } else {
            let mut name = [0; 32];
            let link = link_of(dir, &mut name)?;
            self.len = read_link(host, link, &mut self.bytes[..])?;
        }
        if self.bytes() == b"/" {
            self.len = 0;
        }
        Some(())
    }

    fn push(&mut self, part: &[u8]) -> Option<()> {
        debug_assert!(self.len <= PATH_MAX, "the path is in its room");
        self.bytes.get_mut(self.len..self.len + part.len())?.copy_from_slice(part);
        self.len += part.len();
        Some(())
    }
}

impl Client {
    pub(crate) fn absolute_path(&'static self, dir: RawFd, path: &CStr) -> Option<AbsolutePath> {
        let mut path = AbsolutePath::new(self.active()?, self.host, dir, path)?;
        if path.is_remote() && self.has_own_root() {
            path.stay_here();
        }
        Some(path)
    }
}

/// Makes a call that has room for paths in a frame of its own. Without rules nobody needs it, and a
/// program's threads and signal handlers may have little stack.
#[cold]
#[inline(never)]
pub(crate) fn apart<T>(call: impl FnOnce() -> T) -> T {
    call()
}

fn read_link(host: &dyn Host, link: &CStr, target: &mut [u8]) -> Option<usize> {
    fs::readlinkat_raw(host.borrow(CURRENT_FOLDER), link, target).ok()
}

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
