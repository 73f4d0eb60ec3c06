//! Where a path leads: to one of the multifiles, or to none.
//!
//! The kernel knows nothing of them. So links on the way are read here, one by one: what leads into
//! a coalesced folder is the multifile's, by whatever name, also where nothing of that is in the
//! real folder. Links that change meanwhile can lead a call past it, not out of the root.

use std::ffi::{CStr, CString};

use rustix::io::Errno;
use storage::scope::{LINKS_MAX, Scope};

/// Where a path leads.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// To this one of the folders, and there to this path.
    Folder(usize, CString),
    /// To none of them, and from the root so, as far as links could be read.
    Else(Vec<u8>),
}

/// The folder that a path is in as it is written, and the path in it. The first one wins that the
/// path does not lead out of at once.
pub(super) fn written<'a>(
    folders: impl Iterator<Item = &'a [u8]>,
    path: &[u8],
) -> Option<(usize, CString)> {
    folders.enumerate().find_map(|(index, folder)| {
        let rest = path.strip_prefix(folder)?;
        let rest = if rest.is_empty() { b"/" } else { rest };
        let is_out = rest == b"/.." || rest.starts_with(b"/../");
        let is_in = rest.starts_with(b"/") && !is_out;
        is_in.then(|| Some((index, CString::new(rest).ok()?))).flatten()
    })
}

/// Where a path leads that is in none of the folders as it is written, which are the longest first.
/// Its last part is followed if it is a link, or not.
///
/// # Errors
///
/// `ELOOP`, also where the kernel would not say so.
pub(super) fn way(
    scope: &Scope,
    folders: &[Vec<u8>],
    path: &CStr,
    follow: bool,
) -> Result<Way, Errno> {
    let path = path.to_bytes();
    if is_plain(scope, path, follow) {
        return Ok(Way::Else(path.to_vec()));
    }
    let parts = |path: &[u8]| -> Vec<Vec<u8>> {
        let parts = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
        parts.rev().map(<[u8]>::to_vec).collect()
    };
    let (mut at, mut rest, mut links) = (Vec::new(), parts(path), 0);
    while let Some(part) = rest.pop() {
        if part == b".." {
            // Nothing leads out of the root: the kernel refuses it.
            let end = at.iter().rposition(|byte| *byte == b'/');
            at.truncate(end.unwrap_or(0));
            continue;
        }
        let next = [&at[..], b"/", &part].concat();
        let is_last = rest.is_empty();
        match scope.link_of(&next) {
            Ok(Some(text)) if follow || !is_last => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::LOOP);
                }
                if text.starts_with(b"/") {
                    return Ok(Way::Else(path.to_vec())); // Out of the root.
                }
                rest.extend(parts(&text));
            }
            _ => at = next,
        }
        // What leads out again at once is none of its.
        if folders.contains(&at) && rest.last().is_none_or(|next| next != b"..") {
            let whole = rest.into_iter().rev().fold(at, |at, part| [&at[..], b"/", &part].concat());
            let found = written(folders.iter().map(|folder| &folder[..]), &whole);
            return Ok(found.map_or(Way::Else(whole), |(index, rest)| Way::Folder(index, rest)));
        }
    }
    Ok(Way::Else(at))
}

/// True if a path has no links, which takes a call or two to find out.
fn is_plain(scope: &Scope, path: &[u8], follow: bool) -> bool {
    let is_dotted = path.split(|byte| *byte == b'/').any(|part| matches!(part, b"." | b".."));
    let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let above = path.get(..end).unwrap_or_default();
    !is_dotted
        && match scope.link_of(path) {
            Ok(text) => text.is_none() || !follow,
            // It may be about to be made.
            Err(_) => matches!(scope.link_of(above), Ok(None)),
        }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn links_lead_where_the_kernel_would_and_into_multifiles() {
        let folder = tempfile::tempdir().expect("folder");
        let root = folder.path();
        fs::create_dir_all(root.join("p/x")).expect("folders");
        fs::create_dir_all(root.join("d/e")).expect("folders");
        fs::write(root.join("d/file"), "").expect("file");
        for (name, text) in [
            ("l", "p/x"),
            ("d/up", "../p"),
            ("d/new", "../l/new"),
            ("deep", "p/x/only/there"),
            ("plain", "d/file"),
            ("out", "/etc"),
            ("o", "o"),
            ("dots", "d/e/../../p/./x"),
        ] {
            symlink(text, root.join(name)).expect("link");
        }
        let scope = Scope::below(root).expect("openat2");
        let folders = [b"/p/x/in".to_vec(), b"/p/x".to_vec()];
        let found = |path: &str, follow| {
            let path = CString::new(path).expect("no NUL");
            match way(&scope, &folders, &path, follow) {
                Ok(Way::Folder(index, rest)) => {
                    format!("{index}:{}", rest.to_str().expect("ASCII"))
                }
                Ok(Way::Else(path)) => String::from_utf8(path).expect("ASCII"),
                Err(errno) => errno.to_string(),
            }
        };
        for (path, follow, expected) in [
            ("/l/f", false, "1:/f"),
            ("/l/a/b", true, "1:/a/b"),
            ("/l", true, "1:/"),
            ("/l", false, "/l"),
            ("/l/in/f", true, "0:/f"),
            ("/l/../q", false, "/p/q"),
            ("/l/./../x/f", false, "1:/f"),
            ("/l/in/../f", false, "1:/in/../f"),
            ("/p/x/../q", false, "/p/q"),
            ("/d/up/x/f", false, "1:/f"),
            ("/d/up/y", false, "/p/y"),
            ("/d/new", true, "1:/new"),
            ("/d/new", false, "/d/new"),
            ("/deep/f", false, "1:/only/there/f"),
            ("/dots/f", false, "1:/f"),
            ("/d/../p/x/f", false, "1:/f"),
            ("/plain", true, "/d/file"),
            ("/d/file", true, "/d/file"),
            ("/d/missing", true, "/d/missing"),
            ("/missing/f", true, "/missing/f"),
            ("/", true, "/"),
            ("/out/passwd", true, "/out/passwd"),
            ("/o", true, &*Errno::LOOP.to_string()),
        ] {
            assert_eq!(found(path, follow), expected, "{path} {follow}");
        }
    }
}
