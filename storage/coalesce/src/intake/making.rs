//! Files of bundles made one by one, with what their clients have written. What a full disk refuses
//! of one that is open waits for room.

use std::{cell::RefCell, io, mem, rc::Rc};

use rustix::{fs::OFlags, io::Errno};
use storage::verdict::errno;
use uring::{Buffer, Buffers};
use wire::CreateFlags;

use super::{
    Intake, RETRY,
    source::{Making, Source, State},
};
use crate::{file::Packed, volume::Volume};

impl Intake {
    /// The same as [`try_advance`](Self::try_advance), at a look. While a file is open what a full
    /// disk refuses stays in the log, if there is room for others.
    pub(super) async fn advance(&self, source: &Rc<RefCell<Source>>, inode: u64) {
        let may_wait = {
            let source = source.borrow();
            source.files.get(&inode).is_some_and(|file| !file.is_closed) && !source.is_pressed()
        };
        let advanced = self.try_advance(source, inode, may_wait).await;
        let source = source.borrow();
        if let Some(why) = advanced.err().filter(|_| source.has_lost(inode)) {
            self.tell(&source, why);
        }
    }

    /// Makes a file if it is not made yet, and writes to it what its client has written. What a
    /// full disk refuses waits for room in the log, if it may.
    ///
    /// # Errors
    ///
    /// Why bytes are not in it: they wait, or are lost if that is its state.
    async fn try_advance(
        &self,
        source: &Rc<RefCell<Source>>,
        inode: u64,
        may_wait: bool,
    ) -> Result<(), Errno> {
        let (mut state, len) = {
            let source = source.borrow();
            let Some(file) = source.files.get(&inode) else { return Ok(()) };
            (file.state.clone(), file.len)
        };
        // A file without bytes has nothing to wait with.
        let waits = |why: Errno| may_wait && len > 0 && is_full(why);
        if state.is_new() {
            let made = Box::pin(self.make(source, inode)).await.map_err(errno);
            if let Some(why) = made.as_ref().err().filter(|why| waits(**why)) {
                let until = self.handle.now() + RETRY;
                source.borrow_mut().wait(inode, until);
                return Err(*why);
            }
            state.made(made);
        }
        let (pieces, data, at, kept) = {
            let mut source = source.borrow_mut();
            let Some(file) = source.files.get_mut(&inode) else { return Ok(()) };
            file.state = state.clone();
            let (pieces, at) = (mem::take(&mut file.pieces), file.written);
            let kept = file.kept.take().map(|task| (Rc::clone(&file.volume), task));
            file.written = file.len;
            let data = source.buffers(&pieces);
            (pieces, data, at, kept)
        };
        let data = match kept {
            Some((volume, task)) => Box::pin(volume.give_up(task)).await.map_err(errno),
            None => data.ok_or(Errno::FAULT),
        };
        let mut done = 0;
        let written = match (&state, data) {
            (State::Open(file), Ok(data)) => {
                Box::pin(write(file, at, data, &mut done)).await.map_err(errno)
            }
            (State::Open(_), Err(why)) => Err(why),
            // Its client asks about it, or is told when it is closed.
            _ => Ok(()),
        };
        let mut source = source.borrow_mut();
        if let (Err(why), Some(file)) = (written, source.files.get_mut(&inode)) {
            if waits(why) {
                file.pieces = behind(pieces, done);
                file.written = at + done;
                source.wait(inode, self.handle.now() + RETRY);
            } else {
                file.state.lose(why);
            }
        }
        written
    }

    /// Owes a client the error of bytes that are lost.
    pub(super) fn tell(&self, source: &Source, why: Errno) {
        source.entry.shared().owe(why.raw_os_error().unsigned_abs());
        self.count_errors(1);
    }

    /// Makes a file as any other, or opens the one that has its name.
    async fn make(&self, source: &Rc<RefCell<Source>>, inode: u64) -> io::Result<Rc<Packed>> {
        let (volume, folder, name, mode, how, time) = {
            let source = source.borrow();
            let file = source.files.get(&inode).ok_or(Errno::IO)?;
            let name = file.name.clone();
            (Rc::clone(&file.volume), file.folder, name, file.mode, file.how, file.time)
        };
        let is_sure = |file: &Making| !matches!(file.state, State::Doubtful);
        if !source.borrow().files.get(&inode).is_some_and(is_sure) {
            self.give_way(&volume, folder, &name).await?;
        }
        loop {
            let found = volume.tree.borrow().find_in(folder, &name)?;
            let made = match found.inode {
                Some(_) if how.has(CreateFlags::EXCLUSIVE) => return Err(Errno::EXIST.into()),
                Some(there) => {
                    let truncates = how.has(CreateFlags::TRUNCATES);
                    Packed::open_inode(&volume, there, truncates).await
                }
                None => Packed::create_as(&volume, inode, &found, mode, time).await,
            };
            match made {
                // A call has made it meanwhile.
                Err(why) if found.inode.is_none() && errno(&why) == Errno::EXIST => {}
                made if how.has(CreateFlags::APPENDS) => {
                    return Ok(Rc::new(made?.reopened(OFlags::WRONLY.union(OFlags::APPEND))));
                }
                made => return Ok(Rc::new(made?)),
            }
        }
    }

    /// Hands a file over that a client has made by its bundle: it does nothing more to it there.
    pub(crate) async fn hand_over(
        &self,
        volume: &Rc<Volume>,
        inode: u64,
        flags: OFlags,
    ) -> io::Result<Packed> {
        let _taken = self.turn.take().await;
        self.learn();
        let sources = self.sources.borrow().clone();
        sources.iter().for_each(|source| self.read(source));
        for source in sources {
            let is_its = |file: &Making| Rc::ptr_eq(&file.volume, volume) && !file.is_closed;
            if !source.borrow().files.get(&inode).is_some_and(is_its) {
                continue;
            }
            // Others of its client, and of others, stay where they are: or each that is handed over
            // would have all that are open be handed over, too.
            let advanced = self.try_advance(&source, inode, true).await;
            let mut source = source.borrow_mut();
            let Some(file) = source.files.get(&inode) else { return Err(Errno::IO.into()) };
            let refused = match file.state {
                State::Failed(why) | State::Lost(why) => Err(why),
                _ => advanced,
            };
            // It stays its client's, who is told when it is closed what comes of it.
            if let Some(why) = refused.err().filter(|why| file.len > 0 && is_full(*why)) {
                source.entry.shared().tear();
                return Err(why.into());
            }
            // Of other losses who asks is told, and nobody else.
            let is_new_loss = advanced.is_err() || file.len > 0 && !source.has_lost(inode);
            self.count_errors((refused.is_err() && is_new_loss).into());
            let made = source.files.remove(&inode).map(|file| file.state);
            return match (refused, made) {
                (Ok(()), Some(State::Open(file))) => Ok(file.reopened(flags)),
                (Err(why), _) => Err(why.into()),
                _ => Err(Errno::IO.into()),
            };
        }
        let read = Some(flags & OFlags::RWMODE).filter(|access| *access == OFlags::RDONLY);
        let read = read.and_then(|_| Packed::read_by_client(volume, inode));
        read.ok_or_else(|| Errno::STALE.into())
    }
}

/// True for what a file can wait for room with.
fn is_full(why: Errno) -> bool {
    matches!(why, Errno::NOSPC | Errno::DQUOT)
}

/// The parts of `pieces` that stand behind their first `len` bytes.
fn behind(pieces: Vec<(u64, u64)>, mut len: u64) -> Vec<(u64, u64)> {
    let rest = pieces.into_iter().map(|(at, piece_len)| {
        let skip = len.min(piece_len);
        len -= skip;
        (at + skip, piece_len - skip)
    });
    rest.filter(|(_, len)| *len > 0).collect()
}

/// Writes all of `data` at `at`, and counts the bytes that are `done`.
async fn write(file: &Packed, at: u64, data: Vec<Buffer>, done: &mut u64) -> io::Result<()> {
    for piece in data {
        let mut rest = Some(Buffers::from(piece));
        while let Some(buffers) = rest {
            let len = file.write(at + *done, &buffers).await?;
            if len == 0 {
                return Err(Errno::NOSPC.into());
            }
            *done += len as u64;
            rest = buffers.suffix(len);
        }
    }
    Ok(())
}
