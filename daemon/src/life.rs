//! How long a daemon lives, and how it ends.

use std::{cell::RefCell, future, os::fd::OwnedFd, rc::Rc, sync::Arc, time::Duration};

use coalesce::Coalesced;
use executor::{Class, first, lock};
use remote::Service;
use shm::staging::SEEN_AFTER;

use crate::{
    core::Core, listener::Connections, mounts::Mounts, node::Mail, signals::Watched, socket,
    statistics::Loss, status, view::View,
};

/// How often a daemon that is to end looks whether the last writer has left its views.
const VIEWS_LOOKED_AT: Duration = Duration::from_millis(5);

/// How long a server that is to end waits for requests that are under way: a file system may hang.
const FINISHED_WITHIN: Duration = Duration::from_secs(10);

/// How a daemon tells its starter that it stays.
pub(crate) type Stays = (fn(&OwnedFd), Arc<OwnedFd>);

/// The life of a daemon, as its first executor leads it.
pub(crate) struct Life {
    pub(crate) core: Rc<Core<Mounts>>,
    pub(crate) connections: Rc<Connections>,
    /// True if it ends with the last that was attached.
    pub(crate) is_for_job: bool,
    pub(crate) linger: Duration,
    /// Set if it stays for programs that go on when nobody is attached any more.
    pub(crate) stays: Option<Stays>,
    /// Files that are in multifiles, for daemons elsewhere and for this one.
    pub(crate) coalesced: Option<Coalesced>,
    /// For daemons elsewhere.
    pub(crate) service: Option<Rc<Service<Coalesced>>>,
    pub(crate) views: Vec<Rc<View>>,
    pub(crate) loss: RefCell<Loss>,
}

/// Why a daemon ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// By signals.
    Signalled,
    /// By a question that asks for it.
    Asked,
    /// Nobody is attached any more.
    Unattached,
}

impl Life {
    /// Serves until there is a reason to end, and ends; one more signal, or a second one, cuts that
    /// short. Returns what was lost.
    ///
    /// A job's daemon is signalled with the job: its programs may write on, as in a handler, so
    /// the first signal has it drain, and only the second ends it.
    pub(crate) async fn live(self, signals: &Watched) -> Loss {
        let enough = if self.is_for_job { 2 } else { 1 };
        let handle = &self.core.handle;
        let samples = status::take_samples(Arc::clone(&self.core.node), handle.clone());
        handle.spawn(Class::Throughput, samples);
        let told = async {
            signals.came(1).await;
            if self.is_for_job {
                let drained = async { drop(self.core.node.ask_all(Mail::DrainAll).await) };
                first(drained, signals.came(enough)).await;
            }
            signals.came(enough).await;
            End::Signalled
        };
        let end = first(self.reason(), told).await;
        let heard = if end == End::Signalled { enough } else { 1 };
        first(self.end(end), signals.came(heard + 1)).await;
        for core in 0..self.core.node.core_count() {
            if let Some(mailbox) = self.core.node.mailbox(core) {
                mailbox.send(Mail::End);
            }
        }
        self.loss.take()
    }

    async fn reason(&self) -> End {
        let connections = &self.connections;
        let is_left =
            || self.is_for_job && connections.was_attached.get() && connections.runs.get() == 0;
        let is_told = || !connections.stoppers.borrow().is_empty();
        let mut stays = self.stays.clone();
        loop {
            connections.changed.until(|| is_left() || is_told()).await;
            if is_told() {
                return End::Asked;
            }
            if self.stays.is_none() || self.is_deserted() {
                return End::Unattached;
            }
            let others = connections.changed.until(|| !is_left() || is_told());
            first(self.stay(&mut stays), others).await;
        }
    }

    /// Stays until no program of the job is left. If that takes long, its starter is told, once.
    async fn stay(&self, stays: &mut Option<Stays>) {
        let told = async {
            self.core.handle.sleep(self.linger).await;
            if let Some((tell, starter)) = stays.take() {
                tell(&starter);
            }
            future::pending().await
        };
        let connections = &self.connections;
        let gone = async {
            while !self.is_deserted() {
                connections.changed.until(|| !connections.has_heirs.get()).await;
                self.deserted().await;
            }
        };
        first(gone, told).await;
    }

    /// True if no program is left that is known to the daemon.
    fn is_deserted(&self) -> bool {
        !self.connections.has_heirs.get()
            && self.core.node.session_count() == 0
            && !self.views.iter().any(|view| view.has_writers())
    }

    /// Drains everything, sends the clients off, and tells who waits for that.
    async fn end(&self, end: End) {
        let node = &self.core.node;
        node.stop();
        if let Some(service) = &self.service {
            first(service.finish(), self.core.handle.sleep(FINISHED_WITHIN)).await;
        }
        node.ask_all(Mail::DrainAll).await;
        if end == End::Unattached {
            first(self.deserted(), self.core.handle.sleep(self.linger)).await;
        }
        let is_news = lock(&node.registry).demote_all(&self.core.handle);
        if is_news {
            self.core.handle.sleep(SEEN_AFTER).await;
            // What was linked meanwhile.
            lock(&node.registry).demote_all(&self.core.handle);
        }
        node.ask_all(Mail::Close).await;
        self.emptied().await;
        for view in &self.views {
            view.end().await;
        }
        node.ask_all(Mail::LeaveServer).await;
        if let Some(coalesced) = &self.coalesced {
            let (unclosed, removed) = coalesced.close().await;
            let mut loss = self.loss.borrow_mut();
            (loss.unclosed, loss.removed) = (unclosed, removed);
        }
        status::take_sample(node).await;
        let stoppers = self.connections.stoppers.take();
        if stoppers.is_empty() {
            return;
        }
        let loss = self.loss.borrow().clone();
        let answer = status::document(node, loss).await;
        for socket in stoppers {
            socket::send(&*socket, &answer, &[]).ok(); // Who asked may have gone.
        }
    }

    /// Waits until no session is left, and no file is open in a view to be written: who was handed
    /// that may have no session.
    async fn deserted(&self) {
        self.emptied().await;
        while self.views.iter().any(|view| view.has_writers()) {
            self.core.handle.sleep(VIEWS_LOOKED_AT).await;
        }
    }

    /// Waits until no session is left.
    async fn emptied(&self) {
        self.core.departed.until(|| self.core.node.session_count() == 0).await;
    }
}
