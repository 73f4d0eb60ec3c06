//! The seam of `sion_group.h`: ranks that work together through a table of C functions.

use std::{
    ffi::{c_int, c_void},
    mem::MaybeUninit,
};

use multifile::{
    Error, Group,
    parallel::{OwnGroup, Part},
};

use crate::error::{Failure, Result, on_rank};

/// Waits for all ranks of a context.
pub(crate) type Barrier = unsafe extern "C" fn(*mut c_void) -> c_int;

/// `sion_group`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Table {
    pub(crate) context: *mut c_void,
    pub(crate) rank: c_int,
    pub(crate) size: c_int,
    pub(crate) gather: Option<
        unsafe extern "C" fn(*mut c_void, mine: *const u8, all: *mut u8, len: usize) -> c_int,
    >,
    pub(crate) scatter: Option<
        unsafe extern "C" fn(*mut c_void, all: *const u8, mine: *mut u8, len: usize) -> c_int,
    >,
    pub(crate) broadcast:
        Option<unsafe extern "C" fn(*mut c_void, bytes: *mut u8, len: usize) -> c_int>,
    pub(crate) barrier: Option<Barrier>,
    pub(crate) split: Option<
        unsafe extern "C" fn(
            *mut c_void,
            file: c_int,
            file_count: c_int,
            local_rank: c_int,
            local_size: c_int,
            part: *mut Self,
        ) -> c_int,
    >,
    pub(crate) release: Option<unsafe extern "C" fn(*mut c_void)>,
    pub(crate) spoken: c_int,
    pub(crate) apart: c_int,
    pub(crate) team: c_int,
}

/// `sion_group_place`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Place {
    pub(crate) file: c_int,
    pub(crate) file_count: c_int,
    pub(crate) local_rank: c_int,
    pub(crate) local_size: c_int,
}

/// Code of [`Error::Group`] when a table lacks a function.
const NO_FUNCTION: c_int = -1;

/// Ranks behind a table; releases its context when dropped.
pub(crate) struct Ranks {
    table: Table,
}

// SAFETY: the context is only handed to the table's functions, in collective calls, which the
// program makes on one thread at a time.
unsafe impl Send for Ranks {}

impl Ranks {
    /// Takes over a table.
    ///
    /// # Safety
    ///
    /// The functions keep the contract of `sion_group.h`, from now until the value is dropped.
    pub(crate) unsafe fn new(table: Table) -> Result<Self> {
        let ranks = Self { table };
        let complete = table.gather.is_some()
            && table.scatter.is_some()
            && table.broadcast.is_some()
            && table.barrier.is_some();
        if !complete || table.rank < 0 || table.rank >= table.size {
            return Err(Failure::Argument("the group's table is incomplete"));
        }
        on_rank(table.rank);
        Ok(ranks)
    }

    /// The context, if the table's barrier is this one.
    pub(crate) fn context(&self, barrier: Barrier) -> Option<*mut c_void> {
        let own = self.table.barrier.is_some_and(|own| std::ptr::fn_addr_eq(own, barrier));
        own.then_some(self.table.context)
    }

    /// True if the ranks had a collective call of their own before this one.
    pub(crate) const fn has_spoken(&self) -> bool {
        self.table.spoken != 0
    }

    /// True if each physical file may be on storage that only its own ranks reach.
    pub(crate) const fn are_apart(&self) -> bool {
        self.table.apart != 0
    }

    /// Number of consecutive ranks that are threads of one process.
    pub(crate) fn team(&self) -> usize {
        usize::try_from(self.table.team).unwrap_or(1).max(1)
    }

    /// Ranks that pass the same number, in groups that are not those of physical files.
    pub(crate) fn part(&self, part: Part) -> Result<OwnGroup, Error> {
        let number = |number| c_int::try_from(number).map_err(|_| Error::TooLarge);
        let part = self.split(Place {
            file: number(part.number)?,
            file_count: 0,
            local_rank: number(part.rank)?,
            local_size: number(part.size)?,
        });
        Ok(Box::new(part?))
    }

    /// True if the ranks can be split into groups.
    pub(crate) const fn can_split(&self) -> bool {
        self.table.split.is_some()
    }

    /// The ranks whose tasks are in one physical file, as `place` says.
    pub(crate) fn split(&self, place: Place) -> Result<Self, Error> {
        let split = self.table.split.ok_or(Error::Group { code: NO_FUNCTION })?;
        let Place { file, file_count, local_rank, local_size } = place;
        let mut part = MaybeUninit::<Table>::zeroed();
        // SAFETY: `new` was promised functions of this contract; `part` is valid for writing.
        let code = unsafe {
            let at = part.as_mut_ptr();
            split(self.table.context, file, file_count, local_rank, local_size, at)
        };
        done(code)?;
        // SAFETY: zeroed bytes are a table without functions, and success means it was filled.
        let part = unsafe { part.assume_init() };
        // SAFETY: the filled table keeps the same contract.
        unsafe { Self::new(part) }.map_err(|_| Error::Group { code: NO_FUNCTION })
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        if let Some(release) = self.table.release {
            // SAFETY: the last call with this context, as the contract says.
            unsafe { release(self.table.context) };
        }
    }
}

impl Group for Ranks {
    fn rank(&self) -> u32 {
        self.table.rank.unsigned_abs()
    }

    fn size(&self) -> u32 {
        self.table.size.unsigned_abs()
    }

    fn gather(&self, mine: &[u8]) -> Result<Vec<u8>, Error> {
        let ranks = if self.table.rank == 0 { self.table.size.unsigned_abs() } else { 0 };
        let len = usize::try_from(ranks).ok().and_then(|ranks| mine.len().checked_mul(ranks));
        let mut all = vec![0; len.ok_or(Error::TooLarge)?];
        let gather = self.table.gather.ok_or(Error::Group { code: NO_FUNCTION })?;
        // SAFETY: `mine` has its length; `all` has room for every rank's on the root, and is not
        // touched elsewhere.
        let code =
            unsafe { gather(self.table.context, mine.as_ptr(), all.as_mut_ptr(), mine.len()) };
        done(code).map(|()| all)
    }

    fn scatter(&self, all: &[u8], mine: &mut [u8]) -> Result<(), Error> {
        let len = mine.len();
        let ranks = usize::try_from(self.size()).unwrap_or(usize::MAX);
        if self.table.rank == 0 && Some(all.len()) != len.checked_mul(ranks) {
            return Err(Error::TooLarge);
        }
        let scatter = self.table.scatter.ok_or(Error::Group { code: NO_FUNCTION })?;
        // SAFETY: `all` holds `len` bytes for every rank on the root, and is not touched elsewhere.
        done(unsafe { scatter(self.table.context, all.as_ptr(), mine.as_mut_ptr(), len) })
    }

    fn broadcast(&self, bytes: &mut [u8]) -> Result<(), Error> {
        let broadcast = self.table.broadcast.ok_or(Error::Group { code: NO_FUNCTION })?;
        // SAFETY: the bytes are ours and have this length.
        done(unsafe { broadcast(self.table.context, bytes.as_mut_ptr(), bytes.len()) })
    }

    fn barrier(&self) -> Result<(), Error> {
        let barrier = self.table.barrier.ok_or(Error::Group { code: NO_FUNCTION })?;
        // SAFETY: `new` was promised functions of this contract.
        done(unsafe { barrier(self.table.context) })
    }
}

const fn done(code: c_int) -> Result<(), Error> {
    if code == 0 { Ok(()) } else { Err(Error::Group { code }) }
}
