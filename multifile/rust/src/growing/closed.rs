//! A multifile that was closed: its tables say all.

use std::{path::Path, sync::Arc};

use super::{Filled, Growing, Held, Member};
use crate::{
    cursor::Cursor,
    error::{Argument, Error, OnFile as _, Part, Result},
    mark::Mark,
    physical::{Physical, RESERVED_VERSION},
    plan::{FilePlan, Options, Style},
    reader::Reader,
    storage::{Naming, Storage},
    writer::instance,
};

impl<S: Storage> Growing<S> {
    /// Opens the multifile at `path` to read it only, which nothing in its files tells.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open); [`Error::Unclosed`].
    pub fn open_to_read(storage: &S, path: &Path, options: &Options) -> Result<(Self, Held)> {
        let (growing, lens) = Self::closed(storage, path, options, false, Filled::len_of)?;
        Ok((growing, Held { lens, ..Held::default() }))
    }

    /// Opens the multifile at `path` to read it only, whoever has written it. Returns with it what
    /// every stream has in each of its blocks, which need not be full.
    ///
    /// # Errors
    ///
    /// As [`Reader::open`]; [`Error::Unclosed`].
    pub fn open_streams(
        storage: &S,
        path: &Path,
        options: &Options,
    ) -> Result<(Self, Vec<Vec<u64>>)> {
        Self::closed(storage, path, options, false, |_, used, _| Ok(used.to_vec()))
    }

    /// Opens a multifile that is closed, as [`of_closed`](Self::of_closed).
    pub(super) fn closed<T>(
        storage: &S,
        path: &Path,
        options: &Options,
        is_to_write: bool,
        stream: impl Fn(u64, &[u64], u32) -> Result<T>,
    ) -> Result<(Self, Vec<T>)> {
        let (physicals, _) = Reader::open(storage, path)?.into_parts();
        Self::of_closed(storage, path, options, physicals, is_to_write, stream)
    }

    /// Takes physical files that are closed. Returns what `stream` makes of every stream: of the
    /// length of its chunks, of the bytes in each of its blocks, and of the number of its file.
    pub(super) fn of_closed<T>(
        storage: &S,
        path: &Path,
        options: &Options,
        physicals: Vec<Physical<S::File>>,
        is_to_write: bool,
        stream: impl Fn(u64, &[u64], u32) -> Result<T>,
    ) -> Result<(Self, Vec<T>)> {
        let (mut members, mut streams) = (Vec::new(), Vec::new());
        for (number, physical) in (0u32..).zip(physicals) {
            let is_old = physical.front.header.version < RESERVED_VERSION;
            if is_old && is_to_write {
                return Err(Error::Damaged { part: Part::Version, file: number });
            }
            for task in 0..physical.front.ranks.len() {
                let place = physical.front.layout.place(task).ok_or(Argument::Task)?;
                let used = physical.blocks.of(task);
                Cursor::checked_len(place, used, number)?;
                streams.push(stream(place.chunk_len, used, number)?);
            }
            let instance = instance();
            let plan = FilePlan::of(&physical, None, options, Mark::Open(instance).encode())?;
            let file = if is_to_write {
                let (at, naming) = (storage.physical_name(path, number), Naming::of(path, number));
                let file = storage.open(&at, Some(naming));
                Arc::new(file.on_file(number)?)
            } else {
                physical.front.file
            };
            let plan = FilePlan { checksums: false, style: Style::Parallel, ..plan };
            members.push(Member::new(plan, instance, file));
        }
        let (storage, path, options) = (storage.clone(), path.to_owned(), options.clone());
        Ok((Self { storage, path, options, members }, streams))
    }
}
