//! Listening and connecting.

use std::{
    fmt,
    future::poll_fn,
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    pin::pin,
    rc::Rc,
    task::Poll,
    time::Duration,
};

use executor::Handle;
use rustix::{
    fs::{FileType, Mode, fchmod, lstat, unlink},
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
    ///
    /// # Errors
    ///
    /// Those of `getaddrinfo`, `socket`, and `bind`.
    pub async fn listen(&self, address: &Address) -> io::Result<Listener> {
        if let Address::Unix(path) = address {
            let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
            // The file that `bind` makes has it from the beginning.
            fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
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
    /// answers.
    ///
    /// # Errors
    ///
    /// Those of `socket` and `connect`, of the last address tried; `NotFound` without an error
    /// number when the host has none; `TimedOut` after `limit`; `WouldBlock` when a Unix listener's
    /// backlog is full.
    pub async fn connect(&self, address: &Address, limit: Duration) -> io::Result<Stream> {
        let connected = self.connect_to_any(address);
        within(&self.handle, limit, connected).await?
    }

    async fn connect_to_any(&self, address: &Address) -> io::Result<Stream> {
        if let Address::Unix(path) = address {
            return self.connect_unix(path).await;
        }
        let mut result = Err(io::ErrorKind::NotFound.into());
        for place in address.resolve(&self.engines).await? {
            let fd = socket_with(family(place), SocketType::STREAM, FLAGS, None)?;
            options::set_no_delay(&fd)?;
            result = self.connect_at(fd, &place).await;
            if result.is_ok() {
                break;
            }
        }
        result
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
        let socket = self.poller.add(fd)?;
        if in_progress {
            // An event says when the outcome is known.
            socket.exhausted(Direction::Send);
            poll_fn(|context| socket.poll_call(Direction::Send, context, |_| Ok(()))).await?;
            socket_error(&socket)??;
        }
        Ok(Stream::new(socket))
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
        let socket = self.poller.add(fd)?;
        Ok(Listener { socket, address })
    }
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sockets").finish_non_exhaustive()
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
        Ok(Stream::new(self.socket.poller().add(fd)?))
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
    if bound != Err(Errno::ADDRINUSE) || !is_abandoned(path, &place)? {
        return Ok(bound?);
    }
    unlink(path)?;
    Ok(bind(fd, &place)?)
}

/// Whether a path is a socket to which nobody listens. Other files refuse connections, too.
fn is_abandoned(path: &Path, place: &SocketAddrUnix) -> io::Result<bool> {
    let is_socket = FileType::from_raw_mode(lstat(path)?.st_mode) == FileType::Socket;
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    Ok(is_socket && connect(&probe, place) == Err(Errno::CONNREFUSED))
}

fn family(place: SocketAddr) -> AddressFamily {
    if place.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

/// Waits for `future`, at most `limit`.
async fn within<T>(
    handle: &Handle,
    limit: Duration,
    future: impl Future<Output = T>,
) -> io::Result<T> {
    let (mut future, mut sleep) = (pin!(future), pin!(handle.sleep(limit)));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Ok(value)),
        Poll::Pending => sleep.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into())),
    })
    .await
}
