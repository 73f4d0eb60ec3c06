//! How a file comes to be staged to, and why it does not.

use core::sync::atomic::{Ordering, fence};

use rustix::fs::{self, SeekFrom};
use wire::Reason;

use crate::{
    limit::size_limit, locked_file::Locked, o_direct, open::STREAMS_MAX, staging, writes::Writes,
};

/// File systems whose content the kernel makes up: their writes are commands. By name, as what else
/// they show, no blocks and no device, memfds and many a FUSE file system show, too.
const PSEUDO: [i64; 14] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x27_e0eb,   // cgroup
    0x6367_7270, // cgroup2
    0xcafe_4a11, // bpf
    0x6265_6570, // configfs
    0x7363_6673, // securityfs
    0x1cd1,      // devpts
    0x1980_0202, // mqueue
    0x6165_676c, // pstore
    0xde5e_81e4, // efivarfs
    0xf97c_ff8c, // selinuxfs
];

impl Locked {
    /// Makes the file ready to be staged to.
    ///
    /// # Errors
    ///
    /// Why the kernel must take this write; it has the file position then.
    pub(crate) fn ready(&mut self, len: usize) -> Result<(), Reason> {
        if let Some(reason) = self.state.refusal() {
            return Err(reason);
        }
        if self.state.log().is_none() {
            self.is_worth_staging(len)?;
            // A shell may have given it to the program as a standard stream, too.
            for stream in 0..=STREAMS_MAX {
                self.client.look_up(stream);
            }
            self.client.examine_from_now_on();
            // Its other descriptors would not see what is staged, and at the end nobody drains it.
            if self.client.attention.is_exiting()
                || self.client.open_count(self.device, self.inode) > 1
            {
                self.writes.synchronize();
            }
            if self.writes == Writes::Through && !self.state.is_placeholder() {
                return Err(Reason::Synchronous);
            }
        }
        if self.state.link().is_some_and(|link| link.connection.is_lost()) {
            self.detach(Reason::DaemonLost);
            return Err(Reason::DaemonLost);
        }
        if self.state.log().is_none() {
            self.begin_staging()?;
        }
        if self.writes == Writes::Large {
            staging::lengthen(self);
        }
        // Whoever else has it open may append, too, between the parts in which a log is drained.
        // And whoever takes over an append closes a number of the file, and so loses its locks.
        let is_here = self.state.link().is_some() && !self.state.is_placeholder();
        if self.access.append && is_here && self.mode() == Writes::Through {
            self.detach(Reason::Unsupported);
            return Err(Reason::Unsupported);
        }
        Ok(())
    }

    /// Decides if a file without a log gets one now.
    ///
    /// # Errors
    ///
    /// Why the kernel has this write: there is nothing to gain, or it is not known yet.
    fn is_worth_staging(&self, len: usize) -> Result<(), Reason> {
        let Some(config) = self.client.config.get().filter(|_| !self.state.is_placeholder()) else {
            return Ok(());
        };
        if self.writes == Writes::Through {
            return Err(Reason::Synchronous);
        }
        let stage_after = config.stage_after;
        // One large write costs more than the hand-over.
        let is_large = self.writes == Writes::Large;
        let is_repaid = is_large
            || self.repays_hand_over(stage_after) && self.client.repays_session(stage_after);
        if is_repaid && !is_large && !stage_after.is_zero() && self.passes_long(len) {
            return Err(Reason::First);
        }
        // Nobody waits while the daemon starts, but who wants all staged.
        let has_daemon = || self.client.ask_for_daemon(stage_after, is_large);
        if is_repaid && (stage_after.is_zero() || has_daemon()) {
            Ok(())
        } else {
            Err(Reason::First)
        }
    }

    /// Gives a file a log, and takes its position from the kernel.
    #[cold]
    #[inline(never)]
    fn begin_staging(&mut self) -> Result<(), Reason> {
        if let Some(reason) = self.unfit().filter(|_| !self.state.is_remote()) {
            self.fall_back(reason);
            return Err(reason);
        }
        let (client, entry, fd) = (self.client, self.entry, self.borrow());
        let connection = client.connection().ok_or_else(|| client.why_unconnected())?;
        match self.state.link() {
            Some(link) => staging::attach(self, link)?,
            None => staging::link(connection, self, fd, true)?,
        }
        // A process that maps it from now on finds it linked.
        fence(Ordering::SeqCst);
        if client.is_mapped(self.device, self.inode) && !self.state.is_remote() {
            self.detach(Reason::Mapped); // While it was linked.
            return Err(Reason::Mapped);
        }
        entry.cursor.take(|| {
            let position = fs::seek(fd, SeekFrom::Current(0)).ok();
            invariant!(some position, "a regular file has a position", else 0)
        });
        Ok(())
    }

    /// Why a file can never be staged to.
    pub(crate) fn unfit(&self) -> Option<Reason> {
        if self.client.attention.is_exiting() {
            return Some(Reason::Exiting);
        }
        if self.client.is_mapped(self.device, self.inode) {
            return Some(Reason::Mapped);
        }
        if size_limit().is_some() {
            return Some(Reason::Unsupported);
        }
        let kind = fs::fstatfs(self.borrow()).map_or(0, |stat| stat.f_type);
        let is_direct = self.access.direct && !o_direct::is_fit(self.borrow(), kind);
        match kind {
            kind if PSEUDO.contains(&kind) => Some(Reason::Pseudo),
            _ if is_direct => Some(Reason::Unsupported),
            _ => None,
        }
    }
}
