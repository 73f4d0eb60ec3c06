//! Recovery at a restarted server, before any other request: open files, then locks.
//!
//! Some things are gone for good: a file that is another one by now (`ESTALE`), and one
//! whose lock somebody else may have had meanwhile (`EIO`). For its owner would go on as if nobody
//! had touched what the lock guards.

use std::io;

use rustix::{fs::OFlags, io::Errno};
use storage::{lock_call::LockCall, verdict::verdict};
use wire::{Frame, LockOwner, Request, Status};

use super::{Client, Network};
use crate::{
    client::held::Owner,
    client::opened::Lost,
    line::channel::{Inbox, Outbox, Receive},
};

impl<N: Network> Client<N> {
    /// Has a server that was started anew open the files of the session, and lock what it had.
    pub(super) async fn reopen<R: Receive>(
        &self,
        inbox: &mut Inbox<R>,
        outbox: &Outbox,
    ) -> io::Result<()> {
        let lost = self.state.borrow().opened.lost();
        for file in lost {
            if !self.open_again(&file, inbox, outbox).await? {
                self.state.borrow_mut().opened.give_up(file.handle);
            }
        }
        self.short_since.set(None);
        let held = self.state.borrow().held.all();
        for (owner, handle, calls) in held {
            let mut is_had = true;
            for call in calls {
                is_had &= self.ask_now(inbox, outbox, request(handle, call), &[]).await?.is_ok();
            }
            if !is_had {
                self.lose(owner, handle, inbox, outbox).await?;
            }
        }
        self.ask_now(inbox, outbox, Request::Reclaimed, &[]).await.map(drop)
    }

    /// An owner has lost a lock: gives up the others, and the files.
    async fn lose<R: Receive>(
        &self,
        owner: Owner,
        handle: u32,
        inbox: &mut Inbox<R>,
        outbox: &Outbox,
    ) -> io::Result<()> {
        let files = match owner {
            Owner::Process(process, identity) => {
                let call = LockCall::unlock_all(LockOwner::Process, process);
                // It fails where the file is gone, too.
                self.ask_now(inbox, outbox, request(handle, call), &[]).await?.ok();
                let mut files = self.state.borrow().opened.of_process(process, identity);
                // A process that locks through a view has no files of its own here.
                if !files.contains(&handle) {
                    files.push(handle);
                }
                files
            }
            Owner::OpenFile(handle, _) => vec![handle],
        };
        self.state.borrow_mut().held.lost(owner);
        for handle in files {
            self.ask_now(inbox, outbox, Request::Close { file: handle }, &[]).await?.ok();
            self.state.borrow_mut().opened.lose_lock(handle);
        }
        Ok(())
    }

    /// Opens a file under one of its names; returns whether it is still the same.
    async fn open_again<R: Receive>(
        &self,
        lost: &Lost,
        inbox: &mut Inbox<R>,
        outbox: &Outbox,
    ) -> io::Result<bool> {
        let once = OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC;
        let (file, flags) = (lost.handle, lost.flags & !once.bits());
        for path in &lost.names {
            let path_len = u32::try_from(path.len()).map_err(|_| Errno::NAMETOOLONG)?;
            let open = Request::Open { file, flags, mode: 0, path_len, inode: 0 };
            let status = match self.ask_now(inbox, outbox, open, path).await? {
                Ok(bytes) => Status::decode(&bytes),
                Err(errno) if is_short(errno) && self.keep_waiting() => return Err(errno.into()),
                Err(_) => None,
            };
            if status.is_some_and(|status| lost.is(&status)) {
                return Ok(true);
            }
            self.ask_now(inbox, outbox, Request::Close { file }, &[]).await?.ok();
        }
        Ok(false)
    }

    /// True if a server that is short of something may have it yet: it is asked again and again,
    /// for as long as one that is silent.
    fn keep_waiting(&self) -> bool {
        let now = self.handle.now();
        let since = self.short_since.get().unwrap_or(now);
        self.short_since.set(Some(since));
        now.saturating_since(since) < self.timeout
    }

    /// Asks something between the greeting and all other requests; the payload of the answer.
    async fn ask_now<R: Receive>(
        &self,
        inbox: &mut Inbox<R>,
        outbox: &Outbox,
        request: Request,
        payload: &[u8],
    ) -> io::Result<Result<Vec<u8>, Errno>> {
        outbox.push(Frame::Request { id: 0, record: None, request, payload });
        loop {
            inbox.fill().await?;
            self.hears();
            let answer = match inbox.frame() {
                Some(Frame::Reply { id: 0, value, payload }) => {
                    Some(verdict(value).map(|_| payload.to_owned()))
                }
                Some(Frame::Pong) => None,
                _ => return Err(io::ErrorKind::InvalidData.into()),
            };
            inbox.consume();
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
    }
}

/// True if the server lacks something that it may have again soon, and says nothing of the file.
pub(super) fn is_short(errno: Errno) -> bool {
    [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::AGAIN].contains(&errno)
}

const fn request(file: u32, call: LockCall) -> Request {
    let LockCall { terms, start, len } = call;
    Request::Lock { file, terms: terms.encode(), start, len }
}
