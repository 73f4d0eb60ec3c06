//! An open file of this machine, or of a server.

use std::{
    os::fd::{AsFd as _, BorrowedFd},
    rc::Rc,
};

use remote::RemoteFile;

use super::Dial;

/// An open file.
#[derive(Clone)]
pub(crate) enum Located {
    Here(uring::File),
    There(Rc<RemoteFile<Dial>>),
}

impl Located {
    /// The file's descriptor, if it has one on this machine.
    pub(crate) fn here(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Here(file) => Some(file.as_fd()),
            Self::There(_) => None,
        }
    }
}
