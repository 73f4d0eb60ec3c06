//! Output that exists under its final name only when it is complete and durable.
//!
//! Everything is written into a hidden folder beside its final place, on the same file system. When
//! all of it is durable, each file is renamed, file 0 of a set last: the set becomes readable with
//! it. The folder is removed whatever happens, but by a kill: then it stays, and nothing else.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs::{self, File, Metadata},
    io,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::{
    file_failure, in_use, is_multifile,
    leftover::{Leftover, identity},
};
use crate::failure::{Code, Failure};

/// From this many files on, one call for the file system is cheaper than one for each.
const SYNC_ALL: usize = 64;

/// Files on their way to their final names.
#[derive(Debug)]
pub(crate) struct Beside {
    folder: TempDir,
    parent: PathBuf,
    replace: bool,
    /// Device and inode of what is read and so must stay.
    inputs: Vec<(u64, u64)>,
    /// File 0 of the one set that is made.
    set: Option<OsString>,
}

impl Beside {
    /// Begins output into the folder `parent`; existing files are replaced only if `replace`, and
    /// the files `inputs` never.
    pub(crate) fn create(
        parent: &Path,
        replace: bool,
        inputs: impl IntoIterator<Item = Metadata>,
    ) -> Result<Self, Failure> {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        fs::metadata(parent).map_err(|why| file_failure(parent, &why))?;
        let folder = tempfile::Builder::new().prefix(".kakehi-").tempdir_in(parent);
        let folder = folder.map_err(|why| unwritable(parent, why.kind()))?;
        let inputs = inputs.into_iter().map(|found| identity(&found)).collect();
        Ok(Self { folder, parent: parent.to_owned(), replace, inputs, set: None })
    }

    /// As [`create`](Self::create) for one output at `path`; returns its name too.
    ///
    /// # Errors
    ///
    /// Also when `path` names no file, or one that must stay.
    pub(crate) fn for_file(
        path: &Path,
        replace: bool,
        inputs: impl IntoIterator<Item = Metadata>,
    ) -> Result<(Self, OsString), Failure> {
        let name = path.file_name().ok_or_else(|| {
            Failure::usage(path.display(), "it names no file", "name the file to write")
        })?;
        let mut beside = Self::create(path.parent().unwrap_or(Path::new("")), replace, inputs)?;
        beside.check(name)?;
        beside.set = Some(name.to_owned());
        Ok((beside, name.to_owned()))
    }

    /// Where the file that will be called `name` is written.
    pub(crate) fn path(&self, name: &OsStr) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Names a file that could not be written as it was going to be called: nobody has asked for
    /// the hidden folder.
    pub(crate) fn told(&self, failure: Failure) -> Failure {
        let [hidden, parent] = [self.folder.path(), &self.parent].map(|path| path.join(""));
        let parent = if parent == Path::new("./") { Path::new("") } else { &parent };
        failure.renamed(&hidden.display().to_string(), &parent.display().to_string())
    }

    /// Refuses a final name that must not be replaced.
    ///
    /// # Errors
    ///
    /// When the file exists and may not be replaced, is an input, or a multifile that somebody
    /// writes.
    pub(crate) fn check(&self, name: &OsStr) -> Result<(), Failure> {
        self.hold(name).map(drop)
    }

    /// The same; as long as the file is open that is to be replaced, no daemon begins to write it.
    fn hold(&self, name: &OsStr) -> Result<Option<File>, Failure> {
        let path = self.parent.join(name);
        match fs::metadata(&path) {
            Ok(found) if self.inputs.contains(&identity(&found)) => {
                Err(Failure::usage(path.display(), "it is the input", "name another output"))
            }
            Ok(_) if !self.replace => {
                let advice = "remove it, name another output, or add --force";
                Err(Failure::new(Code::Failure, path.display(), "it exists already", advice))
            }
            Ok(found) if found.is_file() && is_multifile(&path) => {
                // One that may not be read can be replaced all the same.
                let Ok(file) = File::open(&path) else { return Ok(None) };
                in_use(&path, &file, false).map_or(Ok(Some(file)), Err)
            }
            _ => Ok(None),
        }
    }

    /// Makes all files durable, gives them their final names, and makes the names durable. Files of
    /// a replaced set that have no successor are removed.
    ///
    /// # Errors
    ///
    /// When one of them exists already or the file system refuses; files not renamed are removed.
    pub(crate) fn publish(self) -> Result<(), Failure> {
        let failed = |why: io::Error| file_failure(&self.parent, &why);
        let entries = fs::read_dir(self.folder.path()).map_err(failed)?;
        let names = entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>();
        let mut names = names.map_err(failed)?;
        let left = self.leftover(&names);
        // `a.000001` comes before `a`.
        names.sort_unstable_by(|a, b| b.cmp(a));
        let _held = names.iter().map(|name| self.hold(name)).collect::<Result<Vec<_>, _>>()?;
        self.sync(&names).map_err(failed)?;
        for name in &names {
            let path = self.parent.join(name);
            fs::rename(self.path(name), &path).map_err(|why| file_failure(&path, &why))?;
        }
        left.remove()?;
        File::open(&self.parent).and_then(|parent| parent.sync_all()).map_err(failed)
    }

    /// Returns the files of the old set that the new files do not replace.
    fn leftover(&self, names: &[OsString]) -> Leftover {
        let kept: BTreeSet<PathBuf> = names.iter().map(|name| self.parent.join(name)).collect();
        match &self.set {
            Some(name) if self.replace => {
                let is_input = |found: &Metadata| self.inputs.contains(&identity(found));
                Leftover::of(&self.parent.join(name), &kept, is_input)
            }
            _ => Leftover::default(),
        }
    }

    fn sync(&self, names: &[OsString]) -> io::Result<()> {
        if names.len() >= SYNC_ALL {
            return Ok(rustix::fs::syncfs(File::open(self.folder.path())?)?);
        }
        names.iter().try_for_each(|name| File::open(self.path(name))?.sync_all())
    }
}

/// Says why nothing can be made in a folder; of the error only its kind, for its text tells of the
/// hidden folder.
fn unwritable(parent: &Path, kind: io::ErrorKind) -> Failure {
    let (why, advice) = match kind {
        // It is there, but takes no files, as `/proc`.
        io::ErrorKind::NotFound => {
            ("no file can be made in it".to_owned(), "name an output in another folder")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            (format!("no file can be made in it: {kind}"), "make room and try again")
        }
        _ => (
            format!("no file can be made in it: {kind}"),
            "name an output in a folder that you may write, or see its permissions",
        ),
    };
    Failure::new(Code::Failure, parent.display(), why, advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<OsString> {
        let entries = fs::read_dir(folder).expect("readable");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("entry").file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn nothing_has_its_final_name_before_all_is_published() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        let (beside, name) = Beside::for_file(&path, false, []).expect("writable");
        fs::write(beside.path(&name), "data").expect("written");
        fs::write(beside.path(OsStr::new("a.000001")), "more").expect("written");
        assert!(!path.exists());
        beside.publish().expect("published");
        assert_eq!(names(folder.path()), ["a", "a.000001"]);
    }

    #[test]
    fn what_is_given_up_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let (beside, name) =
            Beside::for_file(&folder.path().join("a"), false, []).expect("writable");
        fs::write(beside.path(&name), "half").expect("written");
        drop(beside);
        assert_eq!(names(folder.path()), [""; 0]);
    }

    #[test]
    fn an_input_is_never_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        fs::write(&path, "precious").expect("written");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        for output in [&path, &link] {
            let refused = Beside::for_file(output, true, path.metadata()).expect_err("refused");
            assert_eq!(refused.code, Code::Usage);
        }
        Beside::for_file(&path, false, []).expect_err("it exists");
        Beside::for_file(&path, true, []).expect("may be replaced");
    }
}
