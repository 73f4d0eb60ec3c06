//! Where configuration files are, and which of them may be believed.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags, open},
    io::Errno,
};

use super::{CONFIG_VARIABLE, Environment};
use crate::failure::Failure;

/// The configuration files that exist, and what stands in them, lowest first.
pub(super) fn read(environment: &Environment) -> Result<Vec<(PathBuf, String)>, Failure> {
    let home = || Some(Path::new(environment.get("HOME")?).join(".config"));
    let user = environment.get("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
    let user = user.map(|folder| folder.join("kakehi/config.toml"));
    let system = Some(PathBuf::from("/etc/kakehi/config.toml"));
    let mut files = Vec::new();
    for path in [system, user].into_iter().flatten().filter(|path| exists(path)) {
        files.push(named(path)?);
    }
    if let Some(folder) = &environment.folder {
        files.extend(own(folder.join("kakehi.toml"))?);
    }
    // Named on purpose, so it has to exist.
    if let Some(path) = environment.get(CONFIG_VARIABLE) {
        files.push(named(path.into())?);
    }
    Ok(files)
}

fn named(path: PathBuf) -> Result<(PathBuf, String), Failure> {
    match fs::read_to_string(&path) {
        Ok(text) => Ok((path, text)),
        Err(why) => Err(unread(&path, &why)),
    }
}

fn unread(path: &Path, why: &io::Error) -> Failure {
    let advice = match why.kind() {
        // Only a file that was named on purpose is looked for without being there.
        ErrorKind::NotFound => "correct KAKEHI_CONFIG or unset it",
        _ => "make it readable or remove it",
    };
    Failure::usage(path.display(), why, advice)
}

/// Whether there is such a file, as far as this user can see.
fn exists(path: &Path) -> bool {
    let is_hidden = |why: &io::Error| why.kind() == ErrorKind::PermissionDenied;
    !matches!(fs::metadata(path), Err(why) if absent(&why) || is_hidden(&why))
}

fn absent(why: &io::Error) -> bool {
    // A name too long for the kernel, as below a folder that has one, is nobody's.
    let is_too_long = why.raw_os_error() == Some(Errno::NAMETOOLONG.raw_os_error());
    is_too_long || matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// `./kakehi.toml`, when nobody else can have written it: it may name a library to load. It is
/// opened once: whatever has the name later, what was checked is read.
fn own(path: PathBuf) -> Result<Option<(PathBuf, String)>, Failure> {
    // Nobody is waited for at a pipe.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = open(&path, flags, Mode::empty()).map_err(io::Error::from);
    let mut file = match opened.map(File::from) {
        Ok(file) => file,
        Err(why) if absent(&why) || !exists(&path) => return Ok(None),
        Err(why) => return Err(unread(&path, &why)),
    };
    let found = file.metadata().map_err(|why| unread(&path, &why))?;
    let owners = [0, rustix::process::getuid().as_raw()];
    if !owners.contains(&found.uid()) || found.mode() & 0o022 != 0 {
        return Err(Failure::usage(
            path.display(),
            "another user can have written it",
            format_args!("take its ownership and 'chmod go-w' it, or name it in {CONFIG_VARIABLE}"),
        ));
    }
    let mut text = String::new();
    match file.read_to_string(&mut text) {
        Ok(_) => Ok(Some((path, text))),
        Err(why) => Err(unread(&path, &why)),
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, mkfifoat};

    use super::*;

    #[test]
    fn a_pipe_of_that_name_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("kakehi.toml");
        mkfifoat(CWD, &path, Mode::RUSR).expect("a pipe");
        assert!(own(path).is_ok_and(|found| found.is_some_and(|(_, text)| text.is_empty())));
    }
}
