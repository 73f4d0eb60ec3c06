//! Processes that are served no more, or in part: what a process denied itself the daemon must not
//! do for it, and what it does past the client must not mix with what is staged.

use core::sync::atomic::Ordering;

use wire::Reason;

use crate::client::Client;

impl Client {
    /// Gives every open file to the kernel, with its position. The caller makes plain system calls
    /// from then on.
    pub fn detach(&'static self) {
        self.examine_all();
        for (fd, id) in self.table.files(0, u32::MAX) {
            let Some(mut file) = self.locked_at_fork(fd, id) else { continue };
            if file.may_be_staged() {
                file.leave(Reason::Unsupported);
            }
        }
    }

    /// The process denied itself names (Landlock): it opens files itself from now on, and remote
    /// names are refused.
    pub fn confine(&self) {
        self.change_view();
        self.is_confined.store(true, Ordering::Release);
    }

    /// The process has another root folder: absolute names are not those that rules are about.
    pub fn change_root(&self) {
        self.change_view();
        self.has_own_root.store(true, Ordering::Release);
    }

    pub(crate) fn has_own_root(&self) -> bool {
        self.has_own_root.load(Ordering::Acquire)
    }

    pub(crate) fn is_confined(&'static self) -> bool {
        self.is_confined.load(Ordering::Acquire)
            || self.connected().is_some_and(|connection| connection.is_confined)
    }

    /// True if a name may be told to the daemon.
    pub(crate) fn shares_view(&'static self) -> bool {
        !self.has_own_view.load(Ordering::Acquire)
            && self.connection().is_some_and(|connection| connection.shares_view)
    }

    /// The process has another root folder from now on, or may have other mounts.
    pub fn change_view(&self) {
        self.has_own_view.store(true, Ordering::Release);
    }
}
