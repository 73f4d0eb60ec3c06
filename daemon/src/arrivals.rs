//! Clients that the listener has admitted, as they arrive at their executor: each gets its session
//! and its welcome, and is watched until it goes.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
    sync::Arc,
};

use executor::{Class, Mailbox};
use uring::{Reactor, Watch};
use wire::{Refusal, VERSION, Welcome};

use crate::{
    core::{Core, Departure},
    listener::Admitted,
    mounts::Mounts,
    peer::Process,
    registration,
    session::Session,
    socket,
};

/// The clients that arrive at one executor.
pub(crate) struct Arrivals {
    pub(crate) core: Rc<Core<Mounts>>,
    pub(crate) reactor: Reactor,
    pub(crate) admitted: Arc<[Mailbox<Admitted>]>,
    pub(crate) job_fd: Arc<OwnedFd>,
}

impl Arrivals {
    /// Welcomes each, for ever.
    pub(crate) async fn take_in(self) {
        let Some(mailbox) = self.admitted.get(self.core.index) else { return };
        loop {
            let client = mailbox.receive().await;
            let (id, grant) = (client.id, client.grant);
            if let Err(error) = self.welcome(client) {
                tracing::warn!("a client could not be welcomed: {error}");
            }
            if self.core.session(id).is_none() {
                // A daemon that ends may wait for this one alone.
                self.core.node.leave(id, grant);
            }
        }
    }

    /// Makes the session and answers the greeting; from then on the client may ask.
    fn welcome(&self, client: Admitted) -> io::Result<()> {
        let Admitted { id, rank, grant, segment, segment_fd, socket, process } = client;
        let (socket, process) = (Rc::new(socket), Rc::new(process));
        if self.core.node.is_stopping() {
            // Who comes in before this is sent off with the others.
            return socket::send(&socket, &Welcome::refuse(Refusal::Stopping).encode(), &[]);
        }
        let machine = self.core.storage.machine().clone();
        let (its_socket, its_process) = (Rc::clone(&socket), Rc::clone(&process));
        let peer = Box::new(Process { machine, socket: its_socket, process: its_process });
        let session = Rc::new(Session::new(id, rank, grant, Arc::new(segment), peer));
        let socket_watch = self.reactor.watch(Rc::clone(&socket), &session.news)?;
        let process_watch = self.reactor.watch(process, &session.news)?;
        self.core.enter(Rc::clone(&session));
        let welcome = Welcome {
            version: VERSION,
            session: Ok(id),
            executor: u32::try_from(self.core.index).map_err(io::Error::other)?,
            file_credit: grant.file_credit,
            arena_len: grant.arena_len,
            has_view: self.core.node.has_views.get().is_some(),
        };
        let fds = [segment_fd.as_fd(), self.job_fd.as_fd()];
        let sent = socket::send(&socket, &welcome.encode(), &fds);
        let watches = Watches { socket: socket_watch, process: process_watch };
        let core = Rc::clone(&self.core);
        self.core.handle.spawn(Class::Latency, attend(core, Rc::clone(&session), watches));
        if sent.is_err() {
            self.core.end(&session, Departure::Gone);
        }
        sent
    }
}

struct Watches {
    socket: Watch,
    process: Watch,
}

/// Reads what a client sends, and notices its end, until the session ends.
async fn attend(core: Rc<Core<Mounts>>, session: Rc<Session<Mounts>>, watches: Watches) {
    loop {
        let mut is_dead = false;
        let mut has_sent = false;
        session
            .news
            .until(|| {
                is_dead |= watches.process.take_ready();
                has_sent |= watches.socket.take_ready();
                is_dead || has_sent || session.is_ending()
            })
            .await;
        if session.is_ending() {
            return;
        }
        if has_sent {
            registration::hear(&core, &session);
        }
        if is_dead {
            core.end(&session, Departure::Gone);
        }
    }
}
