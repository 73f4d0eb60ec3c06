//! A multifile that was never closed, written on as it is.
//!
//! Its journals say what there is, and go on saying so: nothing has to be written for it to be
//! opened, so that works on a full disk, too, and whoever dies before the first write has changed
//! nothing.

use std::{path::Path, result, sync::Arc};

use super::{Filled, Growing, Held, Member};
use crate::{
    backing::{FREE_LEN, read_stored},
    catalogue::{Catalogue, Reading, Unreadable},
    codec::narrow,
    error::{Error, OnFile as _, Part, Result},
    mark::Mark,
    name,
    physical::RESERVED_VERSION,
    plan::{FilePlan, Options, Style},
    repair::Broken,
    storage::{File, Naming, Storage},
    writer::instance,
};

impl<S: Storage> Growing<S> {
    /// Opens physical files of which everything is known.
    pub(super) fn resume(
        storage: &S,
        path: &Path,
        options: &Options,
        files: Vec<Broken>,
    ) -> Result<(Self, Held)> {
        let count = u32::try_from(files.len()).unwrap_or(u32::MAX);
        let (mut members, mut lens) = (Vec::new(), Vec::new());
        for Broken { number, mut plan, extents, source, .. } in files {
            if plan.header.version < RESERVED_VERSION {
                return Err(Error::Damaged { part: Part::Version, file: number });
            }
            let chunks = plan.layout.chunks().iter().zip(&extents);
            let filled = chunks.map(|(chunk_len, extent)| {
                // Of a block that was cut off the journal may still say that it is empty.
                let used = extent.lens.iter().rposition(|len| *len > 0).map_or(0, |last| last + 1);
                Filled::of(*chunk_len, extent.lens.get(..used).unwrap_or_default(), number)
            });
            let filled = filled.collect::<Result<Vec<_>>>()?;
            lens.extend(filled.iter().map(|filled| filled.len));
            let at = storage.physical_name(path, number);
            let file = storage.open(&at, Some(Naming::of(path, number))).on_file(number)?;
            plan.header.file_count = count;
            let instance = match Mark::decode(plan.header.flag2) {
                Mark::Open(instance) if source.is_all() => instance,
                _ => instance(),
            };
            plan.header.flag2 = Mark::Open(instance).encode();
            let (hints, durable) = (options.hints, options.durable);
            let style = Style::Parallel;
            let plan = FilePlan { mapping: None, checksums: false, style, hints, durable, ..plan };
            let mut member = Member::new(plan, instance, Arc::new(file));
            if source.is_all() {
                let journal = storage
                    .open(&name::journal(&at), Some(Naming::Derived(path)))
                    .on_file(number)?;
                (member.journal, member.recorded) = (Some(Arc::new(journal)), Some(filled));
            }
            members.push(member);
        }
        let (storage, path, options) = (storage.clone(), path.to_owned(), options.clone());
        let growing = Self { storage, path, options, members };
        Ok((growing, Held { lens, was_unclosed: true, ..Held::default() }))
    }

    /// The names in the first `len` bytes of the stream that may hold some, closed or not.
    ///
    /// # Errors
    ///
    /// What the storage reports; [`Part::Truncated`]: it ends before; [`Part::Blocks`]: more than
    /// 64 MiB of them are holes. Within, why these are no names.
    pub fn names(&self, len: u64) -> Result<result::Result<Reading, Unreadable>> {
        let (place, member) = (self.place(0, 0)?, self.member(0)?);
        Catalogue::read_parts(len, |part| {
            let (mut bytes, mut free, mut at) = (Vec::new(), FREE_LEN, part.start);
            while at < part.end {
                let (block, within) = (at / place.chunk_len, at % place.chunk_len);
                let rest = (part.end - at).min(place.chunk_len - within);
                let from = place.block_at(narrow(block))? + within;
                read_stored(&*member.file, 0, from..from + rest, &mut bytes, &mut free)?;
                at += rest;
            }
            Ok(bytes)
        })
    }
}

impl<F: File> Member<F> {
    /// Has the journal say what streams are shorter than its last writer left them: the last block
    /// first, so that at no time one that is not full has others behind it.
    pub(super) fn correct(
        &self,
        journal: &F,
        recorded: &[Filled],
        lens: &[u64],
        number: u32,
    ) -> Result<()> {
        for (local, (was, len)) in (0u32..).zip(recorded.iter().zip(lens)) {
            let filled = self.filled(local, *len)?;
            for block in (0..was.block_count()).rev().filter(|_| *was != filled) {
                self.record(journal, local, block, filled).on_file(number)?;
            }
        }
        Ok(())
    }
}
