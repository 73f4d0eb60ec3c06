//! A session's open files, by the handles that it chooses.

use std::{io, rc::Rc};

use executor::Class;
use rustix::io::Errno;
use wire::Request;

use super::{Client, Network};
use crate::client::opened::Move;

impl<N: Network> Client<N> {
    /// A handle that no file has.
    pub(crate) fn new_handle(&self) -> u32 {
        self.state.borrow_mut().opened.new_handle()
    }

    /// Why a file can no longer be used, if the server could not have all of it again.
    pub(crate) fn why_gone(&self, handle: u32) -> Option<Errno> {
        self.state.borrow().opened.why_gone(handle)
    }

    /// The path of an open file from the server's root.
    pub(crate) fn path_of(&self, handle: u32) -> Option<Vec<u8>> {
        self.state.borrow().opened.path(handle)
    }

    /// The inode number of an open file.
    pub(crate) fn inode_of(&self, handle: u32) -> Option<u64> {
        self.state.borrow().opened.identity(handle).map(|(_, inode)| inode)
    }

    /// A file was opened for this process.
    pub(crate) fn assign(&self, handle: u32, process: Option<u16>) {
        self.state.borrow_mut().opened.assign(handle, process);
    }

    /// Something was asked for, of this server or of another that serves the same folder, by which
    /// names may change.
    pub(crate) fn begin_move(&self, change: &Move) {
        self.state.borrow_mut().opened.begin_move(change);
    }

    /// A name is removed.
    pub(crate) fn unlink(&self, name: &[u8]) {
        self.state.borrow_mut().opened.unlink(name);
    }

    /// It is over; if it `happened`, open files have their new names.
    pub(crate) fn end_move(&self, change: &Move, happened: bool) {
        self.state.borrow_mut().opened.end_move(change, happened);
    }

    /// Closes a file, without waiting for that.
    pub(crate) fn close_soon(self: &Rc<Self>, handle: u32) {
        let client = Rc::clone(self);
        self.handle.spawn(Class::Latency, async move {
            if let Err(error) = client.close(handle).await {
                tracing::debug!("a remote file could not be closed: {error}");
            }
        });
    }

    /// Closes a file.
    ///
    /// # Errors
    ///
    /// What was written to it and is lost, if the server is told only now; as
    /// [`call`](Self::call).
    pub(crate) async fn close(self: &Rc<Self>, handle: u32) -> io::Result<()> {
        let closed = self.call(Request::Close { file: handle }, Vec::new(), false).await;
        self.state.borrow_mut().opened.remove(handle);
        closed.map(drop)
    }
}
