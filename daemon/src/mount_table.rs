//! The kernel's table of mounts, `/proc/self/mountinfo`.

use std::{os::unix::ffi::OsStringExt as _, path::PathBuf};

/// The place where a device, as `8:1`, is mounted, by the text of `mountinfo`: with its root if
/// that is seen anywhere.
pub(crate) fn place_of(text: &[u8], device: &str) -> Option<PathBuf> {
    let mut found = None;
    for line in text.split(|byte| *byte == b'\n') {
        let line = std::str::from_utf8(line).unwrap_or_default();
        let mut fields = line.split(' ').skip(2);
        if fields.next() != Some(device) {
            continue;
        }
        let (Some(root), Some(place)) = (fields.next(), fields.next()) else { continue };
        if root == "/" {
            return Some(unescaped(place));
        }
        found.get_or_insert_with(|| unescaped(place));
    }
    found
}

/// A path of `mountinfo`, in which blanks and the like are three octal digits.
pub(crate) fn unescaped(text: &str) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        let code = (*first == b'\\').then(|| behind.get(..3)).flatten();
        let code =
            code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = code.and_then(|_| behind.get(3..)).unwrap_or(behind);
    }
    std::ffi::OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn place_of_a_device_is_where_its_root_is_seen() {
        let text = b"36 35 8:1 /x /bound rw - ext4 /dev/sda1 rw
37 35 8:1 / /data/a\\040b rw - ext4 /dev/sda1 rw
38 35 0:45 /sub /only rw - fuse.slowfs slowfs rw\n";
        for (device, place) in [("8:1", Some("/data/a b")), ("0:45", Some("/only")), ("8:2", None)]
        {
            assert_eq!(place_of(text, device).as_deref(), place.map(Path::new));
        }
        assert_eq!(place_of(b"38 35 0:45\n", "0:45"), None);
    }
}
