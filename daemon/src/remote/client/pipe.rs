//! Pipes that stand for remote files in programs the client library does not see into.
//!
//! The standard output of a program is written by its C library past every wrapper, and a program
//! may be handed an open file by another. What has to be a real descriptor to write to is therefore
//! a pipe, and the daemon writes what comes out of it to the file. A look at the file, or at any
//! remote name, first has everything written that was in a pipe by then: so a shell that waited for
//! a command finds what the command wrote.

use std::{
    cell::{Cell, RefCell},
    collections::HashSet,
    io,
    os::fd::OwnedFd,
    rc::{Rc, Weak},
    sync::{Arc, Mutex},
};

use executor::{Class, Handle, Notify};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags},
    io::{Errno, ioctl_fionread},
    pipe::{PipeFlags, fcntl_setpipe_size, pipe_with},
};
use shm::copy::copy_in;
use uring::Heap;

use super::{dial::Dial, file::RemoteFile};
use crate::{
    mail::lock,
    names::{Identity, status_of},
    place::link_to,
    reactor::{Reactor, Watch},
};

const CAPACITY: usize = 1 << 20;
const READ_LEN: usize = 256 << 10;

/// The pipes there are, of all cores of the daemon. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct StandIns(Arc<Mutex<Pipes>>);

#[derive(Debug, Default)]
struct Pipes {
    open: HashSet<Identity>,
    /// Those whose bytes could not be written.
    failed: u64,
    /// Bytes of all that are in the files.
    written_len: u64,
}

impl StandIns {
    pub(crate) fn has(&self, pipe: Identity) -> bool {
        lock(&self.0).open.contains(&pipe)
    }

    /// True if nobody has one to write to.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).open.is_empty()
    }

    pub(crate) fn failed(&self) -> u64 {
        lock(&self.0).failed
    }

    /// Bytes of programs that are in the files.
    pub(crate) fn written_len(&self) -> u64 {
        lock(&self.0).written_len
    }
}

/// The daemon's end of a pipe.
pub(crate) struct Pipe {
    reading: Rc<OwnedFd>,
    identity: Identity,
    all: StandIns,
    file: RefCell<Option<Rc<RemoteFile<Dial>>>>,
    at: Cell<u64>,
    /// Bytes that came, of those the ones that are in the file, and as many as somebody waits for.
    read_len: Cell<u64>,
    written_len: Cell<u64>,
    wanted_len: Cell<u64>,
    /// Nothing more comes.
    is_over: Cell<bool>,
    news: Notify,
    progress: Notify,
}

impl Pipe {
    /// A pipe into `file` from `at` on, and the end to write to.
    pub(crate) fn start(
        handle: &Handle,
        reactor: &Reactor,
        all: &StandIns,
        (file, at): (Rc<RemoteFile<Dial>>, u64),
    ) -> io::Result<(Weak<Self>, OwnedFd)> {
        let (reading, writing) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&reading, true)?;
        fcntl_setpipe_size(&reading, CAPACITY).ok(); // A smaller one only wakes us more often.
        let identity = status_of(&reading)?.identity();
        let pipe = Rc::new(Self {
            reading: Rc::new(reading),
            identity,
            all: all.clone(),
            file: RefCell::new(Some(file)),
            at: Cell::new(at),
            read_len: Cell::new(0),
            written_len: Cell::new(0),
            wanted_len: Cell::new(0),
            is_over: Cell::new(false),
            news: Notify::new(),
            progress: Notify::new(),
        });
        let watch = reactor.watch(Rc::clone(&pipe.reading), &pipe.news)?;
        lock(&all.0).open.insert(identity); // Until `run` ends.
        let weak = Rc::downgrade(&pipe);
        handle.spawn(Class::Latency, pipe.run(watch));
        Ok((weak, writing))
    }

    /// The file, if this is the pipe of that identity.
    pub(crate) fn file_of(&self, identity: Identity) -> Option<Rc<RemoteFile<Dial>>> {
        self.file.borrow().clone().filter(|_| self.identity == identity)
    }

    /// The one of `pipes` that leads into an open file.
    pub(crate) fn find(pipes: &[Weak<Self>], file: &Rc<RemoteFile<Dial>>) -> Option<Rc<Self>> {
        let leads =
            |pipe: &Rc<Self>| pipe.file.borrow().as_ref().is_some_and(|own| Rc::ptr_eq(own, file));
        pipes.iter().filter_map(Weak::upgrade).find(leads)
    }

    /// Another end to write to: what comes by either keeps its order.
    pub(crate) fn another_end(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(link_to(&self.reading), flags, Mode::empty())?)
    }

    /// Where the next byte goes; `u64::MAX` behind what was appended.
    pub(crate) fn position(&self) -> u64 {
        self.at.get()
    }

    /// Has the next byte go elsewhere, or, of a file that is appended to, be read from there.
    pub(crate) fn set_position(&self, at: u64) {
        self.at.set(at);
    }

    /// Has everything that is in the pipe now in the file, and the pipe closed if nobody has its
    /// other end any more.
    pub(crate) async fn settle(&self) {
        let waiting = ioctl_fionread(&*self.reading).unwrap_or(0);
        let len = self.read_len.get() + waiting;
        let is_settled =
            || self.is_over.get() || self.written_len.get() >= len && !self.is_deserted();
        if is_settled() {
            return;
        }
        self.wanted_len.set(self.wanted_len.get().max(len));
        self.news.notify_all();
        self.progress.until(is_settled).await;
    }

    /// True if nobody has the other end.
    fn is_deserted(&self) -> bool {
        let mut ends = [PollFd::new(&*self.reading, PollFlags::IN)];
        poll(&mut ends, Some(&Timespec::default())).is_ok()
            && ends.iter().any(|end| end.revents().contains(PollFlags::HUP))
    }

    /// Writes what comes, until the last writer is gone.
    async fn run(self: Rc<Self>, watch: Watch) {
        let mut bytes = vec![0; READ_LEN];
        loop {
            match rustix::io::read(&*self.reading, &mut bytes) {
                Ok(0) => break,
                Ok(len) => {
                    self.read_len.set(self.read_len.get() + len as u64);
                    if let Err(error) = self.write(bytes.get(..len).unwrap_or_default()).await {
                        // The writers learn it by the pipe being closed, if they write again.
                        let name = self.file.borrow().as_ref().and_then(|file| file.name());
                        self.tell_of_loss(name, &error);
                        break;
                    }
                    self.written_len.set(self.read_len.get());
                    lock(&self.all.0).written_len += len as u64;
                    self.progress.notify_all();
                }
                Err(Errno::AGAIN) => {
                    // Somebody may have got another end.
                    self.progress.notify_all();
                    let is_wanted = || self.wanted_len.get() > self.read_len.get();
                    self.news.until(|| watch.take_ready() || is_wanted()).await;
                }
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        lock(&self.all.0).open.remove(&self.identity);
        let file = self.file.borrow_mut().take();
        if let Some(file) = file {
            file.leave_at(self.at.get());
            // With the last descriptor its locks are gone, before anybody else is told.
            let name = file.name();
            if let Err(error) = RemoteFile::close(file).await {
                self.tell_of_loss(name, &error);
            }
        }
        self.is_over.set(true);
        self.progress.notify_all();
    }

    fn tell_of_loss(&self, name: Option<String>, error: &io::Error) {
        lock(&self.all.0).failed += 1;
        let name = name.unwrap_or_default();
        tracing::error!(
            "what a program wrote to the server's {name}, as its standard output or a file it was \
             handed, is lost: {error}"
        );
    }

    async fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let Some(file) = self.file.borrow().clone() else { return Ok(()) };
        let buffer = Heap::buffer(bytes.len());
        copy_in(buffer.bytes(), bytes);
        let mut done = 0;
        while done < bytes.len() {
            match file.write(self.at.get(), &buffer.suffix(done).into()).await? {
                0 => return Err(Errno::IO.into()),
                len => {
                    done += len;
                    let end = self.at.get().saturating_add(len as u64);
                    self.at.set(if file.appends() { u64::MAX } else { end });
                }
            }
        }
        Ok(())
    }
}
