//! State behind a handle.

use std::{ffi::c_int, path::PathBuf};

use libc::FILE;
use multifile::{Group as _, Options};

use crate::{
    arrays::{Arrays, count},
    error::{Failure, Result},
    files::Files,
    group::Ranks,
    mode::{Kind, Mode},
    pointer::InOut,
    reading::Reading,
    writing::Writing,
};

/// An open multifile.
pub(crate) struct Open {
    pub(crate) kind: Kind,
    pub(crate) mode: Mode,
    pub(crate) body: Body,
    pub(crate) team: Option<Team>,
    /// Physical files of the set, where the tasks of this rank do not tell.
    pub(crate) file_count: Option<c_int>,
    /// The task asked for, when only one was.
    pub(crate) rank: Option<c_int>,
    /// The rank in the group of the handle that this one duplicates.
    pub(crate) duplicated_on: Option<c_int>,
    /// Arrays that the program was given pointers to.
    pub(crate) arrays: Arrays,
}

/// Reading or writing.
pub(crate) enum Body {
    Read(Box<Reading>),
    Write(Box<Writing>),
}

/// With whom a multifile was opened, and what it takes to do it again.
pub(crate) struct Team {
    pub(crate) ranks: Ranks,
    /// The ranks of this rank's physical file, when data is merged between them.
    pub(crate) merging: Option<Merging>,
    pub(crate) files: Files,
    pub(crate) path: PathBuf,
    /// How it is written.
    pub(crate) options: Option<Options>,
}

/// Whom merged writes are collective over.
pub(crate) enum Merging {
    /// All ranks.
    All,
    Some(Ranks),
}

impl Open {
    pub(crate) fn new(kind: Kind, mode: Mode, body: Body) -> Self {
        Self {
            kind,
            mode,
            body,
            team: None,
            rank: None,
            duplicated_on: None,
            file_count: None,
            arrays: Arrays::default(),
        }
    }

    /// This process's rank among those that opened the multifile; -1 if it did so alone.
    pub(crate) fn rank_in_group(&self) -> c_int {
        let own = self.team.as_ref().map(|team| count(team.ranks.rank()));
        own.or(self.duplicated_on).unwrap_or(-1)
    }

    pub(crate) const fn writes(&self) -> bool {
        matches!(self.body, Body::Write(_))
    }

    pub(crate) fn reading(&mut self) -> Result<&mut Reading> {
        match &mut self.body {
            Body::Read(reading) => Ok(reading),
            Body::Write(_) => Err(Failure::Mode("the file was opened for writing")),
        }
    }

    pub(crate) fn writing(&mut self) -> Result<&mut Writing> {
        match &mut self.body {
            Body::Write(writing) => Ok(writing),
            Body::Read(_) => Err(Failure::Mode("the file was opened for reading")),
        }
    }

    /// Hands the program's stream out, if it asks for it.
    pub(crate) fn export_to(&mut self, fileptr: InOut<'_, *mut FILE>) -> Result<()> {
        if !fileptr.is_null() {
            let stream = self.export()?;
            fileptr.put(stream);
        }
        Ok(())
    }

    /// The program's stream, null in mode `posix` and without tasks.
    pub(crate) fn export(&mut self) -> Result<*mut FILE> {
        match &mut self.body {
            _ if self.mode.posix => Ok(std::ptr::null_mut()),
            Body::Read(reading) if reading.task_count() == 0 => Ok(std::ptr::null_mut()),
            Body::Write(writing) if writing.tasks.is_empty() => Ok(std::ptr::null_mut()),
            Body::Read(reading) => reading.export(),
            Body::Write(writing) => writing.export(),
        }
    }
}
