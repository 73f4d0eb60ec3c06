//! Policy `delegate`: the daemon opens the file and does everything; the program holds an `O_PATH`
//! placeholder, on which the kernel refuses every data call, so that nothing can slip past.

use core::sync::atomic::{Ordering, fence};

use rustix::{
    fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd},
    fs::{self, AtFlags, FileType, Mode, OFlags},
    io::{self, Errno},
};
use wire::{Counter, Request};

use crate::{
    ask::status_in,
    client::{Client, Status},
    file,
    names::{Ending, Name},
    paths::AbsolutePath,
    remote::placeholder_over,
    rules::Policy,
    slot::{Link, Slot},
    slots::Holder,
    staging,
    state::{Descriptor, State},
    table::Entry,
};

impl Client {
    /// Opens a file at the daemon; `None`: open it without.
    #[inline(never)]
    pub(crate) fn open_delegated(
        &'static self,
        name: Name<'_>,
        absolute: &AbsolutePath,
        flags: OFlags,
        mode: Mode,
    ) -> Option<io::Result<RawFd>> {
        let is_folders = Ending::of(name.path) != Ending::Plain;
        if is_folders || flags.intersects(OFlags::PATH | OFlags::DIRECTORY | OFlags::DIRECT) {
            return None;
        }
        let follow = if flags.contains(OFlags::NOFOLLOW) {
            AtFlags::SYMLINK_NOFOLLOW
        } else {
            AtFlags::empty()
        };
        match fs::statat(self.borrow(name.dir), name.path, follow) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
                return None;
            }
            Ok(stat) if self.may_have_locked(stat.st_dev, stat.st_ino, 0) => return None,
            Ok(_) => {}
            Err(Errno::NOENT) if flags.contains(OFlags::CREATE) => {}
            Err(_) => return None,
        }
        let connection = self.connection()?;
        let opened = self.open_in_slot(
            Slot::take(connection, Holder::Daemon)?,
            name,
            absolute,
            flags,
            mode,
        )?;
        Some(opened.and_then(|fd| self.real_if_locked(fd, flags)))
    }

    /// A real number for a file that somebody has asked for a lock on while it was opened: to make
    /// the placeholder real later would give that lock up.
    fn real_if_locked(&'static self, fd: OwnedFd, flags: OFlags) -> io::Result<RawFd> {
        let number = fd.as_raw_fd();
        let Some(file) = self.locked_fd(number).filter(|file| !file.state.is_placeholder()) else {
            return Ok(fd.into_raw_fd());
        };
        let real = staging::reopen(number, &file);
        drop(file);
        self.let_go(number)?;
        drop(fd);
        let real = real?.into_raw_fd();
        self.table.take(real);
        self.opened(real, flags, Policy::Delegate);
        Ok(real)
    }

    fn open_in_slot(
        &'static self,
        slot: Slot,
        name: Name<'_>,
        absolute: &AbsolutePath,
        flags: OFlags,
        mode: Mode,
    ) -> Option<io::Result<OwnedFd>> {
        let connection = slot.connection();
        let mode = self.umask.new_mode(flags, mode);
        // As in the kernel: where no number is free nothing is created or truncated.
        let free = connection.socket.with(|socket| io::fcntl_dupfd_cloexec(socket, 0));
        let number = match free {
            Ok(number) => number,
            Err(errno) => return Some(Err(errno)),
        };
        let (file, open_flags) = (slot.number(), flags.bits());
        let request =
            |path_len| Request::Open { file, flags: open_flags, mode, path_len, inode: 0 };
        let status = match self.ask(absolute.asked(), &[], request)? {
            Ok((_, lane)) => status_in(&lane),
            Err(Errno::NOTSUP) => return None,
            Err(errno) => return Some(Err(errno)),
        };
        let link = slot.into_link(false);
        drop(number);
        let added = status.and_then(|status| {
            let fd = self.placeholder_of(link, name, &status, flags)?;
            let mut file = file::fresh(status.device, status.inode, flags);
            file.state = State::opened(link, Descriptor::Placeholder);
            let id = self.add_file(file).ok_or(Errno::MFILE)?;
            Ok((fd, id))
        });
        match added {
            Ok((fd, id)) => {
                let mut file = self.locked_unnamed(fd.as_raw_fd(), id)?;
                file.entry.cursor.begin();
                self.table.set(fd.as_raw_fd(), Entry::File(id));
                // A thread that locks it meanwhile finds this placeholder, or is found here.
                fence(Ordering::SeqCst);
                if self.may_have_locked(file.device, file.inode, 1) {
                    file.state.substitute();
                }
                self.count(Counter::Files, 1);
                Some(Ok(fd))
            }
            Err(errno) => {
                // A table is full, or no number is left: as if never opened.
                let closed = connection.call(Request::Close { file: link.slot });
                link.end();
                Some(Err(if closed.is_ok() { errno } else { Errno::IO }))
            }
        }
    }

    /// A placeholder for the file that the daemon has opened. Its name may be gone by now, or be
    /// another file's: then the daemon's own descriptor leads to it.
    fn placeholder_of(
        &self,
        link: Link,
        name: Name<'_>,
        opened: &Status,
        flags: OFlags,
    ) -> io::Result<OwnedFd> {
        let kept = flags.intersection(OFlags::CLOEXEC | OFlags::NOFOLLOW);
        let by_name =
            fs::openat(self.borrow(name.dir), name.path, OFlags::PATH | kept, Mode::empty());
        if let Ok(fd) = by_name {
            let stat = fs::fstat(&fd)?;
            if (stat.st_dev, stat.st_ino) == (opened.device, opened.inode) {
                return Ok(fd);
            }
        }
        let mut real = link.connection.materialize(link.slot).map_err(|_| Errno::IO)??;
        placeholder_over(&mut real, flags)?;
        Ok(real)
    }
}
