//! Physical files of a set that is replaced by one with fewer: nobody would find them again.

use std::{
    collections::BTreeSet,
    fs::{self, File, Metadata},
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use multifile::{
    header::{FIXED_LEN, Header},
    name::{journal, physical},
};

use super::file_failure;
use crate::failure::Failure;

/// Files to remove once a set has its new files.
#[derive(Debug, Default)]
pub(super) struct Leftover(Vec<PathBuf>);

impl Leftover {
    /// Those of the set at `path` but `kept`. A file counts only if it says of itself that it is
    /// this one of a set of that many files and of that name.
    pub(super) fn of(
        path: &Path,
        kept: &BTreeSet<PathBuf>,
        is_input: impl Fn(&Metadata) -> bool,
    ) -> Self {
        let Ok(first) = header(path) else { return Self::default() };
        let members = (1..first.file_count).map(|number| (number, physical(path, number)));
        let members = members.map_while(|(number, path)| {
            let found = fs::symlink_metadata(&path).ok()?;
            Some((number, path, found))
        });
        let is_member = |number: u32, path: &Path| {
            header(path).is_ok_and(|header| {
                (header.file_number, header.file_count, &header.prefix)
                    == (number, first.file_count, &first.prefix)
            })
        };
        let left = members.filter(|(number, path, found)| {
            found.is_file() && !kept.contains(path) && !is_input(found) && is_member(*number, path)
        });
        Self(left.map(|(_, path, _)| path).collect())
    }

    /// Removes them, and their journals.
    pub(super) fn remove(self) -> Result<(), Failure> {
        for path in self.0 {
            for path in [journal(&path), path] {
                match fs::remove_file(&path) {
                    Err(why) if why.kind() != io::ErrorKind::NotFound => {
                        return Err(file_failure(&path, &why));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// Device and inode.
pub(super) fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

fn header(path: &Path) -> Result<Header, multifile::Error> {
    let mut bytes = [0; FIXED_LEN];
    // What cannot be read is not known to belong to the set: zeros are no header.
    File::open(path).and_then(|mut file| file.read_exact(&mut bytes)).ok();
    Header::parse(&bytes, 0)
}
