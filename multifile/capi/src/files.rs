//! Plain files, opened and written through libc's functions, so that a program under `kakehi run`
//! has its multifiles delegated like everything else.

use std::{
    ffi::{CStr, CString, OsString, c_char, c_int},
    fs, io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use multifile::{Disk, Naming, Storage, name};

/// Gives the name of a physical file; the result is allocated with malloc.
pub(crate) type NameCallback = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_char;

/// Plain files whose physical names the program may choose.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    disk: Disk,
    name: Option<NameCallback>,
}

impl Files {
    /// # Safety
    ///
    /// `name` is safe to call from any thread as long as the process lives.
    pub(crate) unsafe fn named(name: Option<NameCallback>) -> Self {
        Self { disk: Disk::new(), name }
    }

    fn ask(&self, set: &Path, file: u32) -> Option<PathBuf> {
        let name = self.name?;
        let set = CString::new(set.as_os_str().as_bytes()).ok()?;
        // SAFETY: `named` was promised a callable function; the name is a C string.
        let found = unsafe { name(set.as_ptr(), c_int::try_from(file).ok()?) };
        if found.is_null() {
            return None;
        }
        // SAFETY: the callback returns a C string.
        let bytes = unsafe { CStr::from_ptr(found) }.to_bytes().to_vec();
        // SAFETY: which it allocated with malloc, for us to free.
        unsafe { libc::free(found.cast()) };
        Some(OsString::from_vec(bytes).into())
    }
}

impl Storage for Files {
    type File = fs::File;

    fn create(&self, path: &Path, naming: Naming<'_>, truncate: bool) -> io::Result<fs::File> {
        self.disk.create(path, naming, truncate)
    }

    fn open(&self, path: &Path, writable: Option<Naming<'_>>) -> io::Result<fs::File> {
        self.disk.open(path, writable)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn physical_name(&self, set: &Path, file: u32) -> PathBuf {
        let asked = if file == 0 { None } else { self.ask(set, file) };
        asked.unwrap_or_else(|| name::physical(set, file))
    }
}
