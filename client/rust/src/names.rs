//! Calls that change names, and `stat`, under policies `delegate` and `remote`.
//!
//! The daemon is sent absolute names without `.` and `..`. What the kernel says to a name that ends
//! in one of these, or in a slash, is said here: `rename("a/.", "b")` must not rename `a`.

use core::ffi::CStr;

use rustix::{
    fd::RawFd,
    fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags},
    io::{self, Errno},
};
use wire::Request;

use crate::{
    client::{Client, Status},
    connection::Connection,
    limit::{exceeded, size_limit},
    paths::{AbsolutePath, Asked},
    rules::CURRENT_FOLDER,
};

/// A name as the program gives it.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    /// The open folder that it is relative to.
    pub dir: RawFd,
    /// Its text.
    pub path: &'a CStr,
}

impl<'a> Name<'a> {
    /// A name relative to the current folder.
    const fn here(path: &'a CStr) -> Self {
        Self { dir: CURRENT_FOLDER, path }
    }
}

/// End of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// A name like any other.
    Plain,
    /// A slash: it has to be a folder.
    Slash,
    /// `.`: that folder itself.
    Dot,
    /// `..`: the folder above.
    DotDot,
    /// There is none.
    Empty,
}

impl Ending {
    pub(crate) fn of(path: &CStr) -> Self {
        let path = path.to_bytes();
        // Slashes behind a dot change nothing: that names a folder already.
        let behind = path.iter().rev().take_while(|byte| **byte == b'/').count();
        let name = path.get(..path.len() - behind).unwrap_or_default();
        match name.rsplit(|byte| *byte == b'/').next() {
            _ if path.is_empty() => Self::Empty,
            Some(b".") => Self::Dot,
            Some(b"..") => Self::DotDot,
            _ if behind > 0 => Self::Slash,
            _ => Self::Plain,
        }
    }
}

/// `None`: the caller makes the system call itself.
impl Client {
    /// As `fstatat(2)`.
    pub fn stat_path(
        &'static self,
        dir: RawFd,
        path: &CStr,
        follow: bool,
    ) -> Option<io::Result<Status>> {
        if let Some(fd) = self.placeholder_at(dir, path).filter(|_| follow) {
            return self.stat(fd);
        }
        let is_plain = Ending::of(path) == Ending::Plain;
        let status = self.look(Name { dir, path }, follow || !is_plain)?;
        Some(status.and_then(|status| {
            if is_plain || is_folder(&status) { Ok(status) } else { Err(Errno::NOTDIR) }
        }))
    }

    /// As `fstat(2)`. Also drains a file that is not delegated by name, and then returns `None`.
    pub fn stat(&'static self, fd: RawFd) -> Option<io::Result<Status>> {
        if self.is_unexamined(fd) {
            return None;
        }
        let mut file = self.locked_fd_as_is(fd)?;
        if let Some(status) = file.status_at_rest() {
            return Some(Ok(status));
        }
        if let Err(errno) = file.promote() {
            return Some(Err(errno));
        }
        let kept = file.drained_link()?.keep();
        let is_remote = file.state.is_remote();
        drop(file);
        let answer = self.status(Asked::default(), |_| Request::FileStat { file: kept.number() });
        // Another thread has left it meanwhile.
        let answer = answer.filter(|answer| is_remote || *answer != Err(Errno::BADF));
        answer.or(is_remote.then_some(Err(Errno::IO)))
    }

    /// As `truncate(2)`.
    pub fn truncate_path(&'static self, path: &CStr, len: u64) -> Option<io::Result<()>> {
        let checked = self.detach_number(path).and_then(|()| self.check_folder(Name::here(path)));
        if let Err(errno) = checked {
            return Some(Err(errno));
        }
        if size_limit().is_some_and(|limit| len > limit) {
            if !self.is_remote(CURRENT_FOLDER, path) {
                return None;
            }
            let status = self.stat_path(CURRENT_FOLDER, path, true);
            if status.and_then(Result::ok).is_some_and(|status| len > status.size) {
                return Some(Err(exceeded()));
            }
        }
        let request = |path_len| Request::Truncate { file: 0, path_len, len };
        let done = self.about_path(CURRENT_FOLDER, path, request);
        if done.is_some() {
            // Which of the open files it is only the daemon knows.
            self.forget_read_ahead();
        }
        done
    }

    /// As `unlinkat(2)`, for a folder when `folder`.
    pub fn unlink(&'static self, dir: RawFd, path: &CStr, folder: bool) -> Option<io::Result<()>> {
        let on_dot = match Ending::of(path) {
            _ if !folder => Errno::ISDIR,
            Ending::Dot => Errno::INVAL,
            _ => Errno::NOTEMPTY,
        };
        if let Some(errno) = self.refusal(Name { dir, path }, on_dot, None) {
            return Some(Err(errno));
        }
        let name = Name { dir, path };
        let before = self.inode(name);
        let done = self.about_path(dir, path, |path_len| {
            if folder { Request::RemoveDir { path_len } } else { Request::Unlink { path_len } }
        });
        self.unless_done(done, || before.is_some() && self.inode(name) != before)
    }

    /// As `mkdirat(2)`.
    pub fn make_dir(&'static self, dir: RawFd, path: &CStr, mode: u32) -> Option<io::Result<()>> {
        if Ending::of(path) != Ending::Slash {
            if let Some(errno) = self.refusal(Name { dir, path }, Errno::EXIST, None) {
                return Some(Err(errno));
            }
        }
        self.about_path(dir, path, |path_len| {
            let mode = self.umask.new_mode(OFlags::CREATE, Mode::from_bits_retain(mode));
            Request::MakeDir { path_len, mode }
        })
    }

    /// As `renameat2(2)`.
    pub fn rename(
        &'static self,
        from: Name<'_>,
        to: Name<'_>,
        flags: u32,
    ) -> Option<io::Result<()>> {
        let (how, exchange) = (RenameFlags::from_bits_retain(flags), RenameFlags::EXCHANGE);
        let known = RenameFlags::NOREPLACE | RenameFlags::WHITEOUT | exchange;
        // The kernel refuses these whatever the names are.
        if !known.contains(how) || how.contains(exchange) && how != exchange {
            return None;
        }
        self.if_ruled(|| {
            let target = match self.target(from, to, || self.may_rename(from, to, how))? {
                Ok(target) => target,
                Err(errno) => return Some(Err(errno)),
            };
            let before = self.inode(from);
            let path = self.source(from, &target)?;
            let request = |paths| Request::Rename { paths, flags };
            let done = self.about_paths(path.asked(), &target, request);
            if let Some(Ok(())) = done {
                self.show_moved(&target);
                if how == exchange {
                    self.show_moved(&path);
                }
            }
            self.unless_done(done, || {
                let (from, to) = (self.inode(from), self.inode(to));
                before.is_some() && from != before && to == before
            })
        })
    }

    /// A remote folder has got this name: its view learns that. Who is in it, or has it open, would
    /// be where another folder has its old name by now.
    fn show_moved(&'static self, path: &AbsolutePath) {
        if !path.is_remote() || !self.has_view() {
            return;
        }
        let found = self.status(path.asked(), |path_len| Request::Stat { path_len, follow: false });
        if matches!(found, Some(Ok(status)) if kind(&status) == FileType::Directory) {
            self.look_in_view(path);
        }
    }

    /// As `linkat(2)`, following a link at the end of `from` when `follow`.
    pub fn link(
        &'static self,
        from: Name<'_>,
        to: Name<'_>,
        follow: bool,
    ) -> Option<io::Result<()>> {
        self.if_ruled(|| self.link_delegated(from, to, follow))
    }

    fn link_delegated(
        &'static self,
        from: Name<'_>,
        to: Name<'_>,
        follow: bool,
    ) -> Option<io::Result<()>> {
        if follow && self.placeholder_at(CURRENT_FOLDER, from.path).is_some() {
            // The kernel links what is open, in the view if that is remote.
            return self.detach_number(from.path).err().map(Err);
        }
        let target = match self.target(from, to, || self.may_link(from, to, follow))? {
            Ok(target) => target,
            Err(errno) => return Some(Err(errno)),
        };
        if follow {
            match self.look(from, false) {
                Some(Err(errno)) => return Some(Err(errno)),
                Some(Ok(status)) if kind(&status) != FileType::Symlink => {}
                // Where it leads to is not known by name; the kernel follows it, in the view if it
                // is remote.
                _ => {
                    let is_refused = target.is_remote().then_some(Err(Errno::XDEV));
                    return self.unless_elsewhere(&target, is_refused);
                }
            }
        }
        let before = self.inode(to);
        let path = self.source(from, &target)?;
        let done = self.about_paths(path.asked(), &target, |paths| Request::Link { paths });
        self.unless_done(done, || {
            let now = self.inode(to);
            before.is_none() && now.is_some() && now == self.inode(from)
        })
    }

    /// As `symlinkat(2)`.
    pub fn symlink(&'static self, text: &CStr, to: Name<'_>) -> Option<io::Result<()>> {
        self.if_ruled(|| {
            let target = self.delegated_path(to.dir, to.path)?;
            if let Some(errno) = self.refusal(to, Errno::EXIST, Some(Errno::EXIST)) {
                return Some(Err(errno));
            }
            self.about_paths(text.to_bytes().into(), &target, |paths| Request::Symlink { paths })
        })
    }

    /// Where a call leads that gives what is at `from` another name, if the kernel `would` make it;
    /// `None` where that is the kernel's to judge.
    fn target(
        &'static self,
        from: Name<'_>,
        to: Name<'_>,
        would: impl FnOnce() -> io::Result<()>,
    ) -> Option<io::Result<AbsolutePath>> {
        if is_empty(from) || is_empty(to) {
            return None;
        }
        let target = self.delegated_path(to.dir, to.path);
        let is_remote = target.as_ref().is_some_and(AbsolutePath::is_remote);
        let crosses = self.is_remote(from.dir, from.path) != is_remote;
        let are_plain = [from, to].iter().all(|name| Ending::of(name.path) == Ending::Plain);
        if crosses || !are_plain {
            if !crosses && !is_remote {
                return None; // Both are on this node, where the kernel knows best.
            }
            if let Err(errno) = would() {
                let refused = Some(Err(errno));
                return match &target {
                    Some(target) => self.unless_elsewhere(target, refused),
                    None => refused,
                };
            }
        }
        target.map(Ok)
    }

    /// The path of what is to be at `target`, too; `None` where only the kernel knows it.
    fn source(&'static self, from: Name<'_>, target: &AbsolutePath) -> Option<AbsolutePath> {
        let path = self.absolute_path(from.dir, from.path)?;
        Some(path).filter(|path| target.is_remote() || !path.is_textual())
    }

    /// Why the kernel refuses to change a name because of how it ends: a folder's name with a dot
    /// `on_dot`, with a slash `on_slash`, if at all.
    fn refusal(
        &'static self,
        name: Name<'_>,
        on_dot: Errno,
        on_slash: Option<Errno>,
    ) -> Option<Errno> {
        let is_slash = match Ending::of(name.path) {
            Ending::Plain => return None,
            Ending::Empty => return Some(Errno::NOENT),
            Ending::Slash => true,
            Ending::Dot | Ending::DotDot => false,
        };
        match self.look(name, !is_slash || on_slash.is_some())? {
            Err(errno) => Some(errno),
            // Nothing can be made there, whatever it is.
            Ok(_) if is_slash && on_slash == Some(Errno::EXIST) => on_slash,
            Ok(status) if !is_folder(&status) => Some(Errno::NOTDIR),
            Ok(_) if is_slash => on_slash,
            Ok(_) => Some(on_dot),
        }
    }
}

impl Client {
    /// Returns the daemon's answer, or, when it was killed before it answered, finds out if the
    /// request was executed: a second call would fail then.
    fn unless_done(
        &'static self,
        said: Option<io::Result<()>>,
        is_done: impl FnOnce() -> bool,
    ) -> Option<io::Result<()>> {
        let is_lost = said.is_none() && self.connected().is_some_and(Connection::is_lost);
        said.or_else(|| (is_lost && is_done()).then_some(Ok(())))
    }

    /// Device and inode of a name on this node, if there are rules that may delegate it. Of a
    /// remote one there is none: the kernel would ask its folder's view.
    fn inode(&'static self, name: Name<'_>) -> Option<(u64, u64)> {
        self.active().filter(|config| !config.rules().is_empty())?;
        if self.is_remote(name.dir, name.path) {
            return None;
        }
        let stat = fs::statat(self.borrow(name.dir), name.path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((stat.st_dev, stat.st_ino))
    }

    /// As `fstatat(2)`, heeding nothing of how the name ends.
    fn look(&'static self, name: Name<'_>, follow: bool) -> Option<io::Result<Status>> {
        self.if_ruled(|| {
            let name = self.delegated_path(name.dir, name.path)?;
            let status = name.is_remote().then(|| self.status_at_rest(&name)).flatten();
            if let Some(status) = status {
                return Some(Ok(status));
            }
            let request = |path_len| Request::Stat { path_len, follow };
            let answer = self.status(name.asked(), request);
            self.unless_elsewhere(&name, answer.or(name.is_remote().then_some(Err(Errno::IO))))
        })
    }

    /// Why what only a folder can be is not opened to be written or made.
    pub(crate) fn why_unwritable(
        &'static self,
        path: &CStr,
        absolute: &AbsolutePath,
        flags: OFlags,
    ) -> Errno {
        if flags.contains(OFlags::CREATE | OFlags::DIRECTORY) {
            return Errno::INVAL;
        }
        // A name with a slash is not even looked for when a file is to be made.
        let is_slash = Ending::of(path) == Ending::Slash && flags.contains(OFlags::CREATE);
        let name = if is_slash { absolute.asked_folder() } else { absolute.asked() };
        match self.status(name, |path_len| Request::Stat { path_len, follow: true }) {
            None => Errno::IO,
            Some(Err(errno)) => errno,
            Some(Ok(status)) if !is_folder(&status) => Errno::NOTDIR,
            Some(Ok(_)) if flags.contains(OFlags::CREATE | OFlags::EXCL) && !is_slash => {
                Errno::EXIST
            }
            Some(Ok(_)) => Errno::ISDIR,
        }
    }

    /// Fails as the kernel does if `name` ends like a folder and is not one.
    pub(crate) fn check_folder(&'static self, name: Name<'_>) -> io::Result<()> {
        if matches!(Ending::of(name.path), Ending::Plain | Ending::Empty) {
            return Ok(());
        }
        match self.look(name, true) {
            Some(Ok(status)) if !is_folder(&status) => Err(Errno::NOTDIR),
            Some(found) => found.map(drop),
            None => Ok(()),
        }
    }
}

fn is_empty(name: Name<'_>) -> bool {
    Ending::of(name.path) == Ending::Empty
}

pub(crate) fn kind(status: &Status) -> FileType {
    FileType::from_raw_mode(status.mode)
}

fn is_folder(status: &Status) -> bool {
    kind(status) == FileType::Directory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_told_apart() {
        for (path, ending) in [
            (c"a/b", Ending::Plain),
            (c"..a", Ending::Plain),
            (c"a/b/", Ending::Slash),
            (c"/", Ending::Slash),
            (c"a/.", Ending::Dot),
            (c".", Ending::Dot),
            (c"a/..", Ending::DotDot),
            (c"a/./", Ending::Dot),
            (c"a/.//", Ending::Dot),
            (c"..//", Ending::DotDot),
            (c"a//", Ending::Slash),
            (c"//", Ending::Slash),
            (c"", Ending::Empty),
        ] {
            assert_eq!(Ending::of(path), ending, "{path:?}");
        }
    }
}
