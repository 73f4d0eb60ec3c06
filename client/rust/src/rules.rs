//! Which policy serves a path.
//!
//! Rules are `GLOB=POLICY`, separated by `;`, with absolute globs; the first match wins, and what
//! no rule names is hybrid. `*`, `?`, and `[a-z]` stop at a slash, `**` does not, and `/**/` stands
//! for `/`, too. `/dev` (but for `/dev/shm`, where people keep files), `/proc`, and `/sys` are
//! never delegated. A path that the daemon might take for another file's is not told to it.

use core::ffi::CStr;

use rustix::fd::RawFd;

/// The folder that relative names start at, in the words of the kernel.
pub(crate) const CURRENT_FOLDER: RawFd = -100;

/// Policy of the calls on a file.
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

/// The policy for a path that the rules are not about.
pub(crate) fn policy_without_rules(dir: RawFd, path: &CStr) -> Policy {
    let path = path.to_bytes();
    // The kernel refuses an empty name, unless it stands for `dir` itself.
    let is_kernels = is_kernels(path) || path.is_empty() && dir == CURRENT_FOLDER;
    if is_kernels { Policy::Kernels } else { Policy::Hybrid }
}

/// True if no rule can be about a path: the kernel makes up what is there.
#[inline]
pub(crate) fn is_kernels(path: &[u8]) -> bool {
    // Most are not even near.
    if !matches!(path, [b'/', b'd' | b'p' | b's', ..]) {
        return false;
    }
    let is_below = |root: &[u8]| path.starts_with(root);
    is_below(b"/dev/") && !is_below(b"/dev/shm/") || is_below(b"/proc/") || is_below(b"/sys/")
}

/// The policy that rules give an absolute path, and the index of the rule that does.
pub(crate) fn match_rules(rules: &[u8], path: &[u8]) -> (Policy, Option<usize>) {
    for (index, rule) in rules.split(|byte| *byte == b';').enumerate() {
        let Some(split) = rule.iter().rposition(|byte| *byte == b'=') else { continue };
        let (glob, policy) = rule.split_at(split);
        if !matches(glob, path) {
            continue;
        }
        let policy = match policy.get(1..) {
            Some(b"pass") => Policy::Pass,
            Some(b"delegate") => Policy::Delegate,
            Some(b"remote") => Policy::Remote,
            _ => Policy::Hybrid,
        };
        return (policy, Some(index));
    }
    (Policy::Hybrid, None)
}

/// The members of a set, as `abc` or `!a-z`, at the beginning of a glob behind its `[`. `None`: it
/// has no end, so the bracket stands for itself.
fn set(glob: &[u8]) -> Option<&[u8]> {
    let skip = usize::from(matches!(glob, [b'!' | b'^', ..])) + 1;
    let end = glob.iter().skip(skip).position(|byte| *byte == b']')?;
    glob.get(..skip + end)
}

/// True if a byte is in a set; none has a slash.
fn is_in(members: &[u8], byte: u8) -> bool {
    let is_negated = matches!(members, [b'!' | b'^', ..]);
    let mut rest = members.get(usize::from(is_negated)..).unwrap_or_default();
    let mut found = false;
    loop {
        rest = match rest {
            [first, b'-', last, rest @ ..] => {
                found |= (*first..=*last).contains(&byte);
                rest
            }
            [one, rest @ ..] => {
                found |= *one == byte;
                rest
            }
            [] => return byte != b'/' && found != is_negated,
        };
    }
}

/// True if a glob matches the whole of a path.
///
/// Remembers the last star only, so the time is bounded by the product of the lengths; a `**`
/// that turns out to have matched too little is tried again before a `*` is.
fn matches(glob: &[u8], path: &[u8]) -> bool {
    // Most of a glob stands for itself.
    let is_same = |(glob, byte): &(&u8, &u8)| glob == byte && !matches!(glob, b'*' | b'?' | b'[');
    let same = glob.iter().zip(path).take_while(is_same).count();
    let (mut g, mut p) = (same, same);
    let (mut star, mut deep) = (None, None);
    loop {
        let rest = glob.get(g..).unwrap_or_default();
        match (rest, path.get(p)) {
            (b"**", _) => return true,
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
            ([b'[', after @ ..], Some(byte)) if set(after).is_some() => {
                let members = set(after).unwrap_or_default();
                if is_in(members, *byte) {
                    (g, p) = (g + members.len() + 2, p + 1);
                    continue;
                }
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
            ("/[ab]c", "/bc", true),
            ("/[ab]c", "/cc", false),
            ("/r[0-9][0-9].*", "/r07.x", true),
            ("/r[!0-9]", "/r7", false),
            ("/r[!0-9]", "/rx", true),
            ("/a[!b]c", "/a/c", false),
            ("/[]]", "/]", true),
            ("/a[b", "/a[b", true),
            ("/[[]x[]]", "/[x]", true),
            ("/*[ab]/*", "/xcb/y", true),
            ("", "/a", false),
        ] {
            assert_eq!(matches(glob.as_bytes(), path.as_bytes()), expected, "{glob} on {path}");
        }
    }

    #[test]
    fn the_first_rule_wins_and_the_rest_is_hybrid() {
        let rules = b"/a/keep/**=pass;/a/**=delegate";
        assert_eq!(match_rules(rules, b"/a/keep/x"), (Policy::Pass, Some(0)));
        assert_eq!(match_rules(rules, b"/a/x"), (Policy::Delegate, Some(1)));
        assert_eq!(match_rules(rules, b"/b/x"), (Policy::Hybrid, None));
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
}
