//! Which policy serves a path.
//!
//! Rules are `GLOB=POLICY`, separated by `;`, with absolute globs; the first match wins, and what
//! no rule names is hybrid. `*`, `?`, and `[a-z]` stop at a slash, `**` does not, and `/**/` stands
//! for `/`, too. `/dev` (but for `/dev/shm`, where people keep files), `/proc`, and `/sys` are
//! never delegated. A path that the daemon might take for another file's is not told to it.

use core::ffi::CStr;

use rustix::fd::RawFd;

use crate::text::Text;

/// Longest text of rules, bytes.
const TEXT_MAX: usize = 4096;
/// Rules that are taken apart when they are set; more are at each path.
const KNOWN_MAX: usize = 32;

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

/// The rules in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    text: Text<TEXT_MAX>,
    /// The first ones, taken apart.
    known: [Rule; KNOWN_MAX],
    known_count: usize,
    /// Where the others begin in the text.
    rest_at: usize,
    has_remote: bool,
}

/// A rule in a text of rules.
#[derive(Clone, Copy, Debug)]
struct Rule {
    at: u16,
    glob_len: u16,
    /// Bytes of the glob that stand for themselves, at its beginning; or as many as are counted.
    plain_len: u8,
    /// `None`: it says nothing.
    policy: Option<Policy>,
}

impl Rules {
    pub(crate) const fn new() -> Self {
        let none = Rule { at: 0, glob_len: 0, plain_len: 0, policy: None };
        let (text, known) = (Text::new(), [none; KNOWN_MAX]);
        Self { text, known, known_count: 0, rest_at: 0, has_remote: false }
    }

    /// `None`, and nothing: they are too long.
    pub(crate) fn set(&mut self, text: &[u8]) -> Option<()> {
        self.text.set(text)?;
        let mut rules = Rule::all(text, 0);
        self.known_count = 0;
        for (known, (rule, end)) in self.known.iter_mut().zip(&mut rules) {
            *known = rule;
            self.known_count += 1;
            self.rest_at = end;
        }
        self.has_remote = Rule::all(text, 0).any(|(rule, _)| rule.policy == Some(Policy::Remote));
        Some(())
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rest_at == 0
    }

    /// True if any path is remote.
    pub(crate) const fn has_remote(&self) -> bool {
        self.has_remote
    }

    /// Globs of remote paths.
    pub(crate) fn remote(&self) -> impl Iterator<Item = &[u8]> {
        let text = self.text.get();
        let remote = Rule::all(text, 0).filter(|(rule, _)| rule.policy == Some(Policy::Remote));
        remote.map(|(rule, _)| rule.glob(text))
    }

    /// The policy of an absolute path, and the index of the rule that gives it.
    pub(crate) fn of(&self, path: &[u8]) -> (Policy, Option<usize>) {
        let text = self.text.get();
        let known = self.known.iter().take(self.known_count).copied();
        let others = Rule::all(text, self.rest_at).map(|(rule, _)| rule);
        for (index, rule) in known.chain(others).enumerate() {
            if let Some(policy) = rule.policy.filter(|_| rule.matches(text, path)) {
                return (policy, Some(index));
            }
        }
        (Policy::Hybrid, None)
    }
}

impl Rule {
    /// The rules in a text from `at` on, each with where the next one begins.
    fn all(text: &[u8], mut at: usize) -> impl Iterator<Item = (Self, usize)> + use<'_> {
        core::iter::from_fn(move || {
            let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
            let len = rest.iter().position(|byte| *byte == b';').unwrap_or(rest.len());
            let rule = Self::new(at, rest.get(..len)?);
            at += len + 1;
            Some((rule, at))
        })
    }

    fn new(at: usize, rule: &[u8]) -> Self {
        let split = rule.iter().rposition(|byte| *byte == b'=');
        let (glob, policy) = rule.split_at(split.unwrap_or(0));
        let policy = match policy {
            b"=pass" => Some(Policy::Pass),
            b"=delegate" => Some(Policy::Delegate),
            b"=remote" => Some(Policy::Remote),
            [b'=', ..] => Some(Policy::Hybrid),
            _ => None,
        };
        let is_plain = |byte: &&u8| !matches!(byte, b'*' | b'?' | b'[');
        let plain_len = glob.iter().take_while(is_plain).take(u8::MAX.into()).count();
        // The text is short.
        let short = |len| u16::try_from(len).unwrap_or(u16::MAX);
        let plain_len = u8::try_from(plain_len).unwrap_or(u8::MAX);
        Self { at: short(at), glob_len: short(glob.len()), plain_len, policy }
    }

    fn glob(self, text: &[u8]) -> &[u8] {
        let (at, len) = (usize::from(self.at), usize::from(self.glob_len));
        text.get(at..).and_then(|glob| glob.get(..len)).unwrap_or_default()
    }

    fn matches(self, text: &[u8], path: &[u8]) -> bool {
        let (glob, plain) = (self.glob(text), self.plain_len.into());
        path.get(..plain) == glob.get(..plain) && matches_from(glob, path, plain)
    }
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

/// True if a glob matches the whole of a path; their first bytes are known to be the same.
///
/// Remembers the last star only, so the time is bounded by the product of the lengths; a `**`
/// that turns out to have matched too little is tried again before a `*` is.
fn matches_from(glob: &[u8], path: &[u8], same: usize) -> bool {
    debug_assert_eq!(glob.get(..same), path.get(..same), "what is known is so");
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
    use std::{format, vec::Vec};

    use super::*;

    #[test]
    fn globs_match_as_in_a_shell() {
        let matches = |rule: &[u8], path: &[u8]| Rule::new(0, rule).matches(rule, path);
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
            let rule = format!("{glob}=pass");
            assert_eq!(matches(rule.as_bytes(), path.as_bytes()), expected, "{glob} on {path}");
            assert_eq!(matches_from(glob.as_bytes(), path.as_bytes(), 0), expected, "{glob}");
        }
    }

    #[test]
    fn the_first_rule_wins_and_the_rest_is_hybrid() {
        let mut rules = Rules::new();
        assert!(rules.is_empty() && rules.of(b"/a/x") == (Policy::Hybrid, None));
        assert_eq!(rules.set(b"/a/keep/**=pass;/a/**=delegate"), Some(()));
        assert_eq!(rules.of(b"/a/keep/x"), (Policy::Pass, Some(0)));
        assert_eq!(rules.of(b"/a/x"), (Policy::Delegate, Some(1)));
        assert_eq!(rules.of(b"/b/x"), (Policy::Hybrid, None));
        assert!(!rules.is_empty() && !rules.has_remote());
    }

    #[test]
    fn many_rules_and_odd_ones_keep_their_numbers() {
        let many: Vec<_> = (0..3 * KNOWN_MAX).map(|n| format!("/{n}/a*=delegate")).collect();
        let text = format!("nothing;;{};/**=remote", many.join(";"));
        let mut rules = Rules::new();
        assert_eq!(rules.set(text.as_bytes()), Some(()));
        assert!(rules.has_remote());
        for n in 0..3 * KNOWN_MAX {
            let path = format!("/{n}/ab");
            assert_eq!(rules.of(path.as_bytes()), (Policy::Delegate, Some(n + 2)), "{path}");
        }
        assert_eq!(rules.of(b"/x"), (Policy::Remote, Some(3 * KNOWN_MAX + 2)));
        let long = format!("/{}/*=pass;/b=remote", "a".repeat(2 * usize::from(u8::MAX)));
        assert_eq!(rules.set(long.as_bytes()), Some(()));
        let path = |byte: &str| format!("/{}{byte}/c", "a".repeat(2 * usize::from(u8::MAX) - 1));
        assert_eq!(rules.of(path("a").as_bytes()), (Policy::Pass, Some(0)));
        assert_eq!(rules.of(path("b").as_bytes()), (Policy::Hybrid, None));
        assert_eq!(rules.set(&[b'/'; TEXT_MAX + 1]), None);
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
        assert!(!matches_from(&glob, &b"a".repeat(4000), 0));
    }
}
