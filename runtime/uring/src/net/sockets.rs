//! Listening and connecting.

use std::{
    future::poll_fn,
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    rc::Rc,
    time::Duration,
};

use executor::{Handle, Instant, first};
use rustix::{
    fs::{FileType, FlockOperation, Mode, OFlags, fchmod, flock, lstat, open, unlink},
    io::Errno,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with,
        addr::SocketAddrArg,
        bind, connect, getsockname, listen, socket_with,
        sockopt::{set_socket_reuseaddr, socket_error},
    },
};

use super::{
    address::Address,
    options,
    readiness::{Direction, Poller, Socket},
    stream::Stream,
};
use crate::{engines::Engines, parker::Events};

/// Connections that wait to be accepted; the kernel has a limit of its own.
const BACKLOG: i32 = 1024;

/// A folder's lock is held for two calls, and asked for so often,
const LOCK_PERIOD: Duration = Duration::from_millis(10);
/// for so long.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// The sockets of one executor. Cheap to clone.
#[derive(Clone)]
pub struct Sockets {
    poller: Rc<Poller>,
    engines: Engines,
    handle: Handle,
}

impl Sockets {
    /// Puts sockets on the poll list of `handle`'s executor, which must park in `events`.
    ///
    /// Host names are looked up on threads of `engines`.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`: the process or the machine is out of descriptors or memory.
    pub fn new(handle: &Handle, events: &Events, engines: &Engines) -> io::Result<Self> {
        let poller = Poller::new(handle, events)?;
        Ok(Self { poller, engines: engines.clone(), handle: handle.clone() })
    }

    /// Listens at `address`; of a host with several addresses at the first that can be had. Only
    /// this user connects to a Unix socket; its path is taken over from a listener that is gone.
    /// Of several that begin at one path at a time the first has it.
    ///
    /// # Errors
    ///
    /// Those of `getaddrinfo`, `socket`, and `bind`.
    pub async fn listen(&self, address: &Address) -> io::Result<Listener> {
        if let Address::Unix(path) = address {
            let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
            // The file that `bind` makes has it from the beginning.
            fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
            // One that is bound and not yet listening looks like one that is gone.
            let _lock = self.lock_folder_of(path).await;
            bind_path(&fd, path)?;
            return self.listener(fd, address.clone());
        }
        let mut result = Err(io::ErrorKind::NotFound.into());
        for place in address.resolve(&self.engines).await? {
            result = self.listen_at(place);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// Connects to `address` within `limit`; of a host with several addresses to the first that
    /// answers. Each has an equal part of the time that is left: one that nothing answers at, like
    /// that of a network which this node is not in, does not keep the others from being tried.
    ///
    /// # Errors
    ///
    /// Those of `socket` and `connect`, of the last address tried; `NotFound` without an error
    /// number when the host has none; `TimedOut` after `limit`; `WouldBlock` when a Unix listener's
    /// backlog is full.
    pub async fn connect(&self, address: &Address, limit: Duration) -> io::Result<Stream> {
        if let Address::Unix(path) = address {
            return within(&self.handle, limit, self.connect_unix(path)).await;
        }
        let end = self.handle.now() + limit;
        let places = within(&self.handle, limit, address.resolve(&self.engines)).await?;
        self.connect_to_first(&places, end).await
    }

    async fn connect_to_first(&self, places: &[SocketAddr], end: Instant) -> io::Result<Stream> {
        let mut result = Err(io::ErrorKind::NotFound.into());
        for (place, left) in places.iter().zip((1..=places.len()).rev()) {
            let time = end.saturating_since(self.handle.now());
            let part = time / u32::try_from(left).unwrap_or(u32::MAX);
            result = within(&self.handle, part, self.connect_tcp(*place)).await;
            if result.is_ok() {
                break;
            }
        }
        result
    }

    async fn connect_tcp(&self, place: SocketAddr) -> io::Result<Stream> {
        let fd = socket_with(family(place), SocketType::STREAM, FLAGS, None)?;
        options::set_no_delay(&fd)?;
        self.connect_at(fd, &place).await
    }

    async fn connect_unix(&self, path: &Path) -> io::Result<Stream> {
        let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
        self.connect_at(fd, &SocketAddrUnix::new(path)?).await
    }

    async fn connect_at(&self, fd: OwnedFd, place: &impl SocketAddrArg) -> io::Result<Stream> {
        let in_progress = match connect(&fd, place) {
            Ok(()) => false,
            Err(Errno::INPROGRESS) => true,
            Err(error) => return Err(error.into()),
        };
        let socket = self.poller.add(fd, false)?;
        if in_progress {
            // An event says when the outcome is known.
            socket.exhausted(Direction::Send);
            poll_fn(|context| socket.poll_call(Direction::Send, context, |_| Ok(()))).await?;
            socket_error(&socket)??;
        }
        Ok(Stream::new(socket))
    }

    /// Waits for the lock of the folder that a path is in, held until this is dropped. Where there
    /// is none to be had, as on some file systems, or a stranger keeps it, nobody waits for long.
    async fn lock_folder_of(&self, path: &Path) -> Option<OwnedFd> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(folder.unwrap_or(Path::new(".")), flags, Mode::empty()).ok()?;
        let end = self.handle.now() + LOCK_PATIENCE;
        loop {
            match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK | Errno::INTR) if self.handle.now() < end => {
                    self.handle.sleep(LOCK_PERIOD).await;
                }
                locked => return locked.ok().map(|()| folder),
            }
        }
    }

    fn listen_at(&self, place: SocketAddr) -> io::Result<Listener> {
        let fd = socket_with(family(place), SocketType::STREAM, FLAGS, None)?;
        set_socket_reuseaddr(&fd, true)?;
        bind(&fd, &place)?;
        let bound = SocketAddr::try_from(getsockname(&fd)?)?;
        self.listener(fd, bound.into())
    }

    fn listener(&self, fd: OwnedFd, address: Address) -> io::Result<Listener> {
        listen(&fd, BACKLOG)?;
        let socket = self.poller.add(fd, true)?;
        Ok(Listener { socket, address })
    }
}

/// A listening socket. Closed when dropped; the path of a Unix socket stays.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    address: Address,
}

impl Listener {
    /// Waits for the next connection.
    ///
    /// # Errors
    ///
    /// Those of `accept`. `EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM` come again at once: pause.
    pub async fn accept(&mut self) -> io::Result<Stream> {
        let accepted = poll_fn(|context| {
            self.socket.poll_call(Direction::Receive, context, |fd| Ok(accept_with(fd, FLAGS)?))
        });
        let fd = accepted.await?;
        if matches!(self.address, Address::Tcp { .. }) {
            options::set_no_delay(&fd)?;
        }
        Ok(Stream::new(self.socket.poller().add(fd, false)?))
    }

    /// Where it listens, with the port the system chose.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Binds to `path`, which a listener may have left that did not end in order.
fn bind_path(fd: &OwnedFd, path: &Path) -> io::Result<()> {
    let place = SocketAddrUnix::new(path)?;
    let bound = bind(fd, &place);
    if bound != Err(Errno::ADDRINUSE) {
        return Ok(bound?);
    }
    if FileType::from_raw_mode(lstat(path)?.st_mode) != FileType::Socket {
        let what = "a file is there that is no socket";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
    }
    if !is_abandoned(&place)? {
        return Ok(bound?);
    }
    unlink(path)?;
    Ok(bind(fd, &place)?)
}

/// True if nobody listens at a socket. Other files refuse connections, too.
fn is_abandoned(place: &SocketAddrUnix) -> io::Result<bool> {
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    Ok(connect(&probe, place) == Err(Errno::CONNREFUSED))
}

fn family(place: SocketAddr) -> AddressFamily {
    if place.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

/// Waits for `future`, at most `limit`.
async fn within<T>(
    handle: &Handle,
    limit: Duration,
    future: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let too_late = async {
        handle.sleep(limit).await;
        Err(io::ErrorKind::TimedOut.into())
    };
    first(future, too_late).await
}

#[cfg(test)]
mod tests {
    use std::{
        net::TcpListener,
        pin::pin,
        task::{Context, Waker},
    };

    use executor::{Config, Executor, ManualClock};

    use super::*;
    use crate::engines::Choice;

    /// A listener at which nobody answers, with what keeps it so.
    fn silent() -> (SocketAddr, Vec<OwnedFd>) {
        let socket = || socket_with(AddressFamily::INET, SocketType::STREAM, FLAGS, None).unwrap();
        let listener = socket();
        bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        listen(&listener, 0).unwrap();
        let place = SocketAddr::try_from(getsockname(&listener).unwrap()).unwrap();
        let queue = (0..8).map(|_| {
            let queued = socket();
            assert_eq!(connect(&queued, &place), Err(Errno::INPROGRESS));
            queued
        });
        (place, queue.chain([listener]).collect())
    }

    #[test]
    fn an_address_that_is_silent_leaves_time_for_the_next() {
        const LIMIT: Duration = Duration::from_secs(2);
        let (events, clock) = (Events::new().unwrap(), Rc::new(ManualClock::new()));
        let parker = Box::new(events.parker());
        let mut executor = Executor::new(clock.clone(), parker, Config::default());
        let handle = executor.handle();
        let engines = Engines::new(&handle, Choice::Threads, 1, &events);
        let sockets = Sockets::new(&handle, &events, &engines).unwrap();
        let (silent, _kept) = silent();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let places = [silent, listener.local_addr().unwrap()];
        let mut connected = pin!(sockets.connect_to_first(&places, handle.now() + LIMIT));
        let mut turn = || {
            executor.turn();
            connected.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        };
        assert!((0..100).all(|_| turn().is_pending()));

        clock.advance(LIMIT / 2);

        let start = std::time::Instant::now();
        while turn().map(Result::unwrap).is_pending() {
            assert!(start.elapsed() < Duration::from_secs(60), "the next was not tried");
        }
    }
}
