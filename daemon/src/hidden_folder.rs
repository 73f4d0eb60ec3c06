//! Folders of this node that a mapping hides: read-only as long as it does, because what a program
//! past the library wrote there would be lost.
//!
//! The right to write is taken off the folder's mode. Root heeds no mode: where there is no view it
//! gets the folder mounted over itself, read-only. What the mode was is kept in the mode, so that
//! whoever comes next restores it, whatever was killed: the set-user-id bit, which means nothing on
//! a folder, says that Kakehi changed it, and the sticky bit that the group might write. Folders
//! for which these do not suffice are left as they are: those that everybody may write, or that are
//! somebody else's.
//!
//! Runs that use one folder at a time hold a shared lock on it, and the last one restores it.

use std::{
    fmt, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        CWD, FlockOperation, Mode, OFlags, StatVfsMountFlags, fchmod, flock, fstat, fstatvfs,
        openat,
    },
    io::Errno,
    mount::{MountFlags, UnmountFlags, mount_bind_recursive, mount_remount, unmount},
    process::{getegid, geteuid, getgroups},
};

use crate::view::mount::{Found, clear, found_at};

/// Says that a mode was changed.
const CHANGED: Mode = Mode::SUID;
/// Says that the group might write.
const GROUP_WROTE: Mode = Mode::SVTX;

/// A local folder below which programs see a server's files. It is as it was once this is dropped.
#[derive(Debug)]
pub struct HiddenFolder {
    /// Its one true name.
    local: PathBuf,
    /// The folder below whatever is mounted there later. Locked.
    folder: OwnedFd,
}

impl HiddenFolder {
    /// Takes hold of a folder before its files are elsewhere; what a killed run has left there is
    /// mended. `None`: another job's view is there.
    ///
    /// # Errors
    ///
    /// The folder cannot be opened or locked.
    pub fn take(local: &Path) -> io::Result<Option<Self>> {
        debug_assert!(local.is_absolute(), "mounts are looked for by their whole path");
        clear(local).ok(); // Whoever mounts over it says why it cannot.
        if matches!(found_at(local), Some(Found::View(_))) {
            return Ok(None);
        }
        let mut folder = open(local)?;
        if restored(Mode::from_raw_mode(fstat(&folder)?.st_mode)).is_some() {
            drop(Self { local: local.to_owned(), folder }); // Mends it.
            folder = open(local)?;
        }
        flock(&folder, FlockOperation::NonBlockingLockShared)?;
        Ok(Some(Self { local: local.to_owned(), folder }))
    }

    /// Has nobody write into the folder.
    ///
    /// # Errors
    ///
    /// It stays writable.
    pub fn seal(&self) -> io::Result<()> {
        debug_assert!(self.local.is_absolute(), "mounts are looked for by their whole path");
        let found = fstat(&self.folder)?;
        let (mode, is_root) = (Mode::from_raw_mode(found.st_mode), geteuid().is_root());
        if mode.contains(CHANGED) {
            return Ok(()); // Another run's doing.
        }
        // The kernel would take the bit away.
        let keeps_group = is_root || !mode.contains(Mode::SGID) || is_member(found.st_gid);
        let sealed = sealed(mode, is_root).filter(|_| keeps_group).ok_or(io::ErrorKind::Other)?;
        fchmod(&self.folder, sealed)?;
        if is_root && found_at(&self.local).is_none_or(|found| matches!(found, Found::Other(_))) {
            self.cover()?;
        }
        Ok(())
    }

    /// Mounts the folder over itself, read-only.
    fn cover(&self) -> io::Result<()> {
        mount_bind_recursive(&self.local, &self.local)?;
        // All that is not named is dropped.
        let kept = [
            (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
            (StatVfsMountFlags::NODEV, MountFlags::NODEV),
            (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        ];
        let has = fstatvfs(&self.folder)?.f_flag;
        let kept = kept.into_iter().filter(|(flag, _)| has.contains(*flag)).map(|(_, flag)| flag);
        let flags = kept.fold(MountFlags::BIND | MountFlags::RDONLY, |flags, flag| flags | flag);
        mount_remount(&self.local, flags, c"").or_else(|why| {
            unmount(&self.local, UnmountFlags::DETACH)?;
            Err(why.into())
        })
    }

    /// Makes the folder what it was. The caller has it alone.
    fn restore(&self) -> io::Result<()> {
        let Some(mode) = restored(Mode::from_raw_mode(fstat(&self.folder)?.st_mode)) else {
            return Ok(());
        };
        match found_at(&self.local) {
            Some(Found::Other(is_read_only)) if is_read_only && geteuid().is_root() => {
                unmount(&self.local, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?;
                Ok(fchmod(open(&self.local)?, mode)?)
            }
            // Through a view that is there yet.
            _ => Ok(fchmod(&self.folder, mode)?),
        }
    }
}

impl fmt::Display for HiddenFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.local.display().fmt(f)
    }
}

impl Drop for HiddenFolder {
    fn drop(&mut self) {
        let is_last = flock(&self.folder, FlockOperation::NonBlockingLockExclusive);
        // Network file systems lock only what is open to be written exclusively.
        if is_last != Err(Errno::AGAIN) {
            self.restore().ok(); // The next run tries again.
        }
    }
}

fn open(local: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(CWD, local, flags, Mode::empty())?)
}

fn is_member(group: u32) -> bool {
    let groups = getgroups().unwrap_or_default();
    getegid().as_raw() == group || groups.iter().any(|other| other.as_raw() == group)
}

/// The mode by which nobody writes, and which tells what it was. Root's is told from others': only
/// they take rights away.
fn sealed(mode: Mode, is_root: bool) -> Option<Mode> {
    if !mode.contains(Mode::WUSR) {
        return None;
    }
    if is_root {
        return Some(mode | CHANGED);
    }
    if mode.intersects(Mode::WOTH | GROUP_WROTE) {
        return None;
    }
    let group = if mode.contains(Mode::WGRP) { GROUP_WROTE } else { Mode::empty() };
    Some((mode - (Mode::WUSR | Mode::WGRP)) | CHANGED | group)
}

/// The mode before; `None`: it is not changed.
fn restored(mode: Mode) -> Option<Mode> {
    if !mode.contains(CHANGED) {
        return None;
    }
    let plain = mode - CHANGED;
    if mode.contains(Mode::WUSR) {
        return Some(plain);
    }
    let group = if mode.contains(GROUP_WROTE) { Mode::WGRP } else { Mode::empty() };
    Some((plain - GROUP_WROTE) | Mode::WUSR | group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_is_restored_from_what_it_was_made() {
        for is_root in [true, false] {
            for mode in [0o755, 0o700, 0o775, 0o2775, 0o2750, 0o300, 0o777, 0o1777, 0o1755, 0o555] {
                let mode = Mode::from_raw_mode(mode);
                let Some(sealed) = sealed(mode, is_root) else { continue };
                assert_eq!(restored(sealed), Some(mode), "{mode:?} by root: {is_root}");
                assert!(is_root || !sealed.intersects(Mode::WUSR | Mode::WGRP | Mode::WOTH));
                assert_eq!(restored(mode), None);
            }
        }
        let has = |mode: u32, is_root| sealed(Mode::from_raw_mode(mode), is_root).is_some();
        assert!(has(0o2775, false) && !has(0o777, false) && has(0o777, true) && !has(0o555, true));
    }

    #[test]
    fn folder_is_read_only_until_the_last_user_has_left_it() {
        let base = tempfile::tempdir().expect("folder");
        let local = base.path().canonicalize().expect("there");
        let mode = || {
            let found = rustix::fs::stat(&local).expect("there");
            Mode::from_raw_mode(found.st_mode)
        };
        let before = mode();
        let writes = || std::fs::write(local.join("f"), "").is_ok();
        let can_cover = || {
            let covered = HiddenFolder::take(&local).expect("ours").expect("no view");
            covered.seal().is_ok()
        };
        if !can_cover() {
            return; // Root without the right to mount.
        }
        let first = HiddenFolder::take(&local).expect("ours").expect("no view");
        assert!(writes(), "not yet");
        first.seal().expect("ours");
        assert!(!writes());
        let second = HiddenFolder::take(&local).expect("ours").expect("no view");
        second.seal().expect("ours");
        drop(first);
        assert!(!writes(), "another run uses it");
        // As if it was killed: the lock is gone, and nothing is restored.
        let HiddenFolder { folder, .. } = &second;
        flock(folder, FlockOperation::Unlock).expect("locked");
        let third = HiddenFolder::take(&local).expect("ours").expect("no view");
        assert!(writes() && mode() == before, "mended");
        third.seal().expect("ours");
        drop((second, third));
        assert!(writes() && mode() == before && found_at(&local).is_none());
    }
}
