//! Where the dynamic loader looks for a library, without loading anything.
//!
//! Follows ld.so(8): `DT_RPATH` (only without `DT_RUNPATH`), `LD_LIBRARY_PATH`, `DT_RUNPATH`, the
//! cache, the standard folders. Hardware-specific subfolders are not searched: they hold other
//! builds of the same library.

use std::{
    env::consts::ARCH,
    fs,
    path::{Path, PathBuf},
};

use crate::config::Environment;

/// The cache that ldconfig(8) writes: a header, entries, then the strings they point at.
const CACHE: &str = "/etc/ld.so.cache";
const CACHE_MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const CACHE_COUNT_AT: usize = CACHE_MAGIC.len();
const CACHE_HEADER_LEN: usize = 48;
const CACHE_ENTRY_LEN: usize = 24;
const CACHE_KEY_AT: usize = 4;
const CACHE_VALUE_AT: usize = 8;

/// The folders and the cache of this machine.
#[derive(Debug)]
pub(crate) struct Loader {
    library_path: Vec<PathBuf>,
    /// Name and path of each library the cache knows, in its order.
    cache: Vec<(String, PathBuf)>,
    standard: Vec<PathBuf>,
}

impl Loader {
    pub(crate) fn new(environment: &Environment) -> Self {
        let multiarch = format!("{ARCH}-linux-gnu");
        let standard = ["/lib", "/usr/lib"]
            .into_iter()
            .flat_map(|base| [format!("{base}/{multiarch}"), format!("{base}64"), base.to_owned()]);
        Self {
            library_path: environment.folders("LD_LIBRARY_PATH"),
            cache: fs::read(CACHE).ok().and_then(|bytes| parse(&bytes)).unwrap_or_default(),
            standard: standard.map(PathBuf::from).collect(),
        }
    }

    /// The first file named `name` that `accept` takes, `rpath` and `runpath` being the folders its
    /// user names.
    pub(crate) fn find(
        &self,
        name: &str,
        rpath: &[PathBuf],
        runpath: &[PathBuf],
        accept: impl Fn(&Path) -> bool,
    ) -> Option<PathBuf> {
        let accept = |path: &PathBuf| path.is_file() && accept(path);
        if name.contains('/') {
            return Some(PathBuf::from(name)).filter(accept);
        }
        let within = |folders: &[PathBuf]| folders.iter().map(|at| at.join(name)).find(accept);
        let cached = || {
            let known = self.cache.iter().filter(|(key, _)| key == name);
            known.map(|(_, path)| path.clone()).find(accept)
        };
        within(rpath)
            .or_else(|| within(&self.library_path))
            .or_else(|| within(runpath))
            .or_else(cached)
            .or_else(|| within(&self.standard))
    }
}

/// Every library of the cache; `None` when it is not a cache of this format.
fn parse(bytes: &[u8]) -> Option<Vec<(String, PathBuf)>> {
    // The older format may stand in front of this one.
    let start = bytes.windows(CACHE_MAGIC.len()).position(|window| window == CACHE_MAGIC)?;
    let bytes = bytes.get(start..)?;
    let count = usize::try_from(word(bytes, CACHE_COUNT_AT)?).ok()?;
    let entries = bytes.get(CACHE_HEADER_LEN..)?.chunks_exact(CACHE_ENTRY_LEN).take(count);
    let libraries = entries.filter_map(|entry| {
        let name = string(bytes, word(entry, CACHE_KEY_AT)?)?;
        let path = string(bytes, word(entry, CACHE_VALUE_AT)?)?;
        Some((name.to_owned(), PathBuf::from(path)))
    });
    Some(libraries.collect())
}

/// A word of a file this machine wrote for itself.
#[expect(clippy::host_endian_bytes, reason = "ldconfig writes the machine's own order")]
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn string(bytes: &[u8], at: u32) -> Option<&str> {
    let text = bytes.get(usize::try_from(at).ok()?..)?;
    let end = text.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(text.get(..end)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_of_this_machine_knows_libc() {
        let loader = Loader::new(&Environment::default());
        assert!(loader.cache.iter().any(|(name, _)| name == "libc.so.6"));
        let found = loader.find("libc.so.6", &[], &[], |_| true).expect("a libc");
        assert!(found.is_file(), "{}", found.display());
    }

    #[test]
    fn a_truncated_cache_is_read_up_to_its_end() {
        let whole = fs::read(CACHE).expect("a cache");
        for len in (0..whole.len()).step_by(997) {
            parse(&whole[..len]);
        }
    }

    #[test]
    fn rpath_comes_before_runpath_before_the_cache() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        for at in [&first, &second] {
            fs::create_dir(at).expect("folder");
            fs::write(at.join("libc.so.6"), "").expect("file");
        }
        let loader = Loader::new(&Environment::default());
        let (rpath, runpath) = ([first.clone()], [second.clone()]);
        let find = |rpath, runpath| loader.find("libc.so.6", rpath, runpath, |_| true);
        assert_eq!(find(&rpath, &runpath), Some(first.join("libc.so.6")));
        assert_eq!(find(&[], &runpath), Some(second.join("libc.so.6")));
        assert_ne!(find(&[], &[]), Some(second.join("libc.so.6")));
    }
}
