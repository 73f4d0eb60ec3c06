//! Remote files that become the kernel's: their folder is mounted, so there they are files as any
//! other, for all that only the kernel can do with one.
//!
//! The program opens the file by its name in the view, and looks whether it is the same one: by its
//! inode number, which the view mixes with the device's where its files have several. The daemon
//! serves the open as any stranger's, so nothing here may hold what it waits for: what is staged is
//! drained first.

use core::{ffi::CStr, sync::atomic::Ordering};

use rustix::{
    fd::{OwnedFd, RawFd},
    fs::{self, CWD, Mode, OFlags, SeekFrom},
    io::{self, Errno},
};
use shm::copy::copy_out;
use wire::{Reason, Request};

use crate::{
    client::Client,
    file::{Descriptor, Link},
    locked::Locked,
    rooms::Room,
    staging,
};

impl Client {
    /// Leaves a remote file to the kernel. Returns whether it did: its folder may have no view, the
    /// file no name, or this process locks of files that would be lost.
    pub fn leave_to_view(&'static self, fd: RawFd, reason: Reason) -> bool {
        let Some(mut file) = self.locked_fd(fd) else { return false };
        file.leave_to_view(reason).is_ok()
    }

    /// A descriptor of a remote file for the kernel to read it by, beside the program's own.
    pub fn opened_in_view(&'static self, fd: RawFd) -> Option<OwnedFd> {
        let mut file = self.locked_fd(fd)?;
        let link = file.link.filter(|_| file.descriptor == Descriptor::Remote)?;
        file.drain();
        file.open_in_view(link, OFlags::RDONLY).ok()
    }
}

impl Locked {
    fn leave_to_view(&mut self, reason: Reason) -> io::Result<()> {
        let link = self.link.filter(|_| self.descriptor == Descriptor::Remote);
        let link = link.ok_or(Errno::BADF)?;
        if self.client.has_locks.load(Ordering::Acquire) {
            return Err(Errno::NOLCK);
        }
        self.release_window();
        self.drain();
        let access = match (self.access.readable, self.access.writable) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            _ => OFlags::RDONLY,
        };
        let append = if self.access.append { OFlags::APPEND } else { OFlags::empty() };
        let real = self.open_in_view(link, access | append)?;
        let to = match self.entry.position.load(Ordering::Relaxed) {
            u64::MAX => SeekFrom::End(0),
            at => SeekFrom::Start(at),
        };
        fs::seek(&real, to)?;
        self.client.replace_numbers(self.fd, &real);
        self.descriptor = Descriptor::Real;
        staging::unlink(self);
        self.fall_back(reason);
        Ok(())
    }

    fn open_in_view(&self, link: Link, flags: OFlags) -> io::Result<OwnedFd> {
        let mut name = Room::take().ok_or(Errno::NOMEM)?;
        let request = Request::Name { file: link.slot };
        let (len, lane) = self.client.ask_remote(&[], &[], |_| request)?;
        let len = usize::try_from(len).map_err(|_| Errno::NAMETOOLONG)?;
        copy_out(name.get_mut(..len).ok_or(Errno::NAMETOOLONG)?, lane.buffer());
        *name.get_mut(len).ok_or(Errno::NAMETOOLONG)? = 0;
        drop(lane);
        let path = CStr::from_bytes_until_nul(&name[..]).map_err(|_| Errno::INVAL)?;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = fs::openat(CWD, path, flags, Mode::empty())?;
        let found = fs::fstat(&opened)?.st_ino;
        let mixed = self.inode ^ self.device.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 1 << 63;
        if found != self.inode && found != mixed {
            return Err(Errno::STALE);
        }
        Ok(opened)
    }
}
