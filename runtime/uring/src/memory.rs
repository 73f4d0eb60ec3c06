//! Memory that the kernel reads and writes while an operation is in flight.
//!
//! # Why this is sound
//!
//! [`Memory::bytes`] borrows from `&self`, so the bytes stay in place for as long as such a borrow
//! may live. An [`Arc`] held by a [`Buffer`] keeps the value alive, unmoved and unborrowed
//! mutably, so the borrow may live as long as the buffer does. An operation in flight owns its
//! buffers; the kernel may therefore use the address until the completion is reaped.
//!
//! The bytes are atomics because others change them meanwhile: the kernel, and for shared segments
//! another process. What they hold is theirs to order; nothing here reads it.

use std::{
    fmt, iter,
    ptr::{self, NonNull},
    slice,
    sync::{Arc, atomic::AtomicU8},
};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Most buffers of one operation.
pub const BUFFER_COUNT_MAX: usize = 64;

/// Bytes that stay in place while this value is shared.
pub trait Memory: Send + Sync + 'static {
    /// All bytes; the same ones at every call.
    fn bytes(&self) -> &[AtomicU8];
}

/// A part of a [`Memory`], kept alive by this value.
#[derive(Clone)]
pub struct Buffer {
    memory: Arc<dyn Memory>,
    at: usize,
    len: usize,
}

impl Buffer {
    /// The `len` bytes from `at` on; `None` when they are not all in `memory`.
    #[must_use]
    pub fn new(memory: Arc<dyn Memory>, at: usize, len: usize) -> Option<Self> {
        memory.bytes().get(at..at.checked_add(len)?)?;
        Some(Self { memory, at, len })
    }

    /// All bytes of `memory`.
    pub(crate) fn whole(memory: Arc<dyn Memory>) -> Self {
        let len = memory.bytes().len();
        Self { memory, at: 0, len }
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[AtomicU8] {
        // Checked again: a memory that shrinks against its word yields fewer bytes, not others'.
        let rest = self.memory.bytes().get(self.at..).unwrap_or_default();
        rest.get(..self.len).unwrap_or(rest)
    }

    /// The first `len` bytes, or all when there are fewer.
    #[must_use]
    pub fn prefix(&self, len: usize) -> Self {
        Self { memory: Arc::clone(&self.memory), at: self.at, len: self.len.min(len) }
    }

    /// All but the first `at` bytes; none when there are fewer.
    #[must_use]
    pub fn suffix(&self, at: usize) -> Self {
        let at = at.min(self.len);
        Self { memory: Arc::clone(&self.memory), at: self.at + at, len: self.len - at }
    }

    /// This buffer, the `gap` bytes behind it, and `next`, as one buffer; `None` unless these
    /// follow each other in one memory.
    #[must_use]
    pub fn joined(&self, gap: usize, next: &Self) -> Option<Self> {
        let next_at = self.at.checked_add(self.len)?.checked_add(gap)?;
        if !Arc::ptr_eq(&self.memory, &next.memory) || next.at != next_at {
            return None;
        }
        Self::new(Arc::clone(&self.memory), self.at, self.len + gap + next.len)
    }

    /// Copies as many bytes as fit from `from` to the start of this buffer.
    ///
    /// If another thread changes either meanwhile, any mixture may be copied.
    pub fn copy_from(&self, from: &[AtomicU8]) {
        let to = self.bytes();
        let len = to.len().min(from.len());
        // SAFETY: both hold `len` bytes that may change under shared references; `copy` allows
        // them to overlap.
        unsafe { ptr::copy(from.as_ptr().cast::<u8>(), to.as_ptr().cast_mut().cast::<u8>(), len) }
    }

    /// Copies all bytes of `from` to the start of this buffer, as many as fit.
    pub fn gather(&self, from: &Buffers) {
        let mut rest = self.clone();
        for buffer in from.as_slice() {
            rest.copy_from(buffer.bytes());
            rest = rest.suffix(buffer.len());
        }
    }

    /// Copies `bytes` to the start of this buffer, as many as fit.
    pub fn store(&self, bytes: &[u8]) {
        let to = self.bytes();
        let len = to.len().min(bytes.len());
        // SAFETY: both hold `len` bytes; those written may change under shared references, and
        // `bytes` cannot be among them, being borrowed as bytes that do not change.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr().cast_mut().cast(), len) }
    }

    /// Copies the start of this buffer to `into`, as many bytes as fit.
    pub fn load(&self, into: &mut [u8]) {
        load(self.bytes(), into);
    }

    /// Copies the bytes to the end of `bytes`.
    pub fn append_to(&self, bytes: &mut Vec<u8>) {
        let from = self.bytes();
        bytes.reserve(from.len());
        let to = bytes.spare_capacity_mut().as_mut_ptr().cast();
        // SAFETY: there is room for as many bytes, and the vector is borrowed alone; as in `load`.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr().cast::<u8>(), to, from.len()) };
        // SAFETY: so many have just been written.
        unsafe { bytes.set_len(bytes.len() + from.len()) };
    }

    /// True if nobody else has a part of the memory.
    pub(crate) fn is_sole(&mut self) -> bool {
        Arc::get_mut(&mut self.memory).is_some()
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Copies the start of `from` to `into`, as many bytes as fit.
pub(crate) fn load(from: &[AtomicU8], into: &mut [u8]) {
    let len = from.len().min(into.len());
    // SAFETY: both hold `len` bytes, and `into` is borrowed alone; who writes to `from` meanwhile
    // changes what is read, not whether it can be read.
    unsafe { ptr::copy_nonoverlapping(from.as_ptr().cast(), into.as_mut_ptr(), len) }
}

impl From<Vec<u8>> for Buffer {
    /// The bytes, where they are: at no page's start.
    fn from(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        Self {
            memory: Arc::new(Heap { bytes: Bytes::Allocated(shared(bytes)), start: 0, len }),
            at: 0,
            len,
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({}..{})", self.at, self.at.saturating_add(self.len))
    }
}

/// Buffers of one operation: 1 to [`BUFFER_COUNT_MAX`], in order.
#[derive(Clone, Debug)]
pub struct Buffers(List);

#[derive(Clone, Debug)]
enum List {
    /// The common case allocates nothing.
    One(Buffer),
    Many(Arc<[Buffer]>),
}

impl Buffers {
    /// `None` when there is no buffer, or more than [`BUFFER_COUNT_MAX`].
    #[must_use]
    pub fn new(buffers: Vec<Buffer>) -> Option<Self> {
        let count_fits = (1..=BUFFER_COUNT_MAX).contains(&buffers.len());
        count_fits.then(|| Self(List::Many(buffers.into())))
    }

    /// All but the first `at` bytes; `None` when there are no more.
    #[must_use]
    pub fn suffix(&self, mut at: usize) -> Option<Self> {
        let mut buffers = self.as_slice();
        while let Some(first) = buffers.first().filter(|first| first.len() <= at) {
            at -= first.len();
            buffers = buffers.get(1..).unwrap_or_default();
        }
        let (first, rest) = buffers.split_first()?;
        if rest.is_empty() {
            return Some(first.suffix(at).into());
        }
        if at == 0 && buffers.len() == self.as_slice().len() {
            return Some(self.clone());
        }
        Self::new(iter::once(first.suffix(at)).chain(rest.iter().cloned()).collect())
    }

    /// At most `len` bytes from byte `at` on; `None` when there are none.
    #[must_use]
    pub fn part(&self, at: usize, len: usize) -> Option<Self> {
        let rest = self.suffix(at).filter(|_| len > 0)?;
        let (mut left, mut parts) = (len, Vec::new());
        for buffer in rest.as_slice() {
            if left == 0 {
                break;
            }
            parts.push(buffer.prefix(left));
            left -= left.min(buffer.len());
        }
        Self::new(parts)
    }

    /// Total length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_slice().iter().fold(0, |sum, buffer| sum.saturating_add(buffer.len()))
    }

    /// True if there are no bytes to transfer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The buffers in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Buffer] {
        match &self.0 {
            List::One(buffer) => slice::from_ref(buffer),
            List::Many(buffers) => buffers,
        }
    }
}

impl From<Buffer> for Buffers {
    fn from(buffer: Buffer) -> Self {
        Self(List::One(buffer))
    }
}

enum Bytes {
    Allocated(Box<[AtomicU8]>),
    Mapped(Pages),
}

/// Zero pages of the kernel, which are not there before they are touched: an allocator clears what
/// it has at hand.
struct Pages {
    start: NonNull<AtomicU8>,
    len: usize,
}

// SAFETY: the pages are this value's alone, and their bytes are atomics.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// `len` bytes or more; `None` where the address space has no room for them.
    fn map(len: usize) -> Option<Self> {
        let len = len.max(1).checked_next_multiple_of(PAGE_LEN)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, wherever the kernel has room: nothing of this process is there.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), len, access, MapFlags::PRIVATE) };
        Some(Self { start: NonNull::new(start.ok()?)?.cast(), len })
    }

    fn bytes(&self) -> &[AtomicU8] {
        // SAFETY: mapped for as long as this value is there, and so many bytes; zeros are atomics.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // What the kernel refuses to unmap, as it has too many mappings, stays.
        // SAFETY: mapped by this value, of which nobody borrows any more.
        unsafe { munmap(self.start.as_ptr().cast(), self.len) }.ok();
    }
}

/// Memory of this process: zeroed, and page-aligned as O_DIRECT wants it, unless it was a vector.
pub struct Heap {
    /// Longer than asked where an aligned start has to be found.
    bytes: Bytes,
    start: usize,
    len: usize,
}

pub(crate) const PAGE_LEN: usize = 4096;
const HUGE_PAGE_LEN: usize = 2 << 20;
/// The rest of a huge page is worth it from here on.
const HUGE_LEN_MIN: usize = HUGE_PAGE_LEN / 8;

impl Heap {
    /// `len` zero bytes.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self::aligned(len, PAGE_LEN)
    }

    /// `len` zero bytes, in huge pages as far as the kernel has them, unless so few that most of
    /// one would be left over: a device then gets long segments instead of single pages.
    pub(crate) fn huge(len: usize) -> Self {
        let page_len = if len < HUGE_LEN_MIN { PAGE_LEN } else { HUGE_PAGE_LEN };
        let whole_len = len.next_multiple_of(page_len);
        let heap = Self::aligned(whole_len, page_len);
        let start = heap.bytes().as_ptr().cast_mut();
        // SAFETY: the range begins at a page and lies in memory of this value; the advice changes
        // no byte. A kernel without huge pages refuses it, and nothing is lost.
        unsafe { libc::madvise(start.cast(), whole_len, libc::MADV_HUGEPAGE) };
        Self { len, ..heap }
    }

    /// `len` zero bytes, if there is room for so many: a limit of the address space may be short.
    pub(crate) fn try_new(len: usize) -> Option<Self> {
        Some(Self { bytes: Bytes::Mapped(Pages::map(len)?), start: 0, len })
    }

    /// `len` bytes that begin at the first multiple of `align`.
    fn aligned(len: usize, align: usize) -> Self {
        let bytes = shared(vec![0; len.saturating_add(align)]);
        let start = bytes.as_ptr().align_offset(align).min(align);
        Self { bytes: Bytes::Allocated(bytes), start, len }
    }

    /// `len` zero bytes as one buffer.
    #[must_use]
    pub fn buffer(len: usize) -> Buffer {
        Buffer { memory: Arc::new(Self::new(len)), at: 0, len }
    }
}

/// The same bytes, for more than one to change.
fn shared(bytes: Vec<u8>) -> Box<[AtomicU8]> {
    let bytes = Box::into_raw(bytes.into_boxed_slice());
    // SAFETY: an atomic has the layout of its integer, and the box is the only owner.
    unsafe { Box::from_raw(bytes as *mut [AtomicU8]) }
}

impl Memory for Heap {
    fn bytes(&self) -> &[AtomicU8] {
        let all = match &self.bytes {
            Bytes::Allocated(bytes) => bytes,
            Bytes::Mapped(pages) => pages.bytes(),
        };
        let rest = all.get(self.start..).unwrap_or_default();
        rest.get(..self.len).unwrap_or(rest)
    }
}

impl fmt::Debug for Heap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap").field("len", &self.len).finish_non_exhaustive()
    }
}
