//! Remote files that a pipe stands for, in the process that has opened them.
//!
//! At a fork, and before another program is started, an inherited file becomes a pipe in both
//! processes: so the child has it from the beginning, whatever its parent does meanwhile, as it has
//! the file natively. The daemon keeps the parent's file beside the pipe. What no pipe can do the
//! parent asks for by requests: to read, to write in places, to tell the status. Before each,
//! the daemon takes in what is in the pipe. The one position is the pipe's.
//!
//! Once the child is made, the pipe makes way for a placeholder in the parent, as if the file had
//! been lent (`lend.rs`): the parent's next use has the position back and stages again, if no child
//! has the pipe any more, or else the parent takes the pipe again.
//!
//! # Ordering
//!
//! Threads may make children at a time. Each is counted before files are left for it, and a file
//! becomes a placeholder under its lock, while none is counted: so who counts later finds it, and
//! leaves it again.

use core::sync::atomic::Ordering;

use rustix::{
    fd::RawFd,
    fs::OFlags,
    io::{self, Errno},
};
use wire::{Reason, Request, SEEK_CUR, STAND_IN};

use crate::{
    client::Client,
    file::{Descriptor, Link},
    locked::Locked,
    open::STREAMS_MAX,
    table::{Entry, FileId},
};

impl Client {
    /// Reads what the kernel has refused to read. `None`: it is no file for which a pipe stands, or
    /// this thread was interrupted while it had it.
    pub(crate) fn read_refused(
        &'static self,
        fd: RawFd,
        id: FileId,
        buffers: &mut [&mut [u8]],
        at: Option<u64>,
    ) -> Option<io::Result<usize>> {
        let mut file = self.locked(fd, id)?;
        if file.is_placeholder() {
            // Another thread's child is made.
            drop(file);
            return Some(self.read_staged(fd, id, buffers, at));
        }
        file.read_beside_pipe(buffers, at)
    }

    /// In the parent, once a child is made, or none could be: goes on with the files that were left
    /// for it. Those that are standard streams stay pipes: they are written past every wrapper.
    pub fn child_made(&'static self) {
        // A thread that was cancelled in `system` stays counted: then files stay pipes.
        let less = |forks: usize| forks.checked_sub(1);
        match self.forks.fetch_update(Ordering::AcqRel, Ordering::Acquire, less) {
            Ok(1) if self.has_remote() && !self.is_exiting() => {}
            _ => return,
        }
        for (fd, id) in self.table.files(0, u32::MAX) {
            if let Some(mut file) = self.locked_after_fork(fd, id) {
                file.go_on();
            }
        }
    }
}

impl Locked {
    /// Reads a file that a pipe stands for; `None`: it is none, or another process has opened it.
    pub(crate) fn read_beside_pipe(
        &mut self,
        buffers: &mut [&mut [u8]],
        at: Option<u64>,
    ) -> Option<io::Result<usize>> {
        let link = self.link.filter(|_| self.is_piped())?;
        let read = match at {
            Some(at) => self.read_delegated(buffers, at),
            None if self.access.readable => self.read_at_pipe(link, buffers),
            None => Err(Errno::BADF),
        };
        Some(if self.is_gone() { Err(Errno::IO) } else { read })
    }

    fn read_at_pipe(&mut self, link: Link, buffers: &mut [&mut [u8]]) -> io::Result<usize> {
        let from = seek_pipe(link, 0, SEEK_CUR)?;
        let len = self.read_delegated(buffers, from)?;
        seek_pipe(link, i64::try_from(len).map_err(|_| Errno::OVERFLOW)?, SEEK_CUR)?;
        Ok(len)
    }

    /// Has a placeholder for the file again, as if a child had borrowed it.
    fn go_on(&mut self) {
        // A file that is only written is well served by a pipe, which costs the next child nothing.
        let is_usable = self.is_piped() && self.access.readable;
        if !is_usable || !self.is_left_for_child() || self.has_standard_number() {
            return;
        }
        let Some(link) = self.link.filter(|link| !link.connection.is_lost()) else { return };
        if self.client.forks.load(Ordering::Acquire) > 0 {
            return;
        }
        // Where there is no number for it the pipe does.
        let Ok(placeholder) = self.client.placeholder(OFlags::CLOEXEC) else { return };
        link.shared.lend();
        self.descriptor = Descriptor::Remote;
        self.left = None;
        self.entry.is_staged.store(true, Ordering::Release);
        self.client.replace_numbers(self.fd, &placeholder);
    }

    pub(crate) fn is_left_for_child(&self) -> bool {
        matches!(self.left, Some(Reason::Forked | Reason::PassedOn))
    }

    fn has_standard_number(&self) -> bool {
        let own = Entry::File(self.id);
        (0..=STREAMS_MAX).any(|stream| self.client.table.get(stream) == own)
    }
}

/// Moves the position of who has the pipe.
fn seek_pipe(link: Link, offset: i64, whence: u32) -> io::Result<u64> {
    let request = Request::SetPosition { file: link.slot, offset, whence: whence + STAND_IN };
    match link.connection.call(request) {
        // The daemon has given the pipe up: what was in it is lost, and told of.
        Ok(Err(Errno::SPIPE)) | Err(_) => Err(Errno::IO),
        Ok(sought) => sought,
    }
}
