//! Mounting a folder's view, and unmounting it.
//!
//! Root mounts it itself, for everybody; others by `fusermount3`, for themselves. Which mount is
//! there is read from `/proc/self/mountinfo`: to ask the folder would be a request to the view.

use std::{
    ffi::CString,
    fs, io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{
        AtFlags, CWD, FlockOperation, Mode, OFlags, StatxAttributes, StatxFlags, flock, makedev,
        open, statx,
    },
    io::{Errno, FdFlags, fcntl_getfd, fcntl_setfd},
    mount::{MountFlags, UnmountFlags, mount, unmount},
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    process::{getegid, geteuid},
};

use crate::{mount_table::unescaped, socket};

pub(super) const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
/// The type of these mounts, for whoever lists them.
const TYPE: &str = "fuse.kakehi";
const SOURCE: &str = "kakehi";
/// Tells the helper where to send the descriptor.
const HELPER_SOCKET: &str = "_FUSE_COMMFD";

/// How long a view may take to say that it is served.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);
/// How long one is waited for that may be dying.
const SILENT_AFTER: Duration = Duration::from_secs(5);
/// How long others are waited for that mount views, and how long between two looks.
const TURN_WITHIN: Duration = Duration::from_secs(5);
const TURN_PAUSE: Duration = Duration::from_micros(500);
/// Views of killed daemons that may lie over each other.
const LAYERS_MAX: usize = 16;

/// A mounted view.
#[derive(Debug)]
pub(super) struct Mounted {
    /// The folder.
    pub(super) local: PathBuf,
    /// Where the kernel's requests come from.
    pub(super) device: OwnedFd,
    /// Its files' device number.
    pub(super) number: u64,
    /// Inode of the folder that it is in.
    pub(super) above: u64,
    /// True if everybody may use it, as far as modes let them.
    pub(super) is_for_all: bool,
}

impl Mounted {
    /// Mounts a view at `local`, an absolute path without links.
    ///
    /// # Errors
    ///
    /// `EBUSY`: another job's view is there. Else what refused: the device, `mount(2)`, or the
    /// helper.
    /// With mounts of this job's own, whatever view is there is another's, and stays below.
    pub(super) fn at(local: &Path, is_read_only: bool, is_apart: bool) -> io::Result<Self> {
        // Of jobs that start together one mounts here, and the others find its view.
        let _turn = turn();
        clear(local)?;
        if view_at(local).is_some() && !is_apart {
            return Err(Errno::BUSY.into());
        }
        let is_for_all = geteuid().is_root();
        let device = if is_for_all || is_apart {
            mount_directly(local, is_read_only, is_for_all)?
        } else {
            mount_by_helper(local, is_read_only)?
        };
        let number = view_at(local).ok_or(Errno::NOENT)?;
        let above = fs::metadata(local.parent().unwrap_or(local))?.ino();
        Ok(Self { local: local.to_owned(), device, number, above, is_for_all })
    }

    /// Takes the view away; who has files of it open keeps these.
    pub(super) fn take_away(&self) -> io::Result<()> {
        // The number of one that is gone may be another job's by now.
        if !self.is_there() {
            return Ok(());
        }
        if view_at(&self.local) == Some(self.number) {
            return detach(&self.local);
        }
        // A folder above may have been renamed. Somebody else's view may be over it.
        match place_of(self.number).filter(|place| view_at(place) == Some(self.number)) {
            Some(place) => detach(&place),
            None => Ok(()),
        }
    }

    /// False once it was unmounted, by whomever, and nobody has a file of it open.
    fn is_there(&self) -> bool {
        let mut device = [PollFd::new(&self.device, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut device, Some(&now)).is_ok() && device[0].revents().is_empty()
    }
}

impl Drop for Mounted {
    /// Nothing is left at the folder when the daemon is gone.
    fn drop(&mut self) {
        self.take_away().ok();
    }
}

/// Waits until no other process is about to mount a view, but not for ever: anybody who may open
/// the device may hold its lock.
#[expect(clippy::disallowed_methods, reason = "nobody is served yet, and no lock has a timer")]
fn turn() -> Option<OwnedFd> {
    let device = open(DEVICE, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let until = Instant::now() + TURN_WITHIN;
    while flock(&device, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        if Instant::now() > until {
            return None;
        }
        thread::sleep(TURN_PAUSE);
    }
    Some(device)
}

fn mount_directly(local: &Path, is_read_only: bool, is_for_all: bool) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let device = open(DEVICE, flags, Mode::empty())?;
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let data = format!(
        "fd={},rootmode=40000,user_id={user},group_id={group}{}",
        device.as_raw_fd(),
        if is_for_all { ",default_permissions,allow_other" } else { "" }
    );
    let access = if is_read_only { MountFlags::RDONLY } else { MountFlags::empty() };
    let flags = MountFlags::NOSUID | MountFlags::NODEV | access;
    mount(SOURCE, local, TYPE, flags, &*CString::new(data)?)?;
    Ok(device)
}

/// Has the set-user-id helper mount, which sends the device's descriptor back.
fn mount_by_helper(local: &Path, is_read_only: bool) -> io::Result<OwnedFd> {
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let (ours, its) = pair;
    let flags = fcntl_getfd(&its)? - FdFlags::CLOEXEC;
    fcntl_setfd(&its, flags)?;
    let mut helper = Command::new(HELPER);
    let access = if is_read_only { "ro" } else { "rw" };
    let options = format!("{access},nosuid,nodev,fsname={SOURCE},subtype=kakehi");
    helper.args(["-o", &options, "--"]).arg(local);
    helper.env(HELPER_SOCKET, its.as_raw_fd().to_string()).current_dir("/");
    let output = helper.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output();
    drop(its);
    let output = output?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(said.trim().to_owned()));
    }
    let packet = socket::receive(&ours)?.ok_or(Errno::PROTO)?;
    let device = packet.fds.into_iter().next().ok_or(Errno::PROTO)?;
    let flags = rustix::fs::fcntl_getfl(&device)?;
    rustix::fs::fcntl_setfl(&device, flags | OFlags::NONBLOCK)?;
    Ok(device)
}

/// Takes a view away that nobody uses.
///
/// # Errors
///
/// `EBUSY`: a program has a file of it open or mapped, or is in it. Others as `umount(2)`.
pub fn take_away_unused(local: &Path) -> io::Result<()> {
    if view_at(local).is_none() {
        return Ok(());
    }
    unmount_as(local, UnmountFlags::NOFOLLOW, "--", Errno::BUSY)
}

fn detach(local: &Path) -> io::Result<()> {
    unmount_as(local, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW, "-z", Errno::PERM)
}

/// Unmounts, or has the helper do so, which is given `option` and does not say `why` it fails.
fn unmount_as(local: &Path, flags: UnmountFlags, option: &str, why: Errno) -> io::Result<()> {
    let unmounted = unmount(local, flags);
    if geteuid().is_root() || unmounted.is_ok() {
        return Ok(unmounted?);
    }
    let mut helper = Command::new(HELPER);
    helper.args(["-u", "-q", option]).arg(local).current_dir("/");
    helper.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = helper.status()?;
    if status.success() { Ok(()) } else { Err(why.into()) }
}

/// Takes away what daemons that were killed have left at a folder: views that nobody serves.
///
/// # Errors
///
/// One cannot be taken away.
pub fn clear(local: &Path) -> io::Result<()> {
    // A killed job may have been mounted over another.
    for _ in 0..LAYERS_MAX {
        if view_at(local).is_none() || is_served(local) {
            return Ok(());
        }
        detach(local)?;
    }
    Ok(())
}

/// Takes away all views at a folder, of mounts that nobody else sees.
pub(super) fn clear_all(local: &Path) {
    for _ in 0..LAYERS_MAX {
        if view_at(local).is_none() || detach(local).is_err() {
            return;
        }
    }
}

/// True if ordinary users can mount by the helper.
pub(super) fn has_helper() -> bool {
    let mut helper = Command::new(HELPER);
    helper.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    helper.status().is_ok_and(|status| status.success())
}

/// True if somebody serves the view there. One whose daemon hangs is served.
fn is_served(local: &Path) -> bool {
    let Ok(local) = CString::new(local.as_os_str().as_bytes()) else { return true };
    let answer = uring::statfs_within(&local, ANSWERS_WITHIN);
    !matches!(answer, Ok(Some(error)) if is_gone(error))
}

/// True if there is a view that cannot be asked: its daemon does not answer for 5 s, as one that
/// was stopped, or serves another user. Waits for one that is dying, whose view fails then.
#[must_use]
pub fn is_barred(local: &Path) -> bool {
    let Ok(path) = CString::new(local.as_os_str().as_bytes()) else { return false };
    let asked = || uring::statfs_within(&path, SILENT_AFTER);
    view_at(local).is_some() && !matches!(asked(), Ok(Some(error)) if error == 0 || is_gone(error))
}

/// True for what the kernel answers where a connection is gone; it asks nobody.
fn is_gone(error: i32) -> bool {
    [Errno::NOTCONN, Errno::CONNABORTED].map(Errno::raw_os_error).contains(&error)
}

/// A mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A view; its device number.
    View(u64),
    /// Any other; true if it is read-only.
    Other(bool),
}

/// The device number of the view that is mounted at a folder, over all else.
fn view_at(local: &Path) -> Option<u64> {
    match found_at(local)? {
        Found::View(number) => Some(number),
        Found::Other(_) => None,
    }
}

/// The topmost mount at a folder.
pub(crate) fn found_at(local: &Path) -> Option<Found> {
    if !may_be_mount(local) {
        return None;
    }
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    let lines = mounts.split(|byte| *byte == b'\n');
    let mounts = lines.filter_map(mount_of).filter(|(place, _)| place == local);
    mounts.map(|(_, found)| found).next_back()
}

/// The folder where the view of a device number is mounted.
fn place_of(number: u64) -> Option<PathBuf> {
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    let mut mounts = mounts.split(|byte| *byte == b'\n').filter_map(mount_of);
    mounts.find(|(_, found)| *found == Found::View(number)).map(|(place, _)| place)
}

/// False if nothing is mounted at a folder: the table of all mounts may be long. Without attributes
/// asked for, and none that is to be brought up to date, this is no request to a view either.
fn may_be_mount(local: &Path) -> bool {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let found = match statx(CWD, local, flags, StatxFlags::empty()) {
        Ok(found) => found,
        Err(why) => return why != Errno::NOENT,
    };
    // Before Linux 5.8 nobody says so.
    let says = found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT);
    !says || found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
}

/// True if a view is mounted at a folder, this job's or another's.
#[must_use]
pub fn is_mounted(local: &Path) -> bool {
    view_at(local).is_some()
}

/// The mount that a line of `mountinfo` tells of, and its place.
fn mount_of(line: &[u8]) -> Option<(PathBuf, Found)> {
    let line = std::str::from_utf8(line).ok()?;
    let mut fields = line.split(' ');
    let (major, minor) = fields.nth(2)?.split_once(':')?;
    let number = makedev(major.parse().ok()?, minor.parse().ok()?);
    let place = fields.nth(1)?;
    let is_read_only = fields.next()?.split(',').any(|option| option == "ro");
    let (_, system) = line.split_once(" - ")?;
    let is_view = system.split(' ').next() == Some(TYPE);
    let found = if is_view { Found::View(number) } else { Found::Other(is_read_only) };
    Some((unescaped(place), found))
}

/// The bytes of a path.
pub(super) fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn view_is_found_by_its_type_and_its_place() {
        let line = b"36 35 0:45 / /data/a\\040b rw,nosuid - fuse.kakehi kakehi rw,user_id=0";
        let at = |place: &str, found: Found| Some((PathBuf::from(place), found));
        assert_eq!(mount_of(line), at("/data/a b", Found::View(makedev(0, 45))));
        let other = b"36 35 8:1 / /data rw shared:1 - ext4 /dev/sda1 rw";
        assert_eq!(mount_of(other), at("/data", Found::Other(false)));
        let other = b"36 35 8:1 /x /data ro,relatime - ext4 /dev/sda1 rw";
        assert_eq!(mount_of(other), at("/data", Found::Other(true)));
        assert_eq!(mount_of(b""), None);
    }

    #[test]
    fn mounts_are_told_from_folders_by_their_attributes() {
        let folder = tempfile::tempdir().expect("temporary folder");
        assert!(may_be_mount(Path::new("/proc")) && found_at(Path::new("/proc")).is_some());
        assert!(found_at(folder.path()).is_none());
        assert!(!may_be_mount(&folder.path().join("missing")));
        let file = open(folder.path(), OFlags::PATH, Mode::empty()).expect("opened");
        let flags = AtFlags::EMPTY_PATH;
        let said = statx(&file, c"", flags, StatxFlags::empty()).expect("asked");
        if said.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
            assert!(!may_be_mount(folder.path()));
        }
    }
}
