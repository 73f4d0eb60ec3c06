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
use crate::{failure::Failure, report, settings::Rules};

/// The configuration file of the current folder.
const LOCAL: &str = "kakehi.toml";

/// Length of a file at which reading ends: `/dev/zero` has no end.
const LEN_MAX: u64 = 1 << 20;

/// A configuration file.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) path: PathBuf,
    pub(super) text: String,
    /// It counts because of the current folder alone.
    pub(super) is_local: bool,
}

/// The configuration files that exist, lowest first.
pub(super) fn read(environment: &Environment) -> Result<Vec<Read>, Failure> {
    let home = || Some(Path::new(environment.get("HOME")?).join(".config"));
    let user = environment.get("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
    let user = user.map(|folder| folder.join("kakehi/config.toml"));
    let system = Some(PathBuf::from("/etc/kakehi/config.toml"));
    let mut files = Vec::new();
    for path in [system, user].into_iter().flatten().filter(|path| exists(path)) {
        files.push(named(path)?);
    }
    if let Some(folder) = &environment.folder {
        let local = own(folder)?;
        files.extend(local.map(|(path, text)| Read { path, text, is_local: true }));
    }
    // Named on purpose, so it has to exist.
    if let Some(path) = environment.get(CONFIG_VARIABLE) {
        files.push(named(path.into())?);
    }
    Ok(files)
}

fn named(path: PathBuf) -> Result<Read, Failure> {
    let mut text = String::new();
    let read = File::open(&path).and_then(|file| file.take(LEN_MAX).read_to_string(&mut text));
    match read {
        Ok(_) if text.len() as u64 == LEN_MAX => {
            let advice = "name another file in KAKEHI_CONFIG, or make it shorter";
            Err(Failure::usage(path.display(), "it has no end, or too much in it", advice))
        }
        Ok(_) => Ok(Read { path, text, is_local: false }),
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

/// True if there is such a file, as far as this user can see.
fn exists(path: &Path) -> bool {
    let is_hidden = |why: &io::Error| why.kind() == ErrorKind::PermissionDenied;
    !matches!(fs::metadata(path), Err(why) if absent(&why) || is_hidden(&why))
}

fn absent(why: &io::Error) -> bool {
    // A name too long for the kernel, as below a folder that has one, is nobody's.
    let is_too_long = why.raw_os_error() == Some(Errno::NAMETOOLONG.raw_os_error());
    is_too_long || matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// `./kakehi.toml`, when nobody else can have written it or put it there. It is opened once:
/// whatever has the name later, what was checked is read. A link is refused, for it may lead to a
/// file of this user or of root whose content somebody else has chosen, as `/proc/PID/comm`. What
/// another user has put there is left out with a warning, or anybody could keep all others from
/// using a folder like `/tmp`.
fn own(folder: &Path) -> Result<Option<(PathBuf, String)>, Failure> {
    let path = folder.join(LOCAL);
    let left_out = |owner: u32| {
        let why = format!("left out: it belongs to another user (UID {owner})");
        report::warn(&Failure::usage(path.display(), why, "to use it copy it"));
        Ok(None)
    };
    // Nobody is waited for at a pipe.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = open(&path, flags | OFlags::NOFOLLOW, Mode::empty()).map_err(io::Error::from);
    let mut file = match opened.map(File::from) {
        Ok(file) => file,
        Err(why) if absent(&why) => return Ok(None),
        Err(why) => match fs::symlink_metadata(&path).map(|found| found.uid()) {
            Ok(owner) if is_stranger(owner) => return left_out(owner),
            _ if why.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                let advice = "replace it by the file itself";
                return Err(refused(&path, "it is a symbolic link", advice));
            }
            _ if !exists(&path) => return Ok(None),
            _ => return Err(unread(&path, &why)),
        },
    };
    let found = file.metadata().map_err(|why| unread(&path, &why))?;
    if is_stranger(found.uid()) {
        return left_out(found.uid());
    }
    if !found.is_file() {
        return Err(refused(&path, "it is not a regular file", "remove it"));
    }
    if is_open(&found) {
        let advice = "take its ownership and 'chmod go-w' it";
        return Err(refused(&path, "another user can have written it", advice));
    }
    // `.` is where the file was looked for, whatever its folder is called by now.
    if is_open(&fs::metadata(folder).map_err(|why| unread(folder, &why))?) {
        let advice = "'chmod go-w' the folder if it is yours";
        return Err(refused(&path, "another user can have put it into this folder", advice));
    }
    let mut text = String::new();
    match file.read_to_string(&mut text) {
        Ok(_) => Ok(Some((path, text))),
        Err(why) => Err(unread(&path, &why)),
    }
}

/// True if anybody but this user and root may change it.
fn is_open(found: &fs::Metadata) -> bool {
    is_stranger(found.uid()) || found.mode() & 0o022 != 0
}

fn is_stranger(user: u32) -> bool {
    ![0, rustix::process::getuid().as_raw()].contains(&user)
}

fn refused(path: &Path, why: &str, advice: &str) -> Failure {
    let advice = format!("{advice}, or name a file in {CONFIG_VARIABLE}");
    Failure::usage(path.display(), why, advice)
}

/// A value as flags and variables have it; `None`: it has none.
pub(super) fn text_of(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(truth) => Some(truth.to_string()),
        toml::Value::Array(list) => {
            let texts: Option<Vec<_>> = list.iter().map(text_of).collect();
            Some(texts?.join(&Rules::SEPARATOR.to_string()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, lchown, symlink};

    use rustix::fs::{CWD, mkfifoat};

    use super::*;

    #[test]
    fn file_without_an_end_is_refused() {
        let why = named("/dev/zero".into()).map(|read| read.text).expect_err("refused").text();
        assert!(why.contains("no end"), "{why}");
        assert!(named("/dev/null".into()).is_ok_and(|read| read.text.is_empty()));
    }

    #[test]
    fn a_pipe_of_that_name_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().expect("temporary folder");
        mkfifoat(CWD, folder.path().join(LOCAL), Mode::RUSR).expect("a pipe");
        let why = own(folder.path()).expect_err("refused").text();
        assert!(why.contains("not a regular file"), "{why}");
    }

    /// Only root can have another's file there.
    #[test]
    fn what_another_user_has_put_there_is_left_out() {
        if !rustix::process::getuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join(LOCAL);
        fs::write(&path, "idle = \"spin\"").expect("a file");
        chown(&path, Some(65_534), None).expect("given away");
        assert!(own(folder.path()).expect("left out").is_none());
        fs::remove_file(&path).expect("removed");
        symlink("/etc/passwd", &path).expect("a link");
        lchown(&path, Some(65_534), None).expect("given away");
        assert!(own(folder.path()).expect("left out").is_none());
    }

    #[test]
    fn a_link_of_that_name_is_refused_wherever_it_leads() {
        let folder = tempfile::tempdir().expect("temporary folder");
        for target in ["/proc/self/comm", "/etc/passwd", "/nowhere"] {
            symlink(target, folder.path().join(LOCAL)).expect("a link");
            let why = own(folder.path()).expect_err("refused").text();
            assert!(why.contains("symbolic link"), "{why}");
            fs::remove_file(folder.path().join(LOCAL)).expect("removed");
        }
    }
}
