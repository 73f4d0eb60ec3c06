//! `realpath(3)` of a remote name: links are read one by one, as libc reads those of local ones.
//!
//! A link may lead out of a remote folder, and one outside of it back.

use core::ffi::{CStr, c_char};

use client::{Client, Errno, Path, Room};
use libc::AT_FDCWD;

use crate::{
    bits::counted,
    folders::name_current,
    kernel::Outcome,
    paths::{access_at, read_link_at},
};

/// As the kernel counts.
const LINKS_MAX: u32 = 40;

/// Remainder of a path, at the end of its room: the target of a link goes before it.
struct Rest {
    bytes: Room,
    from: usize,
}

impl Rest {
    fn new() -> Outcome<Self> {
        let bytes = Room::take().ok_or(Errno::NOMEM)?;
        Ok(Self { bytes, from: size_of::<Path>() })
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(self.from..).unwrap_or_default()
    }

    /// Puts a path before what is left.
    fn prefix(&mut self, path: &[u8]) -> Outcome<()> {
        let from = self.from.checked_sub(path.len()).ok_or(Errno::NAMETOOLONG)?;
        let room = self.bytes.get_mut(from..).unwrap_or_default();
        room.iter_mut().zip(path).for_each(|(to, byte)| *to = *byte);
        self.from = from;
        Ok(())
    }

    /// Takes the next name; none is left where it is empty.
    fn next(&mut self) -> &[u8] {
        self.from += self.bytes().iter().take_while(|byte| **byte == b'/').count();
        let start = self.from;
        debug_assert!(start <= size_of::<Path>(), "the rest is at the end of its room");
        self.from += self.bytes().iter().take_while(|byte| **byte != b'/').count();
        self.bytes.get(start..self.from).unwrap_or_default()
    }

    /// True if only a folder can come before this: the next name would not tell.
    fn is_folders(&self) -> bool {
        let mut names = self.bytes().split(|byte| *byte == b'/');
        let next = names.find(|name| !matches!(*name, b"" | b"."));
        !self.bytes().is_empty() && next.is_none_or(|name| name == b"..")
    }
}

/// The path that has been found so far, with a NUL behind it. Without a name it is the root's.
struct Found<'a> {
    bytes: &'a mut Path,
    len: usize,
}

impl Found<'_> {
    fn push(&mut self, name: &[u8]) -> Outcome<()> {
        let end = self.len + 1 + name.len();
        let room = self.bytes.get_mut(self.len..=end).ok_or(Errno::NAMETOOLONG)?;
        let parts = [b'/'].into_iter().chain(name.iter().copied()).chain([0]);
        room.iter_mut().zip(parts).for_each(|(to, byte)| *to = byte);
        self.len = end;
        Ok(())
    }

    fn cut(&mut self, len: usize) {
        debug_assert!(len <= self.len, "names are cut off");
        self.len = len;
        if let Some(end) = self.bytes.get_mut(len) {
            *end = 0;
        }
    }

    /// Takes the last name away.
    fn pop(&mut self) {
        let names = self.bytes.get(..self.len).unwrap_or_default();
        self.cut(names.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
    }

    fn pointer(&self) -> *const c_char {
        self.bytes.as_ptr().cast()
    }
}

/// As `realpath(3)`, in `space`. Apart, for its room for paths.
#[cold]
#[inline(never)]
pub(crate) fn real<'a>(
    client: &'static Client,
    path: &CStr,
    space: &'a mut Path,
) -> Outcome<&'a CStr> {
    let (mut rest, mut found) = (Rest::new()?, Found { bytes: space, len: 0 });
    let mut target = Room::take().ok_or(Errno::NOMEM)?;
    rest.prefix(path.to_bytes())?;
    if !path.to_bytes().starts_with(b"/") {
        // SAFETY: there is so much room.
        let len = unsafe { name_current(target.as_mut_ptr().cast(), target.len()) }?;
        rest.prefix(b"/")?;
        rest.prefix(target.get(..counted(len).saturating_sub(1)).unwrap_or_default())?;
    }
    let mut link_count = 0;
    loop {
        let before = found.len;
        match rest.next() {
            b"" => break,
            b"." => continue,
            b".." => {
                found.pop();
                continue;
            }
            name => found.push(name)?,
        }
        if leads_in(client, &found, &rest) {
            continue;
        }
        let room: *mut Path = &raw mut *target;
        // SAFETY: `found` is a C string, and there is so much room.
        match unsafe { read_link_at(AT_FDCWD, found.pointer(), room.cast(), size_of::<Path>()) } {
            Ok(len) => {
                link_count += 1;
                if link_count > LINKS_MAX {
                    return Err(Errno::LOOP);
                }
                let target = target.get(..counted(len)).unwrap_or_default();
                rest.prefix(target)?;
                found.cut(if target.starts_with(b"/") { 0 } else { before });
            }
            Err(Errno::INVAL) if rest.is_folders() => is_folder(&mut found)?,
            Err(Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
    }
    if found.len == 0 {
        found.push(b"")?;
    }
    CStr::from_bytes_until_nul(found.bytes).map_err(|_| Errno::INVAL)
}

/// True if a local name, and what is left behind it, is remote as it is written: then the names
/// before the remote folder are those of its own path.
fn leads_in(client: &'static Client, found: &Found<'_>, rest: &Rest) -> bool {
    let is_remote = |path: &Path| {
        CStr::from_bytes_until_nul(path).is_ok_and(|path| client.is_remote(AT_FDCWD, path))
    };
    if is_remote(found.bytes) {
        return false;
    }
    let Some(mut whole) = Room::take() else { return false };
    *whole = *found.bytes;
    let room = whole.get_mut(found.len..).unwrap_or_default();
    if room.len() <= rest.bytes().len() {
        return false;
    }
    let rest = rest.bytes().iter().copied().chain([0]);
    room.iter_mut().zip(rest).for_each(|(to, byte)| *to = byte);
    is_remote(&whole)
}

/// # Errors
///
/// `ENOTDIR`: what has been found is no folder.
fn is_folder(found: &mut Found<'_>) -> Outcome<()> {
    let len = found.len;
    found.push(b"")?;
    // SAFETY: a C string.
    let checked = unsafe { access_at(AT_FDCWD, found.pointer(), libc::F_OK, 0) };
    found.cut(len);
    checked.map(drop)
}
