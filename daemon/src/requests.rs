//! Requests of a client on a lane: checked, acknowledged, executed, answered.
//!
//! An entry is decoded from a copy. Its slot, its range of the arena, and its paths are checked
//! before it is acknowledged, and nothing is read from shared memory again afterwards but payload.
//! A request without I/O is answered on the spot; everything else runs as a latency task. A short
//! transfer's task is begun on the spot too, and most are over then: of many that wait in a queue
//! instead, each would be fetched into the cache twice.

pub(crate) mod permits;

use std::{os::fd::AsFd as _, rc::Rc};

use executor::{Class, Credit, Handle};
use rustix::io::Errno;
use shm::lane::{SLOTS, Words};
use storage::{
    SHORT_LEN, goes_on,
    lock_call::LockCall,
    names::{Answer, FileCall, Identity},
    verdict::{Verdict, errno},
};
use wire::{Entry, Request, Status, Subject};

use crate::{
    core::{Core, Departure},
    drain,
    file::{ArenaRange, Log, OpenFile},
    locks, name_requests,
    node::Mail,
    readahead, registration,
    session::{Session, Ticket},
    session_storage::SessionStorage,
    settle,
};

/// Takes a lane's entries; returns how many, and whether there may be more.
pub(crate) fn visit<S: SessionStorage>(
    core: &Rc<Core<S>>,
    session: &Rc<Session<S>>,
    lane: usize,
    permits: &mut Option<Credit>,
) -> (usize, bool) {
    for taken in 0..SLOTS {
        if session.is_ending() || session.is_blocked(lane) {
            return (taken, false);
        }
        match session.next(lane) {
            Ok(Some((seq, words))) => {
                take(core, session, lane, seq, words, permits);
            }
            Ok(None) => return (taken, false),
            Err(_) => {
                core.end(session, Departure::Protocol("entry over an unanswered one"));
                return (taken, false);
            }
        }
    }
    (SLOTS, true)
}

/// Serves one entry, with one of the permits that its lane has, if it needs one.
fn take<S: SessionStorage>(
    core: &Rc<Core<S>>,
    session: &Rc<Session<S>>,
    lane: usize,
    seq: u32,
    words: Words,
    permits: &mut Option<Credit>,
) {
    let ticket = Ticket::new(&core.bells, session, lane, seq).traced(core.node.trace.as_ref());
    let Ok(request) = Request::decode(&Entry(words)) else {
        return core.end(session, Departure::Protocol("unknown request"));
    };
    session.totals.borrow_mut().count(request.kind());
    let checked = check(core, session, lane, &request);
    if !matches!(checked, Ok(Validated::Done(_)) | Err(_)) && request.kind().is_acknowledged() {
        ticket.acknowledge();
    }
    match checked {
        Ok(Validated::Done(value)) => ticket.complete(Ok(value)),
        Err(errno) => ticket.complete(Err(errno)),
        Ok(Validated::Transfer { file, at, range, is_write }) => {
            let on = OnFile { core: Rc::clone(core), ticket, file };
            let transfer = Transfer { on, at, range, is_write };
            match transfer.on.file.permit(permits) {
                Ok(permit) => transfer.begin(permit),
                Err(line) => permits::wait(line, transfer),
            }
        }
        Ok(Validated::File(file, work)) => {
            let on = OnFile { core: Rc::clone(core), ticket, file };
            core.handle.spawn(Class::Latency, async move {
                on.ticket.issue();
                let verdict = on.run(work).await;
                on.ticket.complete(verdict);
            });
        }
        Ok(Validated::Work(work)) => {
            let (core, handle) = (Rc::clone(core), core.handle.clone());
            handle.spawn(Class::Latency, async move {
                let verdict = run(&core, &ticket, work).await;
                ticket.complete(verdict);
            });
        }
    }
}

/// A valid request on a registered file.
pub(crate) struct OnFile<S: SessionStorage> {
    pub(crate) core: Rc<Core<S>>,
    pub(crate) ticket: Ticket<S>,
    file: Rc<OpenFile<S>>,
}

/// One to read or to write.
pub(crate) struct Transfer<S: SessionStorage> {
    pub(crate) on: OnFile<S>,
    at: u64,
    range: ArenaRange,
    is_write: bool,
}

impl<S: SessionStorage> Transfer<S> {
    /// Executes the transfer in a task that is small: it fits where the last one was. The permit
    /// is kept until it is over.
    pub(crate) fn begin(self, permit: Option<Credit>) {
        let Self { on, at, range, is_write } = self;
        debug_assert!(on.ticket.session.segment.has(range.arena_at, range.len));
        let (handle, len) = (on.core.handle.clone(), range.len);
        if is_write {
            begin(&handle, len, async move {
                let verdict = on.write(at, range).await;
                on.ticket.complete(verdict);
                drop(permit);
            });
        } else {
            begin(&handle, len, async move {
                let verdict = on.read(at, range).await;
                on.ticket.complete(verdict);
                drop(permit);
            });
        }
    }
}

/// Begins a transfer of `len` bytes.
fn begin(handle: &Handle, len: u64, transfer: impl Future<Output = ()> + 'static) {
    if len <= u64::from(SHORT_LEN) {
        handle.start(Class::Latency, transfer);
    } else {
        handle.spawn(Class::Latency, transfer);
    }
}

/// A request that was found valid, with what it names.
enum Validated<S: SessionStorage> {
    /// No I/O is needed.
    Done(u64),
    Transfer {
        file: Rc<OpenFile<S>>,
        at: u64,
        range: ArenaRange,
        is_write: bool,
    },
    File(Rc<OpenFile<S>>, FileWork),
    Work(Work),
}

/// One on no registered file.
enum Work {
    /// On names, or on a file that is to be opened.
    Names(name_requests::Call),
    /// Of the session, or of all.
    FlushAll(bool),
    Settle(Identity, bool),
}

/// One on a registered file.
enum FileWork {
    Attach(Log),
    Close,
    Fetch {
        at: u64,
        len: u32,
    },
    FindEnd,
    FindLock(LockCall),
    /// As far as a position in the log.
    Flush(u64),
    Lock(LockCall),
    Materialize,
    Name,
    /// A call that is the storage's own.
    Storage(FileCall),
}

/// Checks a request against the session's record.
fn check<S: SessionStorage>(
    core: &Rc<Core<S>>,
    session: &Rc<Session<S>>,
    lane: usize,
    request: &Request,
) -> Result<Validated<S>, Errno> {
    let slot = match request.subject() {
        Subject::Session => return check_session(core, session, request),
        Subject::Names => {
            return name_requests::check(session, lane, request)
                .map(|call| Validated::Work(Work::Names(call)));
        }
        Subject::File(slot) => slot,
    };
    let file = || registration::find_file(core, session, slot).ok_or(Errno::BADF);
    let work = match *request {
        Request::Flush { upto, .. } => {
            let file = file()?;
            if upto > file.head() {
                return Err(Errno::INVAL);
            }
            if file.is_drained_to(upto) {
                return Ok(Validated::Done(0));
            }
            FileWork::Flush(upto)
        }
        Request::Read { at, len, arena_at, .. } | Request::Write { at, len, arena_at, .. } => {
            let end = at.checked_add(u64::from(len)).ok_or(Errno::INVAL)?;
            if i64::try_from(end).is_err() || !session.may_use(arena_at, len.into()) {
                return Err(Errno::INVAL);
            }
            let (file, range) = (file()?, ArenaRange { arena_at, len: u64::from(len) });
            let is_write = matches!(request, Request::Write { .. });
            return Ok(Validated::Transfer { file, at, range, is_write });
        }
        Request::Attach { arena_at, len, .. } => {
            let log = Log { at: arena_at, len };
            if !registration::may_have_log(session, slot, log) {
                return Err(Errno::INVAL);
            }
            FileWork::Attach(log)
        }
        Request::Fetch { at, len, .. } => {
            at.checked_add(u64::from(len)).ok_or(Errno::INVAL)?;
            FileWork::Fetch { at, len }
        }
        Request::Lock { terms, start, len, .. } => {
            FileWork::Lock(LockCall::new(terms, start, len)?)
        }
        Request::FindLock { terms, start, len, .. } => {
            FileWork::FindLock(LockCall::new(terms, start, len)?)
        }
        Request::Close { .. } => FileWork::Close,
        Request::FindEnd { .. } => FileWork::FindEnd,
        Request::Materialize { .. } => FileWork::Materialize,
        Request::Name { .. } => FileWork::Name,
        _ => {
            let payload = match request.names_len() {
                Some(_) => name_requests::payload(session, lane, request)?,
                None => Vec::new(),
            };
            FileWork::Storage(FileCall::decode(request, &payload)?)
        }
    };
    Ok(Validated::File(file()?, work))
}

/// Checks a request that names nothing.
fn check_session<S: SessionStorage>(
    core: &Core<S>,
    session: &Session<S>,
    request: &Request,
) -> Result<Validated<S>, Errno> {
    match *request {
        Request::Nothing => Ok(Validated::Done(0)),
        Request::Share { number } => {
            let shared = core.node.clients.shares.get(number).ok_or(Errno::NOENT)?;
            let sent = session.peer.send_shared(number, shared.as_fd());
            sent.map(|()| Validated::Done(0)).map_err(errno)
        }
        Request::FlushAll { of_job } => Ok(Validated::Work(Work::FlushAll(of_job))),
        Request::Grow => {
            Ok(Validated::Done(core.node.grow(&session.grant, session.peer.process())))
        }
        Request::Settle { device, inode, demote } => {
            Ok(Validated::Work(Work::Settle((device, inode), demote)))
        }
        // A server's.
        _ => Err(Errno::NOSYS),
    }
}

/// Executes a valid request.
async fn run<S: SessionStorage>(core: &Rc<Core<S>>, ticket: &Ticket<S>, work: Work) -> Verdict {
    let session = &ticket.session;
    ticket.issue();
    match work {
        Work::Names(call) => name_requests::run(core, ticket, call).await,
        Work::FlushAll(true) => {
            core.node.ask_all(Mail::DrainAll).await;
            Ok(0)
        }
        Work::FlushAll(false) => {
            registration::hear(core, session);
            drain::drain_session(core, session).await;
            Ok(0)
        }
        Work::Settle(identity, true) => {
            settle::settle(core, identity).await;
            Ok(0)
        }
        Work::Settle(identity, false) => {
            // What it is refused with is owed to the clients.
            settle::drain_for(core, identity, Some(session.id)).await.unwrap_or_default();
            Ok(0)
        }
    }
}

impl<S: SessionStorage> OnFile<S> {
    async fn run(&self, work: FileWork) -> Verdict {
        let Self { core, ticket, file } = self;
        match work {
            // What the kernel refuses is owed by the slot.
            FileWork::Flush(upto) => drain::drain_to(core, file, upto).await.unwrap_or_default(),
            // By another request: what has the slot next is not to be closed for it.
            FileWork::Close if file.is_closing() => return Err(Errno::BADF),
            FileWork::Close => registration::discard(core, &ticket.session, file).await,
            // Not by a seek, which would change the file's own position in the kernel.
            FileWork::FindEnd => return Ok(self.status().await?.size),
            FileWork::Attach(log) => {
                let _turn = drain::drain_as_far_and_turn(core, file).await;
                if !file.attach(log) {
                    return Err(Errno::BUSY);
                }
            }
            FileWork::Fetch { at, len } => return readahead::fetch(core, file, at, len).await,
            FileWork::Materialize => {
                drop(drain::drain_as_far_and_turn(core, file).await);
                let descriptor = file.descriptor()?;
                ticket.session.peer.send_file(file.slot, &descriptor.file).map_err(errno)?;
            }
            FileWork::Lock(call) => return locks::lock(core, &ticket.session, file, call).await,
            FileWork::FindLock(call) => return locks::find(core, ticket, file, call).await,
            FileWork::Name => return self.tell_name(),
            FileWork::Storage(call) => return self.execute(call).await,
        }
        Ok(0)
    }

    fn tell_name(&self) -> Verdict {
        let Self { core, ticket, file } = self;
        let descriptor = file.descriptor()?;
        let storage = core.storage.seen_by(ticket.session.id, ticket.session.rank);
        let name = storage.name_in_view(&descriptor.file).ok_or(Errno::OPNOTSUPP)?;
        debug_assert!(name.starts_with(b"/"), "mapped folders are absolute");
        ticket.put(&name);
        Ok(name.len() as u64)
    }

    /// Executes a call that is the storage's own, after what is staged.
    async fn execute(&self, call: FileCall) -> Verdict {
        let Self { core, ticket, file } = self;
        let _turn = match call {
            FileCall::FileSystem => None,
            FileCall::Status => {
                let answer = Answer::status(&self.status().await?);
                ticket.put(&answer.bytes);
                return Ok(answer.value);
            }
            FileCall::Set(_) | FileCall::SetAppend(_) => {
                Some(drain::drain_as_far_and_turn(core, file).await)
            }
            FileCall::Truncate { .. } | FileCall::Allocate { .. } => {
                return Ok(drain::change(core, file, call).await?.value);
            }
            FileCall::Sync { .. } | FileCall::CloseDuplicate | FileCall::Seek(_) => {
                drain::drain(core, file).await?;
                None
            }
        };
        let descriptor = file.descriptor()?;
        let answer = core.storage.on(&descriptor.file, call).await.map_err(errno)?;
        if let FileCall::SetAppend(appends) = call {
            file.set_append(appends);
        }
        ticket.put(&answer.bytes);
        Ok(answer.value)
    }

    /// The file's status, with the size that it has with what is staged.
    async fn status(&self) -> Result<Status, Errno> {
        let Self { core, file, .. } = self;
        let _turn = drain::drain_as_far_and_turn(core, file).await;
        let descriptor = file.descriptor()?;
        let status = core.storage.status(&descriptor.file).await.map_err(errno)?;
        Ok(Status { size: drain::end(core, file, status.size).await, ..status })
    }

    /// Reads into the arena, after what is staged, until the range is full or the file ends.
    async fn read(&self, at: u64, range: ArenaRange) -> Verdict {
        let Self { core, ticket, file } = self;
        drain::drain(core, file).await?;
        let descriptor = file.descriptor()?;
        ticket.issue();
        let mut done = 0;
        // Not `read_full`: this future is to stay small.
        while let Some(rest) = range.behind(done as u64) {
            let into = file.buffer(rest).ok_or(Errno::FAULT)?.into();
            let part = core.storage.read(&descriptor.file, at + done as u64, into).await;
            if !goes_on(&mut done, part).map_err(errno)? {
                break;
            }
        }
        invariant!(done as u64 <= range.len, "storage reads what fits", else return Err(Errno::IO));
        Ok(done as u64)
    }

    /// Writes from the arena, after what is staged, until the range is written or an error stops
    /// it. Of what is appended to a file of this machine, the slot holds the file's size before:
    /// whoever finds this daemon dead looks there.
    async fn write(&self, at: u64, range: ArenaRange) -> Verdict {
        let Self { core, ticket, file } = self;
        let _turn = drain::drain_and_turn_to_write(core, file).await?;
        let descriptor = file.descriptor()?;
        if file.appends() && core.storage.identify(&descriptor.file).is_some() {
            let size = core.storage.status(&descriptor.file).await.map_err(errno)?.size;
            file.shared().append_begins(size, range.len);
        }
        ticket.issue();
        let mut done = 0;
        while let Some(rest) = range.behind(done as u64) {
            let from = file.buffer(rest).ok_or(Errno::FAULT)?.into();
            let part = core.storage.write(&descriptor.file, at + done as u64, from).await;
            if !goes_on(&mut done, part).map_err(errno)? {
                break;
            }
        }
        invariant!(done as u64 <= range.len, "storage writes what it gets",
        else return Err(Errno::IO));
        core.count(file.session, |totals| totals.bytes_executed += done as u64);
        if done == 0 && range.len > 0 { Err(Errno::IO) } else { Ok(done as u64) }
    }
}
