//! The messages of other executors to one: see [`Mail`].

use std::rc::Rc;

use executor::{Class, Handle, Reply};

use crate::{
    core::{Core, Departure},
    drain,
    file::OpenFile,
    node::{CoreReport, Mail, Report},
    registration,
    session_storage::SessionStorage,
    settle,
};

/// Reads an executor's mail, until it is told to end.
pub(crate) async fn read<S: SessionStorage>(core: Rc<Core<S>>) {
    let Some(mailbox) = core.node.mailbox(core.index) else { return };
    loop {
        let (mail, core) = (mailbox.receive().await, Rc::clone(&core));
        let handle = core.handle.clone();
        match mail {
            Mail::Drain { session, slot, len, done } => {
                let drained = async move { settle::drain_slot(&core, session, slot, len).await };
                answer(&handle, done, drained);
            }
            Mail::DrainAll(done) => answer(&handle, done, async move { drain_all(&core).await }),
            Mail::Hear(done) => {
                hear_all(&core);
                done.send(());
            }
            Mail::Reap(done) => answer(&handle, done, async move { reap_lockers(&core).await }),
            Mail::Close(done) => {
                close(&core);
                done.send(());
            }
            Mail::LeaveServer(done) => {
                answer(&handle, done, async move { core.storage.leave().await });
            }
            Mail::Report(done) => done.send(report(&core)),
            Mail::Departed => core.departed.notify_all(),
            Mail::End => return,
        }
    }
}

/// Has what a letter asks for done in a task, and says so.
fn answer<T: 'static>(handle: &Handle, done: Reply<T>, work: impl Future<Output = T> + 'static) {
    handle.spawn(Class::Latency, async move { done.send(work.await) });
}

/// Drains every file, also those that are still on their way here.
async fn drain_all<S: SessionStorage>(core: &Rc<Core<S>>) {
    hear_all(core);
    for session in core.sessions() {
        drain::drain_session(core, &session).await;
    }
}

/// Reads every control socket.
fn hear_all<S: SessionStorage>(core: &Rc<Core<S>>) {
    core.sessions().iter().for_each(|session| registration::hear(core, session));
}

/// Ends the sessions of clients that are gone and had locks; on return they have none.
async fn reap_lockers<S: SessionStorage>(core: &Rc<Core<S>>) {
    let mut ending = core.sessions();
    ending.retain(|session| session.has_locks.get());
    for session in ending.iter().filter(|session| session.peer.is_gone()) {
        core.end(session, Departure::Gone);
    }
    ending.retain(|session| session.is_ending());
    for session in ending {
        session.news.until(|| session.file_count() == 0).await;
    }
}

/// Ends every session.
fn close<S: SessionStorage>(core: &Rc<Core<S>>) {
    for session in core.sessions() {
        core.end(&session, Departure::Stopping);
    }
}

fn report<S: SessionStorage>(core: &Core<S>) -> Report {
    let (counters, sessions) = (core.handle.counters(), core.sessions());
    let mut totals = core.node.ended(core.index);
    sessions.iter().for_each(|session| totals.add(&session.count_up()));
    let files: Vec<_> = sessions.iter().flat_map(|session| session.files()).collect();
    let is_refused = |file: &&Rc<OpenFile<S>>| file.pace.is_refused.get();
    totals.drain_errors += files.iter().filter(is_refused).count() as u64;
    let core = CoreReport::new(core.index, core.storage.describe(), sessions.len(), &counters);
    let staged_bytes = files.iter().map(|file| file.staged().min(file.log().len)).sum();
    Report { core, totals, staged_bytes, working: counters.working }
}
