//! Resolves the paths of calls, and finds the policies that rules give them.

use core::ffi::CStr;

use rustix::fd::RawFd;

use crate::{
    client::Client,
    names::Ending,
    paths::{AbsolutePath, apart},
    rules::{Policy, policy_without_rules},
    sight::Sight,
};

impl Client {
    /// `path`, which is relative to `dir`, in full.
    pub(crate) fn absolute_path(&'static self, dir: RawFd, path: &CStr) -> Option<AbsolutePath> {
        let mut path = AbsolutePath::new(self.active()?, self.host, dir, path)?;
        if path.is_remote() && self.sight.is(Sight::Elsewhere) {
            path.stay_here();
        }
        Some(path)
    }

    /// `path`, which is relative to `dir`, in full, with the policy that a rule gives it. `None`:
    /// there are no rules, or they are not about such a path.
    pub(crate) fn resolve(&'static self, dir: RawFd, path: &CStr) -> Option<AbsolutePath> {
        if !self.is_ruled() {
            return None;
        }
        if policy_without_rules(dir, path) == Policy::Kernels {
            return None;
        }
        let (name, mut path) = (path, self.absolute_path(dir, path)?);
        if path.is_remote() && path.is_textual() {
            let is_whole = Ending::of(name) != Ending::Plain;
            path = self.beyond_links(dir, name.to_bytes(), is_whole).unwrap_or(path);
        }
        if path.policy() == Policy::Delegate && (path.is_textual() || !self.shares_view()) {
            path.stay_here();
        }
        Some(path)
    }

    /// The same of a path that the daemon is asked about.
    pub(crate) fn delegated_path(&'static self, dir: RawFd, path: &CStr) -> Option<AbsolutePath> {
        let is_asked = |path: &AbsolutePath| path.policy() == Policy::Delegate || path.is_remote();
        self.resolve(dir, path).filter(is_asked)
    }

    /// The same of a path that is remote.
    pub(crate) fn remote_path(&'static self, dir: RawFd, path: &CStr) -> Option<AbsolutePath> {
        self.active().filter(|config| config.rules().has_remote())?;
        self.resolve(dir, path).filter(AbsolutePath::is_remote)
    }

    /// Asks about paths, where there are rules that may be about any.
    pub(crate) fn if_ruled<T>(&'static self, ask: impl FnOnce() -> Option<T>) -> Option<T> {
        if self.is_ruled() { apart(ask) } else { None }
    }

    /// The process denied itself names (Landlock): it opens files itself from now on, and remote
    /// names are refused.
    pub fn confine(&self) {
        self.sight.leave_for(Sight::Confined);
    }

    /// The process has another root folder: absolute names are not those that rules are about.
    pub fn change_root(&self) {
        self.sight.leave_for(Sight::Elsewhere);
    }

    /// True if the process denied itself names, or was started where they are denied.
    pub(crate) fn is_confined(&'static self) -> bool {
        let from_start = || self.connected().is_some_and(|c| c.sight == Sight::Confined);
        self.sight.is(Sight::Confined) || from_start()
    }

    /// True if a name may be told to the daemon.
    pub(crate) fn shares_view(&'static self) -> bool {
        self.sight.is(Sight::Shared) && self.connection().is_some_and(|c| c.sight == Sight::Shared)
    }

    /// The process may have other mounts from now on, or be another user.
    pub fn change_view(&self) {
        self.sight.leave_for(Sight::Own);
    }
}
