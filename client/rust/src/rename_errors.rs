//! Errors of renames and links, in the kernel's order: a program that gets `ENOENT` makes the
//! folder, and one that gets `EXDEV` copies.
//!
//! Asked about what a server, which is sent plain names of its own, cannot tell: remote names that
//! end in more than a name, and those that go together with local ones.

use core::ffi::CStr;

use rustix::{
    fs::{self, AtFlags, FileType, RenameFlags},
    io::{self, Errno},
};
use wire::Request;

use crate::{
    client::Client,
    names::{Ending, Name, kind},
    paths::{AbsolutePath, Asked},
    rooms::Room,
    rules::{CURRENT_FOLDER, Policy},
};

/// A name, and where it leads.
struct Named {
    path: AbsolutePath,
    ending: Ending,
}

impl Named {
    fn is_dot(&self) -> bool {
        matches!(self.ending, Ending::Dot | Ending::DotDot)
    }
}

impl Client {
    /// As `renameat2(2)` does, but for what the daemon finds out.
    pub(crate) fn may_rename(
        &'static self,
        from: Name<'_>,
        to: Name<'_>,
        flags: RenameFlags,
    ) -> io::Result<()> {
        let (old, new) = (self.named(from)?, self.named(to)?);
        self.enter(&old)?;
        self.enter(&new)?;
        let may_replace = !flags.contains(RenameFlags::NOREPLACE);
        let exchanges = flags.contains(RenameFlags::EXCHANGE);
        if self.is_in_remote(&old) != self.is_in_remote(&new) {
            return Err(Errno::XDEV);
        }
        if old.is_dot() || new.is_dot() && may_replace {
            return Err(Errno::BUSY);
        }
        if new.is_dot() {
            return Err(Errno::EXIST);
        }
        let is_folder = self.kind_of(&old)? == FileType::Directory;
        match self.kind_of(&new) {
            Ok(_) if !may_replace => return Err(Errno::EXIST),
            Ok(kind) if exchanges && kind != FileType::Directory && new.ending == Ending::Slash => {
                return Err(Errno::NOTDIR);
            }
            Err(errno) if exchanges || errno != Errno::NOENT => return Err(errno),
            _ => {}
        }
        let is_slash = old.ending == Ending::Slash || new.ending == Ending::Slash && !exchanges;
        if is_slash && !is_folder {
            return Err(Errno::NOTDIR);
        }
        // As a mount point: a program that gets `EXDEV` would copy all that is in it.
        let is_mapped = |name: &Named| name.path.is_remote() && !self.is_in_remote(name);
        if is_mapped(&old) || is_mapped(&new) { Err(Errno::BUSY) } else { Ok(()) }
    }

    /// True if a name is in a remote folder: such a folder's own name is not.
    fn is_in_remote(&'static self, name: &Named) -> bool {
        let policy = |path| self.active().map(|config| config.rules().of(path).0);
        name.path.is_remote()
            && (name.is_dot() || policy(name.path.folder()) == Some(Policy::Remote))
    }

    /// As `linkat(2)` does, but for what the daemon finds out.
    pub(crate) fn may_link(
        &'static self,
        from: Name<'_>,
        to: Name<'_>,
        follow: bool,
    ) -> io::Result<()> {
        let (old, new) = (self.named(from)?, self.named(to)?);
        let is_plain = old.ending == Ending::Plain;
        let kind = self.kind_at(old.path.asked(), old.path.is_remote(), follow || !is_plain)?;
        if !is_plain && kind != FileType::Directory {
            return Err(Errno::NOTDIR);
        }
        self.enter(&new)?;
        match self.kind_of(&new) {
            found if found.is_ok() || new.is_dot() => return Err(Errno::EXIST),
            Err(errno) if errno != Errno::NOENT || new.ending == Ending::Slash => {
                return Err(errno);
            }
            _ => {}
        }
        if old.path.is_remote() != new.path.is_remote() {
            return Err(Errno::XDEV);
        }
        if kind == FileType::Directory { Err(Errno::PERM) } else { Ok(()) }
    }

    fn named(&'static self, Name { dir, path }: Name<'_>) -> io::Result<Named> {
        let ending = Ending::of(path);
        if !path.to_bytes().starts_with(b"/") && dir != CURRENT_FOLDER {
            u32::try_from(dir).map_err(|_| Errno::BADF)?;
            if !self.is_folder(dir)? {
                return Err(Errno::NOTDIR);
            }
        }
        let path = self.absolute_path(dir, path).ok_or(Errno::NAMETOOLONG)?;
        Ok(Named { path, ending })
    }

    /// Checks that the folder of a name exists.
    fn enter(&'static self, name: &Named) -> io::Result<()> {
        let folder = if name.is_dot() { name.path.asked() } else { name.path.asked_folder() };
        match self.kind_at(folder, name.path.is_remote(), true)? {
            FileType::Directory => Ok(()),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn kind_of(&'static self, name: &Named) -> io::Result<FileType> {
        self.kind_at(name.path.asked(), name.path.is_remote(), false)
    }

    fn kind_at(
        &'static self,
        path: Asked<'_>,
        is_remote: bool,
        follow: bool,
    ) -> io::Result<FileType> {
        if is_remote {
            let status = self.status(path, |path_len| Request::Stat { path_len, follow });
            return Ok(kind(&status.unwrap_or(Err(Errno::IO))?));
        }
        let mut space = Room::take().ok_or(Errno::NOMEM)?;
        let path = path.text;
        let name = space.get_mut(..path.len()).ok_or(Errno::NAMETOOLONG)?;
        name.copy_from_slice(path);
        *space.get_mut(path.len()).ok_or(Errno::NAMETOOLONG)? = 0;
        let name = CStr::from_bytes_until_nul(&space[..]).map_err(|_| Errno::NAMETOOLONG)?;
        let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let status = fs::statat(self.host.borrow(CURRENT_FOLDER), name, flags)?;
        Ok(FileType::from_raw_mode(status.st_mode))
    }
}
