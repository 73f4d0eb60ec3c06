//! Standing by: a job's folder answers before the job has a daemon.
//!
//! Most programs never delegate anything: they end before that pays. So the first `kakehi run` of a
//! job listens in its folder by itself, and starts the daemon only once somebody greets. That
//! daemon takes the folder over, with the segment in which programs have counted by then. Whoever
//! has greeted before finds the connection closed without a word, and connects again.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::atomic::Ordering,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, retry_on_intr},
    net::{RecvFlags, recv},
};

use crate::{
    Error,
    file_systems::FileSystem,
    socket::accept_from,
    socket_folder::SocketFolder,
    statistics::{Summary, Totals},
};

/// How long a connection may say nothing before it is closed: one that only looks whether somebody
/// listens closes at once, and whoever was stopped connects again.
const GREETING_TIME: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A job's folder without a daemon. What is in the folder goes when this does.
#[derive(Debug)]
pub struct Standby {
    job: shm::Job,
    job_fd: OwnedFd,
    /// `None`: closed.
    place: Option<(SocketFolder, OwnedFd)>,
}

/// Connections of those who wait for the daemon. Closed, they connect again: drop it once the
/// daemon serves.
#[derive(Debug)]
#[must_use]
pub struct Waiting {
    _first: OwnedFd,
}

impl Standby {
    /// Listens in `folder`.
    ///
    /// # Errors
    ///
    /// - [`Error::Occupied`]: somebody listens there.
    /// - [`Error::Setup`]: the segment, the socket, or the link cannot be made.
    pub fn new(folder: &Path) -> Result<Self, Error> {
        let (job, job_fd) = shm::Job::create().map_err(Error::setup("the job segment"))?;
        let place = Some(SocketFolder::occupy(folder, &job_fd)?);
        Ok(Self { job, job_fd, place })
    }

    /// Waits until somebody greets, or `end` is readable or closed at its other side: `None` then,
    /// and for one that is [closed](Self::close).
    ///
    /// # Errors
    ///
    /// As `poll(2)` and `accept(2)`.
    pub fn wait(&self, end: BorrowedFd<'_>) -> io::Result<Option<Waiting>> {
        let Some((_, listening)) = &self.place else { return Ok(None) };
        let listening = listening.as_fd();
        loop {
            if await_either(listening, end, None)? == Some(Awaited::End) {
                return Ok(None);
            }
            let caller = match accept_from(listening) {
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => continue,
                caller => caller?,
            };
            match await_either(caller.as_fd(), end, Some(&GREETING_TIME))? {
                Some(Awaited::End) => return Ok(None),
                Some(Awaited::Socket) if has_said(&caller) => {
                    return Ok(Some(Waiting { _first: caller }));
                }
                _ => {}
            }
        }
    }

    /// The job's segment, for the daemon that takes over.
    #[must_use]
    pub fn segment(&self) -> BorrowedFd<'_> {
        self.job_fd.as_fd()
    }

    /// Leaves the folder to the daemon that has taken it over.
    pub fn leave(mut self) {
        self.place.iter_mut().for_each(|(place, _)| place.leave());
    }

    /// Listens no more, as there is to be no daemon. The counts stay.
    pub fn close(&mut self) {
        self.place = None;
    }

    /// Counts of the programs so far; none of them had a session.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let mut totals = Totals::default();
        let counters = self.job.shared().counters.iter();
        totals.add_counters(counters.map(|word| word.load(Ordering::Relaxed)));
        let file_systems = FileSystem::all(&self.job.shared().costs);
        Summary { file_systems, ..totals.summary() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Socket,
    End,
}

/// `None`: `time` is over.
fn await_either(
    socket: BorrowedFd<'_>,
    end: BorrowedFd<'_>,
    time: Option<&Timespec>,
) -> io::Result<Option<Awaited>> {
    let mut both = [socket, end].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    retry_on_intr(|| poll(&mut both, time))?;
    let [socket, end] = both.map(|fd| !fd.revents().is_empty());
    let socket = socket.then_some(Awaited::Socket);
    Ok(if end { Some(Awaited::End) } else { socket })
}

/// True if there is something to read, and not only the other side's end.
fn has_said(caller: &OwnedFd) -> bool {
    let mut byte = [0];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let received: Result<(usize, usize), Errno> = recv(caller, &mut byte, flags);
    received.is_ok_and(|(len, _)| len > 0)
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixStream, thread, time::Duration};

    use super::*;
    use crate::{caller, socket};

    #[test]
    fn who_greets_is_waited_for_and_who_only_looks_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let standby = Standby::new(folder.path()).expect("nobody else's");
        let (end, held) = UnixStream::pair().expect("sockets");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| standby.wait(end.as_fd()));
            for _ in 0..10 {
                assert!(caller::is_there(folder.path()));
            }
            let caller = socket::connect_to(folder.path(), Duration::from_secs(5));
            let caller = caller.expect("it listens");
            socket::send(&caller, &[1], &[]).expect("room");
            let waiting = waiting.join().expect("no panic").expect("no error");
            assert!(waiting.is_some());
            // Until the daemon serves, it is not let go.
            drop(waiting);
            assert!(socket::receive(&caller).is_ok_and(|packet| packet.is_none()));
        });
        drop(held);
        assert!(standby.wait(end.as_fd()).is_ok_and(|waiting| waiting.is_none()));
        drop(standby);
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
    }

    #[test]
    fn folder_is_taken_over_without_a_moment_in_which_nobody_listens() {
        let folder = tempfile::tempdir().expect("a folder");
        let standby = Standby::new(folder.path()).expect("nobody else's");
        let segment = standby.segment().try_clone_to_owned().expect("a descriptor");
        let taken = thread::scope(|scope| {
            let watching = scope.spawn(|| {
                let looks = (0..2000).filter(|_| !caller::is_there(folder.path()));
                looks.count()
            });
            let taken = SocketFolder::take_over(folder.path(), &segment).expect("given");
            assert_eq!(watching.join().expect("no panic"), 0, "nobody listened");
            taken
        });
        standby.leave();
        assert!(caller::is_there(folder.path()));
        drop(taken);
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
    }
}
