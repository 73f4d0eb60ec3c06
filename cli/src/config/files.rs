//! Where configuration files are, and which of them may be believed.

use std::{
    fs,
    io::{self, ErrorKind},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustix::io::Errno;

use super::{CONFIG_VARIABLE, Environment};
use crate::failure::Failure;

/// The configuration files that exist, lowest first.
pub(super) fn find(environment: &Environment) -> Result<Vec<PathBuf>, Failure> {
    let home = || Some(Path::new(environment.get("HOME")?).join(".config"));
    let user = environment.get("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
    let user = user.map(|folder| folder.join("kakehi/config.toml"));
    let system = Some(PathBuf::from("/etc/kakehi/config.toml"));
    let mut files: Vec<_> =
        [system, user].into_iter().flatten().filter(|path| exists(path)).collect();
    if let Some(path) = environment.folder.as_ref().map(|folder| folder.join("kakehi.toml")) {
        files.extend(own_file(path)?);
    }
    // Named on purpose, so it has to exist: reading it reports that it does not.
    files.extend(environment.get(CONFIG_VARIABLE).map(PathBuf::from));
    Ok(files)
}

fn exists(path: &Path) -> bool {
    !matches!(fs::metadata(path), Err(why) if absent(&why))
}

fn absent(why: &io::Error) -> bool {
    // A name too long for the kernel, as below a folder that has one, is nobody's.
    let is_too_long = why.raw_os_error() == Some(Errno::NAMETOOLONG.raw_os_error());
    is_too_long || matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// `./kakehi.toml`, when nobody else can have written it: it may name a library to load.
fn own_file(path: PathBuf) -> Result<Option<PathBuf>, Failure> {
    let file = match fs::metadata(&path) {
        Ok(file) => file,
        Err(why) if absent(&why) => return Ok(None),
        Err(why) => {
            return Err(Failure::usage(path.display(), why, "make it readable or remove it"));
        }
    };
    let owners = [0, rustix::process::getuid().as_raw()];
    if !owners.contains(&file.uid()) || file.mode() & 0o022 != 0 {
        return Err(Failure::usage(
            path.display(),
            "another user can have written it",
            format_args!("take its ownership and 'chmod go-w' it, or name it in {CONFIG_VARIABLE}"),
        ));
    }
    Ok(Some(path))
}
