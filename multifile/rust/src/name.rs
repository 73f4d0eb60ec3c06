//! Names of the physical files of a set, and of what stands beside them.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

/// The name of physical file `file` of the set `set`: the set's own name for file 0, then
/// `set.000001` and so on (format section 6).
#[must_use]
pub fn physical(set: &Path, file: u32) -> PathBuf {
    if file == 0 { set.to_owned() } else { suffixed(set, &format!(".{file:06}")) }
}

/// The name of level `level` of the buddy copies of `set`.
#[must_use]
pub fn buddy(set: &Path, level: u32) -> PathBuf {
    suffixed(set, &format!("_BUDDY_{level:02}"))
}

/// The set that `set` is a buddy copy of, by its name.
#[must_use]
pub fn original(set: &Path) -> Option<&Path> {
    let bytes = set.as_os_str().as_bytes();
    let (original, level) = bytes.split_at_checked(bytes.len().checked_sub(2)?)?;
    let original = original.strip_suffix(b"_BUDDY_")?;
    level.iter().all(u8::is_ascii_digit).then(|| Path::new(OsStr::from_bytes(original)))
}

/// The name of the journal beside a physical file (format section 8).
#[must_use]
pub fn journal(physical: &Path) -> PathBuf {
    suffixed(physical, ".journal")
}

/// The name under which rank `rank` makes the file that it restores from a buddy copy of a physical
/// file; it is removed as soon as it is open.
#[must_use]
pub fn restored(physical: &Path, rank: u32) -> PathBuf {
    suffixed(physical, &format!(".restored.{rank}"))
}

/// True if `name` is that of the set `set` or is derived from it: a physical file, a buddy copy, or
/// the journal of one. Both are names in one folder.
#[must_use]
pub fn is_of_set(set: &[u8], name: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(set) else { return false };
    let rest = rest.strip_suffix(b".journal").unwrap_or(rest);
    let rest = after_number(rest, b"_BUDDY_");
    after_number(rest, b".").is_empty()
}

/// True if `path` is the name of a physical file of the set `set`, or of a copy, but the first.
pub(crate) fn is_further(set: &Path, path: &Path) -> bool {
    let [set, path] = [set, path].map(|path| path.as_os_str().as_bytes());
    let Some(rest) = path.strip_prefix(set) else { return false };
    let number = after_number(rest, b"_BUDDY_").strip_prefix(b".");
    number.is_some_and(|number| number.len() >= 6 && number.iter().all(u8::is_ascii_digit))
}

/// The text behind `sign` and at least one digit; all of it where it does not begin so.
fn after_number<'a>(text: &'a [u8], sign: &[u8]) -> &'a [u8] {
    let Some(number) = text.strip_prefix(sign) else { return text };
    let len = number.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if len == 0 { text } else { number.get(len..).unwrap_or_default() }
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_names_belong_to_their_set() {
        let set = Path::new("a.sion");
        let copy = buddy(set, 3);
        let files = [physical(set, 0), physical(set, 1), physical(set, 1_234_567)];
        let copies = [physical(&copy, 0), physical(&copy, 2)];
        for path in files.iter().chain(&copies).flat_map(|path| [path.clone(), journal(path)]) {
            let name = path.as_os_str().as_encoded_bytes();
            assert!(is_of_set(b"a.sion", name), "{}", path.display());
        }
        let further = [&files[1], &files[2], &copies[1]];
        assert!(further.iter().all(|path| is_further(set, path)));
        let others = [&files[0], &copies[0], &journal(&files[1]), &restored(&files[1], 3)];
        assert!(!others.iter().any(|path| is_further(set, path)));
        assert_eq!(original(&copy), Some(set));
        assert_eq!(original(set), None);
        for name in ["a.sio", "a.sion2", "a.sion.", "a.sion.x", "a.sion.1.journal.x", "b.a.sion"] {
            assert!(!is_of_set(b"a.sion", name.as_bytes()), "{name}");
        }
    }
}
