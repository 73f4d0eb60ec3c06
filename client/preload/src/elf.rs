//! Symbols of the objects in this process, found in the objects themselves.
//!
//! The library interposes `dlsym`, so it cannot call `dlsym` to find what it stands before. Nor may
//! it import it: the version of that one symbol would keep it from loading into programs of an
//! older glibc (`dlsym@GLIBC_2.34`).
//!
//! `dl_iterate_phdr` visits objects in the order in which symbols are searched for: the program,
//! preloaded libraries, then what both need. So the next definition of a name is in the first
//! object behind this one that has it, as with `RTLD_NEXT`. It is called past sanitizers, which
//! stand before it and die in their function until they have started: after this library has.

use core::{
    ffi::{CStr, c_char, c_int, c_void},
    mem,
    ops::Range,
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, Ordering},
};

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_PHDR: u32 = 6;

const DT_NULL: usize = 0;
const DT_HASH: usize = 4;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_DEBUG: usize = 21;
const DT_VERSYM: usize = 0x6fff_fff0;
const DT_GNU_HASH: usize = 0x6fff_fef5;

/// Set in the version of a symbol that only programs linked against it use.
const HIDDEN: u16 = 0x8000;
const UNDEFINED: u16 = 0;

/// `Elf64_Sym`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

/// A loaded object.
#[derive(Clone, Copy)]
pub(crate) struct Object {
    base: usize,
    headers: *const libc::Elf64_Phdr,
    header_count: usize,
    name: *const c_char,
}

/// `struct r_debug`: how a debugger finds what is loaded.
#[repr(C)]
#[derive(Clone, Copy)]
struct Loaded {
    version: c_int,
    first: *const LinkMap,
}

/// `struct link_map`: an object in the linker's list.
#[repr(C)]
#[derive(Clone, Copy)]
struct LinkMap {
    base: usize,
    name: *const c_char,
    dynamic: *const Entry,
    next: *const Self,
}

/// Tag and value in a dynamic section, which ends with the tag `DT_NULL`.
type Entry = [usize; 2];

/// The tables by which an object's symbols are found; null where it has no such table.
struct Tables {
    base: usize,
    symbols: *const Symbol,
    names: *const c_char,
    versions: *const u16,
    gnu_hash: *const u32,
    hash: *const u32,
}

/// Calls `visit` with each object in order, until it returns something.
fn find_object<T>(mut visit: impl FnMut(&Object) -> Option<T>) -> Option<T> {
    type State<'a, T> = (&'a mut dyn FnMut(&Object) -> Option<T>, Option<T>);

    unsafe extern "C" fn each<T>(
        info: *mut libc::dl_phdr_info,
        _: usize,
        state: *mut c_void,
    ) -> c_int {
        // SAFETY: libc gives what describes an object.
        let info = unsafe { &*info };
        // SAFETY: the state given below, which nobody else has.
        let (visit, found) = unsafe { &mut *state.cast::<State<'_, T>>() };
        let (base, name) = (word(info.dlpi_addr), info.dlpi_name);
        let (headers, header_count) = (info.dlpi_phdr, usize::from(info.dlpi_phnum));
        *found = visit(&Object { base, headers, header_count, name });
        c_int::from(found.is_some())
    }
    let mut state: State<'_, T> = (&mut visit, None);
    // SAFETY: the function takes such a state.
    unsafe { iterate()(Some(each::<T>), (&raw mut state).cast()) };
    state.1
}

type Each = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;
type Iterate = unsafe extern "C" fn(Option<Each>, *mut c_void) -> c_int;

/// Returns glibc's own `dl_iterate_phdr`, and with other C libraries the linker's choice.
fn iterate() -> Iterate {
    static KNOWN: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let known = KNOWN.load(Ordering::Relaxed);
    let Some(found) = NonNull::new(known).or_else(|| in_glibc(c"dl_iterate_phdr")) else {
        return libc::dl_iterate_phdr;
    };
    KNOWN.store(found.as_ptr(), Ordering::Relaxed);
    // SAFETY: the function of that name.
    unsafe { mem::transmute::<*mut c_void, Iterate>(found.as_ptr()) }
}

/// glibc's own definition of a name, past whoever stands before it; `None` with other C libraries.
///
/// The linker's list is read without its lock: what comes up to glibc is never unloaded.
pub(crate) fn in_glibc(name: &CStr) -> Option<NonNull<c_void>> {
    let mut next = first_loaded()?;
    while !next.is_null() {
        // SAFETY: an object of the list.
        let map = unsafe { next.read() };
        // SAFETY: the object's own.
        let tables = unsafe { Tables::new(map.base, map.dynamic) };
        let is_glibc = |tables: &Tables| tables.find(c"gnu_get_libc_version").is_some();
        if let Some(tables) = tables.filter(is_glibc) {
            return tables.find(name);
        }
        next = map.next;
    }
    None
}

/// The first object of the linker's list.
fn first_loaded() -> Option<*const LinkMap> {
    // SAFETY: the function reads what the kernel gave to the program.
    let value = |key| word(unsafe { libc::getauxval(key) });
    let headers = ptr::with_exposed_provenance(value(libc::AT_PHDR));
    let header_count = value(libc::AT_PHNUM);
    let mut program = Object { base: 0, headers, header_count, name: ptr::null() };
    let own = program.segments(PT_PHDR).next().map(|headers| headers.start)?;
    program.base = headers.addr().wrapping_sub(own);
    // SAFETY: the program's own.
    let mut entries = unsafe { entries(program.dynamic()?) };
    let [_, at] = entries.find(|[tag, _]| *tag == DT_DEBUG)?;
    let loaded = ptr::with_exposed_provenance::<Loaded>(at);
    // SAFETY: the linker's, where it has put its address there.
    (!loaded.is_null()).then(|| unsafe { loaded.read() }.first)
}

/// # Safety
///
/// `list` is the dynamic section of a loaded object.
unsafe fn entries(list: *const Entry) -> impl Iterator<Item = Entry> {
    // SAFETY: the list goes on until `DT_NULL`.
    (0..)
        .map(move |index| unsafe { list.wrapping_add(index).read() })
        .take_while(|[tag, _]| *tag != DT_NULL)
}

/// The definition of a name that stands behind this library's.
pub(crate) fn next(name: &CStr) -> Option<NonNull<c_void>> {
    let own = own_address();
    let mut is_behind = false;
    find_object(|object| {
        if is_behind {
            return object.find(name);
        }
        is_behind = object.holds(own);
        None
    })
}

/// The first definition of a name.
pub(crate) fn first(name: &CStr) -> Option<NonNull<c_void>> {
    find_object(|object| object.find(name))
}

/// This library's definition of a name.
pub(crate) fn own(name: &CStr) -> Option<NonNull<c_void>> {
    holding(own_address())?.find(name)
}

/// True if an address lies in an object that stands behind this library.
pub(crate) fn is_behind(address: usize) -> bool {
    let own = own_address();
    let mut is_behind = false;
    let found = find_object(|object| {
        if object.holds(address) {
            return Some(is_behind);
        }
        is_behind |= object.holds(own);
        None
    });
    found.unwrap_or_default()
}

/// The object that an address lies in.
pub(crate) fn holding(address: usize) -> Option<Object> {
    find_object(|object| object.holds(address).then_some(*object))
}

fn own_address() -> usize {
    (next as *const ()).addr()
}

impl Object {
    /// The object's own definition of a name, as the linker would bind a new program to it.
    pub(crate) fn find(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the object's own.
        unsafe { Tables::new(self.base, self.dynamic()?) }?.find(name)
    }

    /// The last part of its file's name; empty for the program.
    pub(crate) fn file_name(&self) -> &[u8] {
        if self.name.is_null() {
            return &[];
        }
        // SAFETY: a C string for as long as the object is loaded.
        let path = unsafe { CStr::from_ptr(self.name) }.to_bytes();
        path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    pub(crate) fn holds(&self, address: usize) -> bool {
        self.segments(PT_LOAD).any(|segment| segment.contains(&address))
    }

    /// Where the segments of a kind are.
    fn segments(&self, kind: u32) -> impl Iterator<Item = Range<usize>> + '_ {
        let headers = (0..self.header_count).map(|index| {
            let place = self.headers.wrapping_add(index);
            // SAFETY: the object has that many.
            unsafe { place.read() }
        });
        headers.filter(move |header| header.p_type == kind).map(|header| {
            let start = self.base.wrapping_add(word(header.p_vaddr));
            start..start.wrapping_add(word(header.p_memsz))
        })
    }

    fn dynamic(&self) -> Option<*const Entry> {
        let list = self.segments(PT_DYNAMIC).next()?.start;
        Some(ptr::with_exposed_provenance(list))
    }
}

impl Tables {
    /// The tables of an object that has symbols.
    ///
    /// # Safety
    ///
    /// `list` is the dynamic section of an object loaded at `base`.
    unsafe fn new(base: usize, list: *const Entry) -> Option<Self> {
        let mut tables = Self {
            base,
            symbols: ptr::null(),
            names: ptr::null(),
            versions: ptr::null(),
            gnu_hash: ptr::null(),
            hash: ptr::null(),
        };
        // SAFETY: the caller's promise.
        for [tag, value] in unsafe { entries(list) } {
            match tag {
                DT_SYMTAB => tables.symbols = tables.at(value),
                DT_STRTAB => tables.names = tables.at(value),
                DT_VERSYM => tables.versions = tables.at(value),
                DT_GNU_HASH => tables.gnu_hash = tables.at(value),
                DT_HASH => tables.hash = tables.at(value),
                _ => {}
            }
        }
        Some(tables).filter(|tables| !tables.symbols.is_null() && !tables.names.is_null())
    }

    /// Returns the address in an entry of the dynamic section. glibc has added the object's
    /// address; musl and glibc's vDSO leave it out.
    fn at<T>(&self, value: usize) -> *const T {
        let address = if value < self.base { self.base.wrapping_add(value) } else { value };
        ptr::with_exposed_provenance(address)
    }

    /// The object's own definition of a name, as the linker would bind a new program to it.
    fn find(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: `new` was promised a loaded object.
        let symbol = unsafe { self.symbol(name) }?;
        NonNull::new(ptr::with_exposed_provenance_mut(self.base.wrapping_add(symbol.value)))
    }

    /// # Safety
    ///
    /// These are the tables of a loaded object.
    unsafe fn symbol(&self, name: &CStr) -> Option<Symbol> {
        if !self.gnu_hash.is_null() {
            // SAFETY: tables of a loaded object, with a `DT_GNU_HASH`.
            unsafe { self.find_by_gnu_hash(name) }
        } else if !self.hash.is_null() {
            // SAFETY: tables of a loaded object, with a `DT_HASH`.
            unsafe { self.find_by_hash(name) }
        } else {
            None
        }
    }

    /// # Safety
    ///
    /// As [`symbol`](Self::symbol), and there is a `DT_GNU_HASH`.
    unsafe fn find_by_gnu_hash(&self, name: &CStr) -> Option<Symbol> {
        // SAFETY: inside the table, for every index used below.
        let at = |index: usize| unsafe { self.gnu_hash.wrapping_add(index).read() };
        let step = |hash: u32, byte: &u8| hash.wrapping_mul(33).wrapping_add(u32::from(*byte));
        let hash = name.to_bytes().iter().fold(5381, step);
        let (bucket_count, first, bloom_len) = (at(0), at(1), at(2) as usize);
        let buckets = 4 + 2 * bloom_len;
        let chains = buckets + bucket_count as usize;
        let mut index = at(buckets + hash.checked_rem(bucket_count)? as usize);
        if index < first {
            return None;
        }
        loop {
            let chained = at(chains + (index - first) as usize);
            if (chained ^ hash) < 2 {
                // SAFETY: an index of the table.
                if let Some(symbol) = unsafe { self.matching(index as usize, name) } {
                    return Some(symbol);
                }
            }
            if chained & 1 != 0 {
                return None;
            }
            index += 1;
        }
    }

    /// # Safety
    ///
    /// As [`symbol`](Self::symbol), and there is a `DT_HASH`.
    unsafe fn find_by_hash(&self, name: &CStr) -> Option<Symbol> {
        // SAFETY: inside the table.
        let count = unsafe { self.hash.wrapping_add(1).read() };
        // SAFETY: an index of the table.
        (0..count as usize).find_map(|index| unsafe { self.matching(index, name) })
    }

    /// The symbol of an index, if it is the definition of `name` that new programs get.
    ///
    /// # Safety
    ///
    /// As [`symbol`](Self::symbol), and there is such a symbol.
    unsafe fn matching(&self, index: usize, name: &CStr) -> Option<Symbol> {
        // SAFETY: the table has a symbol of that index.
        let symbol = unsafe { self.symbols.wrapping_add(index).read() };
        if symbol.section == UNDEFINED || symbol.value == 0 {
            return None;
        }
        if !self.versions.is_null() {
            // SAFETY: there is a version for each symbol.
            let version = unsafe { self.versions.wrapping_add(index).read() };
            if version & HIDDEN != 0 {
                return None;
            }
        }
        let found = self.names.wrapping_add(symbol.name as usize);
        // SAFETY: a name in the table of names, which ends with a NUL.
        (unsafe { CStr::from_ptr(found) } == name).then_some(symbol)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "64-bit machines only")]
fn word(value: u64) -> usize {
    value as usize
}
