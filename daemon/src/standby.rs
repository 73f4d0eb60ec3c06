//! Standing by: a job's folder answers before the job has a daemon.
//!
//! Most programs never delegate anything: they end before that pays. So the first `kakehi run` of a
//! job listens in its folder by itself, and forks the daemon only once somebody greets. That takes
//! the folder over, with the segment in which programs have counted by then. Whoever has greeted
//! before finds the connection closed without a word, and connects again.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd},
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
    process::Resource,
};

use crate::{
    Error,
    admission::raise_limit,
    file_systems::FileSystem,
    socket::accept_from,
    socket_folder::SocketFolder,
    statistics::{Summary, Totals},
};

/// A job's folder in which this process listens, and serves nobody yet. What is in the folder goes
/// when this does.
#[derive(Debug)]
pub struct Standby {
    pub(crate) job: shm::Job,
    pub(crate) job_fd: Arc<OwnedFd>,
    pub(crate) place: SocketFolder,
    pub(crate) listening: OwnedFd,
    /// Connections of those that have not greeted yet. A daemon begins with none.
    pub(crate) callers: Vec<OwnedFd>,
    /// The connection of the run that has started this process.
    pub(crate) run: Option<OwnedFd>,
    /// The connection that the programs of that run inherit.
    pub(crate) heirs: Option<OwnedFd>,
}

impl Standby {
    /// Makes the job's segment, and listens in `folder`.
    ///
    /// # Errors
    ///
    /// - [`Error::Occupied`]: somebody listens there.
    /// - [`Error::Setup`]: the segment, the socket, or the link cannot be made.
    pub fn new(folder: &Path) -> Result<Self, Error> {
        let (job, job_fd) = shm::Job::create().map_err(Error::setup("the job segment"))?;
        let (place, listening) = SocketFolder::occupy(folder, &job_fd)?;
        let (job_fd, callers) = (Arc::new(job_fd), Vec::new());
        Ok(Self { job, job_fd, place, listening, callers, run: None, heirs: None })
    }

    /// As [`new`](Self::new), for the process that is to be the daemon.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn of_daemon(folder: &Path) -> Result<Self, Error> {
        // Shared memory counts as a file. Programs are held to their limit by their own calls
        // (`client/rust/src/limit.rs`).
        raise_limit(Resource::Fsize);
        Self::new(folder)
    }

    /// Serves the run that has started this process, by [its connection](crate::caller::attached).
    #[must_use]
    pub fn attaching(self, run: OwnedFd) -> Self {
        Self { run: Some(run), ..self }
    }

    /// Serves that run's programs, too, by the connection that they inherit, once the run has gone.
    #[must_use]
    pub fn attaching_heirs(self, heirs: OwnedFd) -> Self {
        Self { heirs: Some(heirs), ..self }
    }

    /// Where there is something to read when [`is_asked`](Self::is_asked) may have become true.
    #[must_use]
    pub fn sockets(&self) -> Vec<BorrowedFd<'_>> {
        let callers = self.callers.iter().map(|caller| caller.as_fd());
        callers.chain([self.listening.as_fd()]).collect()
    }

    /// True if somebody has greeted. Never blocks.
    ///
    /// # Errors
    ///
    /// As `accept(2)`.
    pub fn is_asked(&mut self) -> io::Result<bool> {
        match accept_from(&self.listening) {
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
            caller => self.callers.push(caller?),
        }
        let mut is_asked = false;
        // One that only looks whether somebody listens closes at once.
        self.callers.retain(|caller| match has_said(caller) {
            Ok(has_said) => {
                is_asked |= has_said;
                has_said
            }
            Err(why) => why == Errno::AGAIN,
        });
        Ok(is_asked)
    }

    /// Numbers of the descriptors that a process which [takes over](Self::take_over) needs.
    #[must_use]
    pub fn numbers(&self) -> Vec<RawFd> {
        let sockets = self.sockets().into_iter().map(|socket| socket.as_raw_fd());
        sockets.chain([self.job_fd.as_raw_fd()]).collect()
    }

    /// Leaves the folder to the process that takes it over. The job's segment is found by this one
    /// until then: keep what this returns.
    #[must_use]
    pub fn leave(mut self) -> Arc<OwnedFd> {
        self.place.leave();
        self.job_fd
    }

    /// The same, where another process, which this one has been forked from, has stood by.
    ///
    /// # Errors
    ///
    /// [`Error::Setup`]: the socket or the link cannot be made.
    pub fn take_over(self) -> Result<Self, Error> {
        raise_limit(Resource::Fsize);
        let (place, listening) = self.place.take_over(&self.job_fd)?;
        Ok(Self { place, listening, callers: Vec::new(), ..self })
    }

    /// Counts that the programs keep by themselves; they can be read when this is gone.
    ///
    /// # Errors
    ///
    /// The segment cannot be mapped once more.
    pub fn counts(&self) -> io::Result<Counts> {
        Ok(Counts(shm::Job::open(&self.job_fd)?))
    }
}

/// Counts of programs none of which had a session.
#[derive(Debug)]
pub struct Counts(shm::Job);

impl Counts {
    /// Counts of the programs so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let mut totals = Totals::default();
        let counters = self.0.shared().counters.iter();
        totals.add_counters(counters.map(|word| word.load(Ordering::Relaxed)));
        let file_systems = FileSystem::all(&self.0.shared().costs);
        Summary { file_systems, ..totals.summary() }
    }
}

/// True if there is something to read, and false at the other side's end.
fn has_said(caller: &OwnedFd) -> rustix::io::Result<bool> {
    let mut byte = [0];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let (len, _): (usize, usize) = recv(caller, &mut byte, flags)?;
    Ok(len > 0)
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;
    use crate::{caller, socket};

    #[test]
    fn who_greets_is_noticed_and_who_only_looks_is_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut standby = Standby::new(folder.path()).expect("nobody else's");
        for _ in 0..10 {
            assert!(caller::is_there(folder.path()));
            assert!(!standby.is_asked().expect("no error"));
        }
        assert!(!standby.is_asked().expect("no error"));
        assert!(standby.callers.is_empty());
        let caller = socket::connect_to(folder.path(), Duration::from_secs(5));
        let caller = caller.expect("it listens");
        assert!(!standby.is_asked().expect("no error"));
        socket::send(&caller, &[1], &[]).expect("room");
        assert!(standby.is_asked().expect("no error"));
        // Until the daemon serves, it is not let go.
        drop(standby);
        assert!(socket::receive(&caller).is_ok_and(|packet| packet.is_none()));
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
    }

    #[test]
    fn folder_is_taken_over_without_a_moment_in_which_nobody_listens() {
        let folder = tempfile::tempdir().expect("a folder");
        let standby = Standby::new(folder.path()).expect("nobody else's");
        let taken = thread::scope(|scope| {
            let watching = scope.spawn(|| {
                let looks = (0..2000).filter(|_| !caller::is_there(folder.path()));
                looks.count()
            });
            let taken = standby.take_over().expect("given");
            assert_eq!(watching.join().expect("no panic"), 0, "nobody listened");
            taken
        });
        assert!(caller::is_there(folder.path()));
        drop(taken);
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
    }
}
