//! Requests that must not happen twice: recorded before and after they are executed.

use std::{cell::RefCell, collections::HashSet, io};

use executor::Notify;
use rustix::{fs::OFlags, io::Errno};
use shm::copy::copy_in;
use storage::{
    Locking,
    names::{Answer, Identity, is_same},
    verdict::{self, errno},
};
use uring::Heap;

use super::{Service, Session, nothing};
use crate::{
    server::effects::{self, Effect, Outcome},
    server::ledger::{RECORDS, Record, State},
    server::received::Received,
};

impl<S: Locking> Service<S> {
    /// Executes a request that must not happen twice.
    pub(super) async fn once(
        &self,
        session: &Session<S>,
        received: &Received,
        effect: Effect<S::File>,
    ) -> Result<Answer, Errno> {
        // Without a record it might happen twice.
        let slot = received.record.filter(|slot| *slot < RECORDS).ok_or(Errno::INVAL)?;
        let id = received.id;
        let _turn = self.turn(&effect).await;
        let record = session.record(slot).filter(|record| record.id == id);
        let mut there = 0;
        if let Some(mut record) = record {
            let seen = match record.state {
                State::Done(value) => return self.again(session, value, &record, effect).await,
                State::Seen(size) => Some(size),
                State::Begun => None,
            };
            let outcome = effects::resolve(&self.storage, &effect, record.before, seen).await;
            let value = match outcome.map_err(errno)? {
                Outcome::NotDone => None,
                Outcome::Partly(len) => {
                    there = len;
                    None
                }
                Outcome::Done => Some(effect.len()),
                Outcome::Short(len) => Some(len),
                Outcome::Unknown => {
                    tracing::warn!("the outcome of a request is unknown: {effect}");
                    Some(verdict::value(Err(Errno::IO)))
                }
            };
            if let Some(value) = value {
                record.state = State::Done(value);
                session.keep_done(slot, record);
                return self.again(session, value, &record, effect).await;
            }
        }
        self.settle(&effect, session, slot).await.map_err(errno)?;
        let before = match record.filter(|_| there > 0) {
            Some(record) => record.before,
            None => effects::observe(&self.storage, &effect).await.map_err(errno)?,
        };
        let mut record = Record { id, state: State::Begun, before };
        session.keep(slot, record).map_err(errno)?;
        let answer = match &effect {
            Effect::Append { file, data, .. } => self.append(file, data, before.mark, there).await,
            Effect::OnFile(file, call) => nothing(self.storage.on(file, *call).await.map(drop)),
            Effect::Open(handle, call) => self.open(session, *handle, call.clone()).await,
            Effect::Name(call) => self.name(call.clone()).await,
        };
        let value = verdict::value(answer.as_ref().map(|answer| answer.value).map_err(|e| *e));
        record.state = State::Done(value);
        if let Effect::Open(handle, _) = effect {
            let open = session.file(handle);
            let (identity, born) = open.map_or(((0, 0), 0), |open| (open.identity, open.born));
            (record.before.identity, record.before.mark) = (identity, born);
        }
        session.keep_done(slot, record);
        answer
    }

    /// Before an append: has the size written down for those that a killed server has left begun,
    /// but for the one that is to go on.
    async fn settle(
        &self,
        effect: &Effect<S::File>,
        own: &Session<S>,
        own_slot: u32,
    ) -> io::Result<()> {
        let Effect::Append { file, identity, .. } = effect else { return Ok(()) };
        let doubts = self.doubts.about(*identity);
        if doubts.is_empty() {
            return Ok(());
        }
        let size = self.storage.status(file).await?.size;
        for doubt in doubts {
            let session = self.sessions.borrow().get(&doubt.session).cloned();
            match session {
                _ if (doubt.session, doubt.slot) == (own.name, own_slot) => {}
                // It has come back, and may have asked for something else in that place.
                Some(session) if session.record(doubt.slot) != Some(doubt.record) => {}
                Some(session) => session.keep(doubt.slot, doubt.seen(size))?,
                None => doubt.write_down(&*self.shelf, size)?,
            }
        }
        self.doubts.settled(*identity);
        Ok(())
    }

    /// The answer to a request that was done before.
    async fn again(
        &self,
        session: &Session<S>,
        value: u64,
        record: &Record,
        effect: Effect<S::File>,
    ) -> Result<Answer, Errno> {
        let value = verdict::verdict(value)?;
        let Effect::Open(handle, mut call) = effect else { return Ok(Answer::value(value)) };
        let once = OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC;
        call.flags &= !once.bits();
        let opened = self.open(session, handle, call).await;
        let made = (record.before.identity, record.before.mark);
        if session.file(handle).is_ok_and(|open| is_same((open.identity, open.born), made)) {
            return opened;
        }
        // As for any open file whose name is another's by now, or nobody's.
        self.close(session, handle).await.ok(); // Nothing was written to it.
        Err(opened.err().filter(|error| *error != Errno::NOENT).unwrap_or(Errno::STALE))
    }

    /// The right to append to a file; others wait, so that its size tells what was done.
    async fn turn(&self, effect: &Effect<S::File>) -> Option<Turn<'_>> {
        let Effect::Append { identity, .. } = *effect else { return None };
        self.appended.until(|| !self.appending.borrow().contains(&identity)).await;
        self.appending.borrow_mut().insert(identity);
        Some(Turn { appending: &self.appending, appended: &self.appended, identity })
    }

    /// Appends what is missing of `data`, of which `skip` bytes are there.
    async fn append(
        &self,
        file: &S::File,
        data: &[u8],
        size: u64,
        skip: u64,
    ) -> Result<Answer, Errno> {
        let there = usize::try_from(skip).map_err(|_| Errno::IO)?;
        let missing = data.get(there..);
        let missing = invariant!(some missing, "no more is there than was to be appended",
            else return Err(Errno::IO));
        let buffer = Heap::buffer(missing.len());
        copy_in(buffer.bytes(), missing);
        match self.storage.write_full(file, size + skip, &buffer.into()).await {
            Err(error) if there == 0 => Err(errno(error)),
            done => Ok(Answer::value(skip + done.unwrap_or(0) as u64)),
        }
    }
}

struct Turn<'a> {
    appending: &'a RefCell<HashSet<Identity>>,
    appended: &'a Notify,
    identity: Identity,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.appending.borrow_mut().remove(&self.identity);
        self.appended.notify_all();
    }
}
