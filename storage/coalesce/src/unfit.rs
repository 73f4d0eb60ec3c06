//! Why a multifile cannot hold the files of a folder, and what to do about it.

use std::{
    error, fmt, io,
    path::{Path, PathBuf},
};

use multifile::{Error, Part, name::physical};
use rustix::io::Errno;

/// Faults of a multifile that no system call reports.
#[derive(Debug)]
pub(super) enum Unfit {
    /// Somebody else writes it, or reads it while it is to be written.
    Taken,
    /// Its file system has forgotten its lock, and somebody else has it.
    Lost,
    /// It is a pipe, a device, or the like.
    Special,
    /// It is one of SIONlib's, or was joined.
    NoNames,
    /// Of another version of the catalogue.
    Later,
    /// The catalogue cannot be read, or not be.
    Names,
    /// Some of the catalogue cannot be read; the rest is not to be lost with it.
    LostNames,
    /// It is missing, and another physical file of an earlier set is there.
    Headless(PathBuf),
    /// Another physical file of its set cannot be used.
    Member { path: PathBuf, source: io::Error },
}

impl Unfit {
    /// A multifile's error, where the set begins with `path`.
    pub(super) fn of_set(path: &Path, error: Error) -> io::Error {
        match error {
            Error::Io { file: file @ 1.., .. } => {
                let source = io::Error::from(error);
                let kind = source.kind();
                io::Error::new(kind, Self::Member { path: physical(path, file), source })
            }
            error => error.into(),
        }
    }

    fn advice(&self) -> &'static str {
        match self {
            Self::Taken => {
                "end that job first, name another file ('%h' in it is the node's name), or have a \
                 server coalesce for all nodes"
            }
            Self::Lost => {
                "what this job has made in it since is not there: have jobs that run together name \
                 files of their own"
            }
            Self::Special => "name an ordinary file, which is made when it is missing",
            Self::NoNames => {
                "name another file; `kakehi mount --read-only` shows the tasks of this one"
            }
            Self::Later => "use that version, or name another file",
            Self::Names => "name another file; `kakehi multifile split` reads what is in this one",
            Self::LostNames => {
                "it is left as it is: have `kakehi multifile repair --output` make a copy with the \
                 names that are whole, and name that"
            }
            Self::Headless(_) => {
                "bring the first one back under this name: a set is moved and copied as a whole; \
                 or remove the others, whose files are lost then"
            }
            Self::Member { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "bring it back to where the first one is: a set is moved and copied as a whole"
            }
            Self::Member { source, .. } if source.kind() == io::ErrorKind::AlreadyExists => {
                "that is another multifile: give it another name, or name another file"
            }
            Self::Member { source, .. } => advice(source),
        }
    }
}

impl From<Unfit> for io::Error {
    fn from(unfit: Unfit) -> Self {
        let kind = match unfit {
            Unfit::Taken => io::ErrorKind::ResourceBusy,
            Unfit::Special => io::ErrorKind::InvalidInput,
            _ => io::ErrorKind::InvalidData,
        };
        Self::new(kind, unfit)
    }
}

impl error::Error for Unfit {}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken => f.write_str("another daemon or server has it"),
            Self::Lost => f.write_str(
                "its file system has forgotten its lock, and another daemon or server has it, or \
                 had it",
            ),
            Self::Special => f.write_str("it is a pipe, a device, or the like"),
            Self::NoNames => f.write_str("it has no names of files: --coalesce did not make it"),
            Self::Later => f.write_str("a later version of Kakehi wrote it"),
            Self::Names => f.write_str("its names are damaged"),
            Self::LostNames => f.write_str("some of its names are damaged"),
            Self::Headless(path) => {
                write!(f, "it is missing, but {} of the same set is there", path.display())
            }
            Self::Member { path, source } => {
                write!(f, "its physical file {} cannot be used: {source}", path.display())
            }
        }
    }
}

/// True if it is not the multifile's fault.
fn is_failing(why: &io::Error) -> bool {
    let failing = [Errno::IO, Errno::STALE, Errno::REMOTEIO, Errno::NODEV];
    Errno::from_io_error(why).is_some_and(|errno| failing.contains(&errno))
}

/// Returns advice for a multifile that cannot be used.
pub fn advice(why: &io::Error) -> &'static str {
    let inner = why.get_ref();
    if let Some(unfit) = inner.and_then(|inner| inner.downcast_ref::<Unfit>()) {
        return unfit.advice();
    }
    if let Some(error) = inner.and_then(|inner| inner.downcast_ref::<Error>()) {
        return match error {
            Error::Damaged { part: Part::Magic, .. } => {
                "it is left as it is; name another file, which is made when it is missing"
            }
            Error::Damaged { .. } => {
                "take it from another copy, or name another file; `kakehi multifile repair \
                 --dry-run` says what can be mended"
            }
            Error::Unclosed { .. } => {
                "have `kakehi multifile repair` complete it, which needs the right to write it"
            }
            _ => "`kakehi multifile verify` says more; name another file to go on",
        };
    }
    if is_failing(why) {
        return "its file system or device fails: see to that, for the multifile may be whole";
    }
    match why.kind() {
        io::ErrorKind::NotFound => "make the folder that it is to be in, or correct its name",
        io::ErrorKind::IsADirectory => "it is a folder: name a file, in it or elsewhere",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "name a file that you may write, in a folder that you may write"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room, or name a file in another file system"
        }
        _ => "name another file, which is made when it is missing",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_reason_has_advice_of_its_own() {
        let member =
            Error::Io { file: 1, os: Errno::NOENT.raw_os_error(), kind: io::ErrorKind::NotFound };
        let reasons: [io::Error; 17] = [
            Unfit::Taken.into(),
            Unfit::Lost.into(),
            Unfit::Special.into(),
            Unfit::NoNames.into(),
            Unfit::Later.into(),
            Unfit::Names.into(),
            Unfit::LostNames.into(),
            Unfit::Headless("/a.sion.000001".into()).into(),
            Unfit::of_set(Path::new("/a.sion"), member),
            Error::Damaged { part: Part::Magic, file: 0 }.into(),
            Error::Damaged { part: Part::Blocks, file: 0 }.into(),
            Error::Unclosed { file: 0 }.into(),
            Errno::NOENT.into(),
            Errno::ISDIR.into(),
            Errno::ACCESS.into(),
            Errno::NOSPC.into(),
            Errno::STALE.into(),
        ];
        let advice: HashSet<_> = reasons.iter().map(advice).collect();
        assert_eq!(advice.len(), reasons.len(), "{advice:#?}");
    }

    #[test]
    fn a_missing_physical_file_is_called_by_its_own_name() {
        let missing = Error::io(1, &Errno::NOENT.into());
        let said = Unfit::of_set(Path::new("/a.sion"), missing).to_string();
        assert!(
            said.contains("physical file /a.sion.000001 ") && said.contains("No such"),
            "{said}"
        );
        for errno in [Errno::STALE, Errno::IO] {
            let failing = [0, 1]
                .map(|file| Unfit::of_set(Path::new("/a.sion"), Error::io(file, &errno.into())));
            assert_eq!(failing.each_ref().map(advice), [advice(&errno.into()); 2]);
        }
        let first = Unfit::of_set(Path::new("/a.sion"), Error::io(0, &Errno::NOENT.into()));
        assert!(first.to_string().starts_with("No such"), "{first}");
    }
}
