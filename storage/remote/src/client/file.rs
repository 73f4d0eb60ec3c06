//! The calls of a daemon on remote names and remote open files.

use std::{cell::Cell, io, pin::Pin, rc::Rc, task::Poll};

use executor::Credits;
use rustix::{fs::OFlags, io::Errno};
use storage::{
    lock_call::LockCall,
    names::{Answer, FileCall, NameCall, OpenCall, device_of},
    verdict::errno,
};
use uring::{Buffer, Buffers};
use wire::{FoundLock, Request, Status, TRANSFER_LEN_MAX};

use super::requests::{Client, Network};

/// A file that the server has open. Closed there when this is dropped.
pub struct RemoteFile<N: Network> {
    client: Rc<Client<N>>,
    handle: u32,
    appends: Cell<bool>,
    is_closed: Cell<bool>,
    /// It was changed or locked: who closes it waits for what the server says.
    is_used: Cell<bool>,
}

impl<N: Network> Drop for RemoteFile<N> {
    fn drop(&mut self) {
        if !self.is_closed.get() {
            self.client.close_soon(self.handle);
        }
    }
}

#[expect(clippy::missing_errors_doc, reason = "any is the file's, or `EIO`: the server is lost")]
impl<N: Network> RemoteFile<N> {
    /// Opens a file for the process of this number, and tells its status; the path starts at the
    /// server's root.
    pub(crate) async fn open(
        client: &Rc<Client<N>>,
        process: Option<u16>,
        call: OpenCall,
    ) -> io::Result<(Rc<Self>, Status)> {
        let handle = client.new_handle();
        let (request, path) = call.encode(handle)?;
        let answered = client.call(request, path, call.is_once()).await?;
        let status = marked(Status::decode(&answered.bytes).ok_or(Errno::IO)?);
        let appends = OFlags::from_bits_retain(call.flags).contains(OFlags::APPEND);
        let appends = Cell::new(appends);
        client.assign(handle, process);
        let (is_closed, is_used) = (Cell::new(false), Cell::new(false));
        let client = Rc::clone(client);
        let file = Rc::new(Self { client, handle, appends, is_closed, is_used });
        Ok((file, status))
    }

    /// Its path from the server's root, when it was last known to have one.
    pub fn path(&self) -> Option<Vec<u8>> {
        self.client.path_of(self.handle)
    }

    /// Its inode number at the server.
    pub fn inode(&self) -> Option<u64> {
        self.client.inode_of(self.handle)
    }

    /// Closes the file, unless somebody else has it too. Waits for that if it was locked, or
    /// changed.
    ///
    /// # Errors
    ///
    /// What was written to it and is lost, if the server is told only now.
    pub async fn close(file: Rc<Self>) -> io::Result<()> {
        match Rc::into_inner(file) {
            Some(file) if file.is_used.get() => {
                file.is_closed.set(true);
                file.client.close(file.handle).await
            }
            // What is dropped is closed.
            _ => Ok(()),
        }
    }

    /// The permits for transfers to and from its server.
    pub fn permits(&self) -> Credits {
        self.client.permits.clone()
    }

    /// Takes a lock, or gives it up.
    pub async fn lock(&self, call: LockCall) -> io::Result<()> {
        let _wait = if call.terms.waits { Some(self.client.wait().await) } else { None };
        self.is_used.set(true);
        let LockCall { terms, start, len } = call;
        let request = Request::Lock { file: self.handle, terms: terms.encode(), start, len };
        self.call(request, Vec::new()).await.map(drop)
    }

    /// Looks for a lock that is in the way.
    pub async fn find_lock(&self, call: LockCall) -> io::Result<Option<FoundLock>> {
        let LockCall { terms, start, len } = call;
        let request = Request::FindLock { file: self.handle, terms: terms.encode(), start, len };
        let Answer { value: found, bytes } = self.call(request, Vec::new()).await?;
        if found == 0 { Ok(None) } else { Ok(Some(FoundLock::decode(&bytes).ok_or(Errno::IO)?)) }
    }

    /// Reads until `into` is full or the file ends, in parts that are under way together.
    pub async fn read(&self, at: u64, into: &Buffers) -> io::Result<usize> {
        if let Some(part) = sole_part(into) {
            return self.read_part(at, part).await;
        }
        let reads = parts(into, at)
            .map(|(at, part)| async move { Ok((self.read_part(at, &part).await?, part.len())) });
        contiguous(together(reads).await)
    }

    async fn read_part(&self, at: u64, part: &Buffer) -> io::Result<usize> {
        let len = u32::try_from(part.len()).map_err(|_| Errno::INVAL)?;
        let request = Request::Read { file: self.handle, at, len, arena_at: 0 };
        let read = self.client.transfer(request, part.clone(), false).await;
        read.map_err(|error| self.stale(error))
    }

    /// Writes all of `from`, in parts that are under way together; to the end of a file that is
    /// open to append, one after the other, for others append to it, too.
    pub async fn write(&self, at: u64, from: &Buffers) -> io::Result<usize> {
        self.is_used.set(true);
        if self.appends.get() {
            let (mut written, from) = (Vec::new(), gathered(from));
            for (_, part) in parts(&from, 0) {
                let (len, wanted) = (self.write_part(0, &part).await, part.len());
                let is_whole = len.as_ref().is_ok_and(|len| *len == wanted);
                if len.as_ref().is_err_and(|error| errno(error) == Errno::IO) {
                    return len; // It may be there: whoever wrote the rest might append it twice.
                }
                written.push(len.map(|len| (len, wanted)));
                if !is_whole {
                    break;
                }
            }
            return contiguous(written);
        }
        if let Some(part) = sole_part(from) {
            return self.write_part(at, part).await;
        }
        let writes = parts(from, at)
            .map(|(at, part)| async move { Ok((self.write_part(at, &part).await?, part.len())) });
        contiguous(together(writes).await)
    }

    async fn write_part(&self, at: u64, part: &Buffer) -> io::Result<usize> {
        let len = u32::try_from(part.len()).map_err(|_| Errno::INVAL)?;
        let request = Request::Write { file: self.handle, at, len, arena_at: 0 };
        let written = self.client.transfer(request, part.clone(), self.appends.get()).await;
        written.map_err(|error| self.stale(error))
    }

    /// Executes a call.
    pub async fn on(&self, call: FileCall) -> io::Result<Answer> {
        if let FileCall::Truncate { .. } | FileCall::Allocate { .. } = call {
            self.is_used.set(true);
        }
        let (request, payload) = call.encode(self.handle)?;
        let done = self.client.call(request, payload, call.is_once()).await;
        let Answer { value, bytes } = done.map_err(|error| self.stale(error))?;
        Ok(match call {
            FileCall::Status => Answer::status(&marked(Status::decode(&bytes).ok_or(Errno::IO)?)),
            FileCall::SetAppend(appends) => {
                self.appends.set(appends);
                Answer { value, bytes }
            }
            _ => Answer { value, bytes },
        })
    }

    async fn call(&self, request: Request, payload: Vec<u8>) -> io::Result<Answer> {
        self.client.call(request, payload, false).await.map_err(|error| self.stale(error))
    }

    /// The error of a handle that the server does not know because the file, or a lock on it, could
    /// not be had again when it was started anew.
    fn stale(&self, error: io::Error) -> io::Error {
        self.client.why_gone(self.handle).map_or(error, io::Error::from)
    }
}

/// Executes a call on names; paths start at the server's root.
pub(crate) async fn name<N: Network>(client: &Rc<Client<N>>, call: NameCall) -> io::Result<Answer> {
    let (request, payload) = call.encode()?;
    let Answer { value, bytes } = client.call(request, payload, call.is_once()).await?;
    Ok(match call {
        NameCall::Stat { .. } => Answer::status(&marked(Status::decode(&bytes).ok_or(Errno::IO)?)),
        NameCall::Lease { .. } => {
            let (status, rest) = bytes.split_at_checked(Status::LEN).ok_or(Errno::IO)?;
            let status = marked(Status::decode(status).ok_or(Errno::IO)?);
            Answer { value, bytes: [&status.encode()[..], rest].concat() }
        }
        _ => Answer { value, bytes },
    })
}

fn marked(status: Status) -> Status {
    Status { device: device_of(status.device), ..status }
}

/// The only part of a short transfer.
fn sole_part(buffers: &Buffers) -> Option<&Buffer> {
    match buffers.as_slice() {
        [one] if one.len() <= TRANSFER_LEN_MAX => Some(one),
        _ => None,
    }
}

/// The bytes of a short transfer in one buffer, so that one request moves them.
fn gathered(buffers: &Buffers) -> Buffers {
    if buffers.as_slice().len() == 1 || buffers.len() > TRANSFER_LEN_MAX {
        return buffers.clone();
    }
    let mut bytes = Vec::with_capacity(buffers.len());
    buffers.as_slice().iter().for_each(|buffer| buffer.append_to(&mut bytes));
    Buffer::from(bytes).into()
}

/// The parts of a transfer, with their places in the file.
fn parts(buffers: &Buffers, at: u64) -> impl Iterator<Item = (u64, Buffer)> + use<> {
    let mut at = at;
    let mut parts = Vec::new();
    for buffer in buffers.as_slice() {
        let mut rest = buffer.clone();
        while !rest.is_empty() {
            let part = rest.prefix(TRANSFER_LEN_MAX);
            rest = rest.suffix(part.len());
            let len = part.len() as u64;
            parts.push((at, part));
            at = at.saturating_add(len);
        }
    }
    parts.into_iter()
}

/// Bytes moved up to the first part that was not moved whole, of those that came to anything.
fn contiguous(results: Vec<io::Result<(usize, usize)>>) -> io::Result<usize> {
    let mut done = 0;
    for result in results {
        match result {
            Ok((len, wanted)) => {
                done += len;
                if len < wanted {
                    break;
                }
            }
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Waits for all of some futures, which run side by side; results in their order.
pub(super) async fn together<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut running: Vec<(Pin<Box<_>>, Option<T>)> =
        futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut is_done = true;
        for (future, result) in running.iter_mut().filter(|(_, result)| result.is_none()) {
            match future.as_mut().poll(context) {
                Poll::Ready(value) => *result = Some(value),
                Poll::Pending => is_done = false,
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    running.into_iter().filter_map(|(_, result)| result).collect()
}
