//! Sealed memory that two processes map.

use core::{
    ffi::c_void,
    ptr::{self, NonNull},
    sync::atomic::AtomicU8,
};

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create},
    io::{self, Errno},
    mm::{Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap, mremap, munmap},
};

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);
/// The seals that keep a segment as long as it is.
const FIXED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
const SHARED: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// A mapped segment. Unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to no thread, and its bytes are only reached as atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Creates a segment of `len` bytes, zeroed, whose size nobody can change, and maps it.
    ///
    /// Pages take memory when they are first touched.
    ///
    /// # Errors
    ///
    /// As `memfd_create`, `ftruncate`, and `mmap` give them.
    pub fn create(len: usize) -> io::Result<(Self, OwnedFd)> {
        Self::create_sealed(len, SEALS)
    }

    /// As [`create`](Self::create), for one writer: nobody else can ever write the segment.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create); `EINVAL`: the kernel cannot seal it, before Linux 5.1.
    pub fn create_for_readers(len: usize) -> io::Result<(Self, OwnedFd)> {
        Self::create_sealed(len, SEALS | SealFlags::FUTURE_WRITE)
    }

    fn create_sealed(len: usize, seals: SealFlags) -> io::Result<(Self, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Kernels before 6.3 do not know the flag.
        let fd = memfd_create(c"kakehi", flags | MemfdFlags::NOEXEC_SEAL)
            .or_else(|_| memfd_create(c"kakehi", flags))?;
        ftruncate(&fd, len as u64)?;
        // First: what is to come cannot be written where that is sealed.
        let mapping = Self::map(&fd, len, SHARED)?;
        fcntl_add_seals(&fd, seals)?;
        Ok((mapping, fd))
    }

    /// Maps a segment somebody else created.
    ///
    /// # Errors
    ///
    /// `EINVAL` when it is not sealed against resizing; else as `fcntl`, `fstat`, `mmap` give them.
    pub fn open(fd: impl AsFd) -> io::Result<Self> {
        Self::open_as(fd, SHARED)
    }

    /// As [`open`](Self::open), of its first `len_max` bytes, with the length of the segment.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_start(fd: impl AsFd, len_max: usize) -> io::Result<(Self, usize)> {
        let len = sealed_len(&fd)?;
        Ok((Self::map(fd, len.min(len_max), SHARED)?, len))
    }

    /// Maps the first `len` bytes of the segment once more, which has as many.
    ///
    /// # Errors
    ///
    /// As `mremap` gives them.
    pub fn map_again(&self, len: usize) -> io::Result<Self> {
        let old = self.base.as_ptr().cast();
        // SAFETY: with an old length of zero a shared mapping stays as it is, and the new one is at
        // an address of the kernel's choice.
        Self::made(unsafe { mremap(old, 0, len, MremapFlags::MAYMOVE) }?, len)
    }

    fn open_as(fd: impl AsFd, access: ProtFlags) -> io::Result<Self> {
        let len = sealed_len(&fd)?;
        Self::map(fd, len, access)
    }

    fn map(fd: impl AsFd, len: usize, access: ProtFlags) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice changes no existing memory.
        Self::made(unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, fd, 0) }?, len)
    }

    fn made(base: *mut c_void, len: usize) -> io::Result<Self> {
        // A core dump is the program's; what is staged would make it a hundred times as large.
        // SAFETY: the range was mapped just now; what is dumped changes no contents.
        match unsafe { madvise(base, len, Advice::LinuxDontDump) } {
            Ok(()) | Err(_) => {}
        }
        NonNull::new(base.cast()).map(|base| Self { base, len }).ok_or(Errno::NOMEM)
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[AtomicU8] {
        // SAFETY: `len` bytes are mapped as long as `self` lives, the seals keep them backed, and
        // the peer's writes are permitted by the atomic type.
        unsafe { core::slice::from_raw_parts(self.base.as_ptr().cast(), self.len) }
    }

    /// Takes memory for the bytes of `range` now, so that the first copy into them does not fault
    /// page by page. Best effort: kernels before 5.14 cannot.
    pub fn populate(&self, at: usize, len: usize) {
        if at.checked_add(len).is_none_or(|end| end > self.len) {
            return;
        }
        // SAFETY: `at` lies in the mapping.
        let start = unsafe { self.base.add(at) };
        // SAFETY: the range is mapped; populating changes no contents.
        match unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxPopulateWrite) } {
            Ok(()) | Err(_) => {}
        }
    }

    /// Gives back the memory behind these bytes, which are zeros then. Whole pages are meant. Best
    /// effort.
    pub fn release(&self, at: usize, len: usize) {
        if at.checked_add(len).is_none_or(|end| end > self.len) {
            return;
        }
        // SAFETY: `at` lies in the mapping.
        let start = unsafe { self.base.add(at) };
        // SAFETY: the range stays mapped; its bytes become zeros, as any writer may make them.
        match unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxRemove) } {
            Ok(()) | Err(_) => {}
        }
    }

    /// Says whether a child of `fork` has these bytes mapped, too; at first it has. Whole pages are
    /// meant. Best effort: it fails where the kernel has no room for another mapping.
    pub fn inherit(&self, at: usize, len: usize, is_inherited: bool) {
        if at.checked_add(len).is_none_or(|end| end > self.len) {
            return;
        }
        // SAFETY: `at` lies in the mapping.
        let start = unsafe { self.base.add(at) };
        let advice = if is_inherited { Advice::LinuxDoFork } else { Advice::LinuxDontFork };
        // SAFETY: the range is mapped, and stays so in this process.
        match unsafe { madvise(start.as_ptr().cast(), len, advice) } {
            Ok(()) | Err(_) => {}
        }
    }

    /// Address of the first byte.
    pub(crate) const fn base(&self) -> NonNull<u8> {
        self.base
    }
}

/// Length of a segment that nobody can resize.
fn sealed_len(fd: impl AsFd) -> io::Result<usize> {
    if !fcntl_get_seals(&fd)?.contains(FIXED) {
        return Err(Errno::INVAL);
    }
    usize::try_from(fstat(&fd)?.st_size).map_err(|_| Errno::OVERFLOW)
}

/// A segment that somebody else writes, mapped to be read. A store to it is a fault.
#[derive(Debug)]
pub struct ReadOnly(Mapping);

impl ReadOnly {
    /// Maps a segment somebody else created.
    ///
    /// # Errors
    ///
    /// As [`Mapping::open`].
    pub fn open(fd: impl AsFd) -> io::Result<Self> {
        Mapping::open_as(fd, ProtFlags::READ).map(Self)
    }

    /// Length in bytes.
    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    /// Address of the first byte.
    pub(crate) const fn base(&self) -> NonNull<u8> {
        self.0.base()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map` and no borrow of it outlives `self`.
        match unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.len) } {
            Ok(()) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, string::String};

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn segment_is_left_out_of_core_dumps() {
        let (mapping, _fd) = Mapping::create(1 << 16).expect("a segment");
        let start = std::format!("{:x}-", mapping.base().as_ptr().addr());
        let maps = fs::read_to_string("/proc/self/smaps").expect("/proc");
        let lines = maps.lines().skip_while(|line| !line.starts_with(&start));
        let flags = lines.map(String::from).find(|line| line.starts_with("VmFlags:"));
        let flags = flags.expect("this mapping's");
        assert!(flags.split_whitespace().any(|flag| flag == "dd"), "{flags}");
    }
}
