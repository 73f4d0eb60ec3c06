//! Open files with staged bytes that the kernel refuses, as on a full disk.
//!
//! The kernel does not know such bytes, so it can neither say how long the file is nor truncate it:
//! the daemon does, which has the log. A read of them fails as they did.

use rustix::{
    fs,
    io::{self, Errno},
};
use wire::{Reason, Request};

use crate::{client::Client, limit::size_limit, locked_file::Locked, slot::Link};

impl Client {
    /// Before the kernel truncates a file by name to `len` bytes: has this process's refused bytes
    /// not come behind that later. `check` fails if the name may not be truncated.
    ///
    /// # Errors
    ///
    /// Those of `check`; what appended bytes are refused with that the file is to be longer than.
    pub fn truncate_refused(
        &'static self,
        device: u64,
        inode: u64,
        len: u64,
        check: impl Fn() -> io::Result<()>,
    ) -> io::Result<()> {
        // What is too long the kernel refuses.
        if self.is_nothing_staged() || size_limit().is_some_and(|limit| len > limit) {
            return Ok(());
        }
        let mut truncated = Ok(());
        self.each_linked_to(device, inode, |linked| {
            if let Some(link) = linked.refused_link().filter(|_| truncated.is_ok()) {
                truncated = check().and_then(|()| linked.truncate_by(link, len));
            }
        });
        truncated
    }

    /// Returns the error that is owed to this process for staged bytes of the file that `find`
    /// gives device and inode of, once they are drained. Without them it is to take no other
    /// file's name: that may be a good one's.
    pub fn owed_for(&'static self, find: impl FnOnce() -> Option<(u64, u64)>) -> Option<Errno> {
        if self.is_nothing_staged() {
            return None;
        }
        let (device, inode) = find()?;
        let mut owed = None;
        self.each_linked_to(device, inode, |linked| owed = owed.or(linked.owed.untold()));
        owed
    }
}

impl Locked {
    /// Drains the file. Returns the way to the daemon if that answers for the file then: it alone
    /// has it open, or bytes are refused. Else the kernel does.
    pub(crate) fn drained_link(&mut self) -> Option<Link> {
        self.state.daemons_link().or_else(|| {
            self.drain();
            self.refused_link()
        })
    }

    /// The way to the daemon, of a drained file some bytes of which are refused.
    fn refused_link(&mut self) -> Option<Link> {
        let (link, log) = self.state.staging()?;
        (log.producer.refresh(link.shared) > 0).then_some(link)
    }

    /// Has the daemon set the size of a file that it answers for.
    pub(crate) fn truncate_by(&mut self, link: Link, len: u64) -> io::Result<()> {
        let request = Request::Truncate { file: link.slot, path_len: 0, len };
        if let Ok(answer) = link.connection.call(request) {
            return answer.map(drop);
        }
        self.detach(Reason::DaemonLost);
        if self.state.is_lost() {
            Err(Errno::IO)
        } else {
            self.client.kernel_truncate(self.fd, len)
        }
    }

    /// Has in the file what is staged for `from..to` and is about to be read. Returns where bytes
    /// begin that are refused, if any are.
    ///
    /// # Errors
    ///
    /// The error that they are refused with, if nothing can be read before them.
    pub(crate) fn drain_to_read(&mut self, from: u64, to: u64) -> io::Result<u64> {
        if self.is_drained_for(from, to) {
            return Ok(u64::MAX);
        }
        match self.state.log().map_or(0, |log| log.dirty.0) {
            refused_at if refused_at > from => Ok(refused_at),
            _ => Err(self.tell_error().unwrap_or(Errno::IO)),
        }
    }

    /// Drains the file if something is staged for `from..to`; true if that is in it then.
    pub(crate) fn is_drained_for(&mut self, from: u64, to: u64) -> bool {
        if !self.is_dirty(from, to) {
            return true;
        }
        self.drain();
        if !self.is_dirty(from, to) {
            return true;
        }
        // Much may be in the file by now that was staged with what is refused.
        let size = fs::fstat(self.borrow()).map_or(0, |found| found.st_size.unsigned_abs());
        let staging = self.state.staging();
        !staging.is_some_and(|(link, log)| log.holds(link.shared, size, from, to))
    }

    /// Tells the error that is owed, if the bytes have not come into the file since.
    pub(crate) fn tell_owed(&mut self) -> io::Result<()> {
        if self.owed.is_refused() {
            self.drain();
        }
        self.owed.tell().map_or(Ok(()), Err)
    }
}
