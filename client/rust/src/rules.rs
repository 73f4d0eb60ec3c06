//! Which policy serves a path.
//!
//! Rules are `GLOB=POLICY`, separated by `;`, with absolute globs; the first match wins, and what
//! no rule names is hybrid. `*` and `?` stop at a slash, `**` does not, and `/**/` stands for `/`,
//! too. `/dev` (but for `/dev/shm`, where people keep files), `/proc`, and `/sys` are never
//! delegated.

use core::ffi::CStr;

use rustix::{fd::RawFd, fs};

use crate::{client::Host, config::Config, mirrors::without_mirror};

/// Bytes of a path, with its NUL.
pub(crate) const PATH_MAX: usize = 4096;
/// The folder that relative names start at, in the words of the kernel.
pub(crate) const CURRENT_FOLDER: RawFd = -100;
/// Where the daemon keeps mirrors, in the job's folder.
pub(crate) const MIRROR: &[u8] = b"/mirror";

/// What happens to the calls on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Nothing.
    Pass,
    /// Nothing: the kernel makes the file up, whatever rules say.
    Kernels,
    /// The client opens the file; its data is delegated.
    Hybrid,
    /// The daemon opens the file; everything is delegated.
    Delegate,
    /// As `Delegate`, and this node has no such file.
    Remote,
}

/// An absolute path in place, without `.` and `..`.
pub(crate) struct AbsolutePath {
    bytes: [u8; PATH_MAX],
    len: usize,
    /// It starts in a mirror.
    is_mirrored: bool,
}

/// The policy for `path`, which is relative to `dir`.
pub(crate) fn policy_of(config: &Config, host: &dyn Host, dir: RawFd, path: &CStr) -> Policy {
    let rules = config.rules();
    let bytes = path.to_bytes();
    // The kernel refuses an empty name, unless it stands for `dir` itself.
    if is_kernels(bytes) || bytes.is_empty() && dir == CURRENT_FOLDER {
        return Policy::Kernels;
    }
    if rules.is_empty() {
        return Policy::Hybrid;
    }
    let Some(path) = AbsolutePath::new(config, host, dir, path) else { return Policy::Hybrid };
    match_rules(rules, path.bytes())
}

fn is_kernels(path: &[u8]) -> bool {
    let is_below = |root: &[u8]| path.starts_with(root);
    is_below(b"/dev/") && !is_below(b"/dev/shm/") || is_below(b"/proc/") || is_below(b"/sys/")
}

fn match_rules(rules: &[u8], path: &[u8]) -> Policy {
    for rule in rules.split(|byte| *byte == b';') {
        let Some(split) = rule.iter().rposition(|byte| *byte == b'=') else { continue };
        let (glob, policy) = rule.split_at(split);
        if !matches(glob, path) {
            continue;
        }
        return match policy.get(1..) {
            Some(b"pass") => Policy::Pass,
            Some(b"delegate") => Policy::Delegate,
            Some(b"remote") => Policy::Remote,
            _ => Policy::Hybrid,
        };
    }
    Policy::Hybrid
}

/// Whether a glob matches the whole of a path.
///
/// Remembers the last star only, so the time is bounded by the product of the lengths; a `**`
/// that turns out to have matched too little is tried again before a `*` is.
fn matches(glob: &[u8], path: &[u8]) -> bool {
    let (mut g, mut p) = (0, 0);
    let (mut star, mut deep) = (None, None);
    loop {
        let rest = glob.get(g..).unwrap_or_default();
        match (rest, path.get(p)) {
            ([b'*', b'*', after @ ..], _) => {
                deep = Some((g + 2, p));
                star = None;
                // Between slashes it stands for no folder first, and its slash for none.
                let is_folders =
                    after.starts_with(b"/") && glob.get(..g).is_some_and(|g| g.ends_with(b"/"));
                g += if is_folders { 3 } else { 2 };
                continue;
            }
            ([b'*', ..], _) => {
                g += 1;
                star = Some((g, p));
                continue;
            }
            ([], None) => return true,
            ([b'?', ..], Some(byte)) if *byte != b'/' => {
                (g, p) = (g + 1, p + 1);
                continue;
            }
            ([wanted, ..], Some(byte)) if wanted == byte => {
                (g, p) = (g + 1, p + 1);
                continue;
            }
            _ => {}
        }
        // A dead end: let the last star take one more byte, or else the last double star.
        match (star, deep) {
            (Some((after, at)), _) if path.get(at).is_some_and(|byte| *byte != b'/') => {
                star = Some((after, at + 1));
                (g, p) = (after, at + 1);
            }
            (_, Some((after, at))) if at < path.len() => {
                deep = Some((after, at + 1));
                star = None;
                (g, p) = (after, at + 1);
            }
            _ => return false,
        }
    }
}

impl AbsolutePath {
    /// Resolves `path`, relative to `dir`, without looking at links; `None` when it is too long.
    /// A path into a mirror is the remote one.
    pub(crate) fn new(config: &Config, host: &dyn Host, dir: RawFd, path: &CStr) -> Option<Self> {
        let mut this = Self { bytes: [0; PATH_MAX], len: 0, is_mirrored: false };
        let path = path.to_bytes();
        if !path.starts_with(b"/") {
            this.start_at(host, dir)?;
        }
        for part in path.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => {
                    let slash = this.bytes().iter().rposition(|byte| *byte == b'/');
                    this.len = slash.unwrap_or(0);
                }
                _ => {
                    this.push(b"/")?;
                    this.push(part)?;
                }
            }
        }
        let known = without_mirror(config.folder(), this.bytes()).len();
        if known < this.len {
            this.bytes.copy_within(this.len - known..this.len, 0);
            (this.len, this.is_mirrored) = (known, true);
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

    pub(crate) fn is_mirrored(&self) -> bool {
        self.is_mirrored
    }

    fn start_at(&mut self, host: &dyn Host, dir: RawFd) -> Option<()> {
        if dir == CURRENT_FOLDER {
            self.len = read_link(host, c"/proc/thread-self/cwd", &mut self.bytes)?;
        } else {
            let mut name = [0; 32];
            let link = link_of(dir, &mut name)?;
            self.len = read_link(host, link, &mut self.bytes)?;
        }
        if self.bytes() == b"/" {
            self.len = 0;
        }
        Some(())
    }

    fn push(&mut self, part: &[u8]) -> Option<()> {
        self.bytes.get_mut(self.len..self.len + part.len())?.copy_from_slice(part);
        self.len += part.len();
        Some(())
    }
}

fn read_link(host: &dyn Host, link: &CStr, target: &mut [u8]) -> Option<usize> {
    fs::readlinkat_raw(host.borrow(CURRENT_FOLDER), link, target).ok()
}

/// `/proc/thread-self/fd/N`, as a C string in `space`. `/proc/self` is the first thread's, and
/// empty when that one has ended before the others.
pub(crate) fn link_of(fd: RawFd, space: &mut [u8; 32]) -> Option<&CStr> {
    const PREFIX: &[u8] = b"/proc/thread-self/fd/";
    let mut number = fd.unsigned_abs();
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
    let digits = digits.get(first..)?;
    space.get_mut(..PREFIX.len())?.copy_from_slice(PREFIX);
    space.get_mut(PREFIX.len()..PREFIX.len() + digits.len())?.copy_from_slice(digits);
    CStr::from_bytes_until_nul(space).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_as_in_a_shell() {
        for (glob, path, expected) in [
            ("/a/*.rst", "/a/x.rst", true),
            ("/a/*.rst", "/a/b/x.rst", false),
            ("/a/**.rst", "/a/b/x.rst", true),
            ("/**", "/", true),
            ("/**", "/any/where", true),
            ("/a/**/c", "/a/b/d/c", true),
            ("/a/**/c", "/a/c", true),
            ("/a/**/c", "/a/bc", false),
            ("/a/**/c", "/ac", false),
            ("/a/**/*.c", "/a/b.c", true),
            ("/a/**/*.c", "/a/b.o/d.c", true),
            ("/a/**/b/**/c", "/a/b/c", true),
            ("/a/**/b/**/c", "/a/x/b/y/z/c", true),
            ("/a/**/b/**/c", "/a/x/y/c", false),
            ("/a**/c", "/ac", false),
            ("/a**/c", "/ab/c", true),
            ("/a?c", "/abc", true),
            ("/a?c", "/a/c", false),
            ("/ckpt/*/step*.bin", "/ckpt/r1/step07.bin", true),
            ("/ckpt/*/step*.bin", "/ckpt/r1/step07.bin.tmp", false),
            ("/**x*y", "/a/xb/xcy", true),
            ("", "/a", false),
        ] {
            assert_eq!(matches(glob.as_bytes(), path.as_bytes()), expected, "{glob} on {path}");
        }
    }

    #[test]
    fn the_first_rule_wins_and_the_rest_is_hybrid() {
        let rules = b"/a/keep/**=pass;/a/**=delegate";
        assert_eq!(match_rules(rules, b"/a/keep/x"), Policy::Pass);
        assert_eq!(match_rules(rules, b"/a/x"), Policy::Delegate);
        assert_eq!(match_rules(rules, b"/b/x"), Policy::Hybrid);
    }

    #[test]
    fn what_the_kernel_makes_up_is_never_delegated() {
        for path in ["/dev/null", "/proc/self/maps", "/sys/kernel"] {
            assert!(is_kernels(path.as_bytes()), "{path}");
        }
        for path in ["/dev/shm/a", "/devel/a", "/home/dev/a", "dev/null"] {
            assert!(!is_kernels(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn many_stars_end_in_bounded_time() {
        let glob = [b"**a".repeat(40), b"b".to_vec()].concat();
        assert!(!matches(&glob, &b"a".repeat(4000)));
    }

    #[test]
    fn a_descriptor_has_a_link() {
        let mut space = [0; 32];
        assert_eq!(link_of(1_048_575, &mut space), Some(c"/proc/thread-self/fd/1048575"));
        let mut space = [0; 32];
        assert_eq!(link_of(0, &mut space), Some(c"/proc/thread-self/fd/0"));
        let mut space = [0; 32];
        let longest = link_of(RawFd::MAX, &mut space);
        assert_eq!(longest, Some(c"/proc/thread-self/fd/2147483647"));
    }
}
