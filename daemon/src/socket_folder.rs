//! The daemon's folder: its socket, and the link to the job's segment; how one that Kakehi made is
//! told from one that the user made, and one of this machine from one that others have, too.

use std::{
    fs,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::fs::{FileTypeExt as _, MetadataExt as _, symlink},
    },
    path::{Path, PathBuf},
    process,
};

use crate::{Error, socket};

/// The daemon's files in its folder; removed when dropped.
#[derive(Debug)]
pub(crate) struct SocketFolder {
    socket: PathBuf,
    job: PathBuf,
    is_left: bool,
}

impl SocketFolder {
    /// Listens in `folder` by the socket that is returned, and shows the job's segment there to
    /// programs that never connect.
    pub(crate) fn occupy(folder: &Path, job_fd: &OwnedFd) -> Result<(Self, OwnedFd), Error> {
        let (socket, job) = (socket::path(folder), folder.join("job"));
        if socket::is_listened_at(folder) {
            return Err(Error::Occupied { folder: folder.to_owned() });
        }
        // What a daemon left that did not end in order. What the user has by these names stays, and
        // is in the way.
        for stale in [&socket, &job] {
            let found = fs::symlink_metadata(stale).map(|found| found.file_type());
            if found.is_ok_and(|found| found.is_socket() || found.is_symlink()) {
                fs::remove_file(stale).map_err(Error::setup("the socket's folder"))?;
            }
        }
        let listening = socket::listen_in(folder).map_err(Error::setup("the socket"))?;
        if let Err(why) = symlink(target(job_fd), &job) {
            // What is there instead is the user's.
            fs::remove_file(&socket).ok();
            return Err(Error::setup("the link to the job segment")(why));
        }
        Ok((Self { socket, job, is_left: false }, listening))
    }

    /// Takes the folder over from the process of this job that listens there: at each moment one
    /// of them does.
    pub(crate) fn take_over(self, job_fd: &OwnedFd) -> Result<(Self, OwnedFd), Error> {
        let folder = self.socket.parent().unwrap_or(&self.socket);
        let link = folder.join("segment");
        symlink(target(job_fd), &link)
            .and_then(|()| fs::rename(link, &self.job))
            .map_err(Error::setup("the link to the job segment"))?;
        let listening = socket::listen_instead(folder).map_err(Error::setup("the socket"))?;
        Ok((self, listening))
    }

    /// Leaves the files to whoever takes the folder over.
    pub(crate) const fn leave(&mut self) {
        self.is_left = true;
    }
}

/// Where other processes find the segment.
fn target(job_fd: &OwnedFd) -> String {
    format!("/proc/{}/fd/{}", process::id(), job_fd.as_raw_fd())
}

impl Drop for SocketFolder {
    fn drop(&mut self) {
        // Without a socket the next daemon starts, and the link is then its own.
        for path in [&self.job, &self.socket].into_iter().filter(|_| !self.is_left) {
            fs::remove_file(path).ok(); // Somebody may have cleared the folder already.
        }
    }
}

/// Mode of a folder that we made. The sticky bit, which means nothing where nobody else can write,
/// tells it from one that the user made, which stays.
pub const MADE: u32 = 0o1700;
/// Bit that the kernel may add: a folder hands its set-group-ID bit down.
const INHERITED: u32 = 0o2000;

/// True if a folder was made here, and not by the user.
#[must_use]
pub fn is_made(folder: &Path) -> bool {
    let found = fs::symlink_metadata(folder);
    found.is_ok_and(|found| found.is_dir() && found.mode() & 0o7777 & !INHERITED == MADE)
}

/// True if a file of a folder is known to be of this machine, so that no other has it.
#[must_use]
pub fn has_local_file(file: OwnedFd) -> bool {
    uring::File::new(file).is_ok_and(|file| file.is_local())
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use rustix::fs::inotify;

    use super::*;

    /// A process that finds no socket starts the next daemon, whose link has the same name.
    #[test]
    fn the_link_is_gone_before_the_socket() {
        let folder = tempfile::tempdir().expect("folder");
        let (_job, job_fd) = shm::Job::create().expect("a segment");
        let place = SocketFolder::occupy(folder.path(), &job_fd).expect("nobody else's");
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).expect("inotify");
        inotify::add_watch(&watch, folder.path(), inotify::WatchFlags::DELETE).expect("watched");
        drop(place);
        let mut buffer = [MaybeUninit::uninit(); 1024];
        let mut events = inotify::Reader::new(&watch, &mut buffer);
        for name in [c"job", c"socket"] {
            assert_eq!(events.next().expect("an event").file_name(), Some(name));
        }
    }

    #[test]
    fn what_the_user_has_in_its_place_stays() {
        for name in ["job", "socket"] {
            let folder = tempfile::tempdir().expect("folder");
            fs::write(folder.path().join(name), "precious").expect("a file");
            let (_job, job_fd) = shm::Job::create().expect("a segment");
            assert!(SocketFolder::occupy(folder.path(), &job_fd).is_err());
            let names = fs::read_dir(folder.path()).expect("the folder");
            let names: Vec<_> = names.map(|entry| entry.expect("an entry").file_name()).collect();
            assert_eq!(names, [name]);
            let text = fs::read_to_string(folder.path().join(name)).expect("the file");
            assert_eq!(text, "precious");
        }
    }
}
