//! A connection for tests to hold: its daemon never answers.

use std::boxed::Box;

use rustix::{
    fd::{BorrowedFd, RawFd},
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
};

use super::*;
use crate::{host::Peer, recorder::Lines};

struct Nobody;

impl Host for Nobody {
    fn borrow(&self, _fd: RawFd) -> BorrowedFd<'static> {
        unreachable!("nothing is sent")
    }

    fn replace(&self, _fd: RawFd, _with: BorrowedFd<'_>) -> io::Result<()> {
        Err(Errno::NOSYS)
    }

    fn peer(&self, _socket: BorrowedFd<'_>) -> io::Result<Peer> {
        Err(Errno::NOSYS)
    }
}

const ARENA_LEN: usize = 64 << 20;

/// A connection over real segments.
pub(crate) fn unanswered() -> &'static Connection {
    let (socket, _) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("a socket");
    let (session, job) = (Session::create(ARENA_LEN).expect("memory"), Job::create());
    let segments = [session.1, job.expect("memory").1];
    let welcome = wire::Welcome {
        version: wire::VERSION,
        session: Ok(0),
        executor: 0,
        file_credit: 256,
        arena_len: ARENA_LEN as u64,
        has_view: false,
    };
    let met = dial::Met { socket, daemon: None, welcome, segments };
    let lines = Box::leak(Box::new(Lock::new(Lines::NONE)));
    let (tables, recorder) =
        (Box::leak(Box::new(Tables::new())), Box::leak(Box::new(Recorder::new(lines))));
    let place = Box::leak(Box::new(Once::new()));
    let greeted = Greeted { met, sight: Sight::Shared };
    Connection::keep(greeted, &Config::new(), &Nobody, tables, recorder, place)
        .expect("a connection")
}
