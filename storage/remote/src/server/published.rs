//! The file that says where a server listens, for clients on other nodes that share a file system.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    process,
};

use rustix::fs::{Access, access};
use uring::Address as Place;

use crate::{Address, line::key::open_regular};

/// No address is longer, in bytes.
const TEXT_LEN_MAX: u64 = 4096;

/// A file with an address; removed when dropped.
#[derive(Debug)]
pub struct Published(Option<PathBuf>);

impl Published {
    /// Checks that the folder for the address is writable, before the server serves.
    ///
    /// # Errors
    ///
    /// Why the address could not be written.
    pub fn check(folder: Option<&Path>) -> io::Result<()> {
        let Some(folder) = folder else { return Ok(()) };
        if !fs::metadata(folder)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?)
    }

    /// Writes the address into a file of `folder` that is named after this node and process; into
    /// none without a folder.
    ///
    /// # Errors
    ///
    /// Those of creating the file.
    pub fn write(address: &Address, folder: Option<&Path>) -> io::Result<Self> {
        let Some(folder) = folder else { return Ok(Self(None)) };
        let node = rustix::system::uname();
        let node = node.nodename().to_string_lossy().replace('/', "_");
        let path = folder.join(format!("{node}.{}", process::id()));
        // Renamed into place, so that nobody reads half of it.
        let fresh = folder.join(format!(".{node}.{}", process::id()));
        let text = format!("{}\n", reachable(address, &node));
        forget_earlier(folder, &text)?;
        // Others may write the folder: what they put there is replaced, not written to.
        fs::remove_file(&fresh).ok();
        let made =
            fs::File::create_new(&fresh).and_then(|mut file| file.write_all(text.as_bytes()));
        let written = made.and_then(|()| fs::rename(&fresh, &path));
        written.inspect_err(|_| {
            fs::remove_file(&fresh).ok(); // There is none, or it is of no use.
        })?;
        Ok(Self(Some(path)))
    }
}

/// The address as other nodes know it: one that listens everywhere is at the node's name.
fn reachable(address: &Address, node: &str) -> Address {
    let mut address = address.clone();
    if let Place::Tcp { host, .. } = &mut address.place {
        if matches!(&**host, "0.0.0.0" | "::") {
            node.clone_into(host);
        }
    }
    address
}

/// Removes what an earlier server has left that was killed: nobody else listens at our address.
fn forget_earlier(folder: &Path, text: &str) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            continue; // To open a client's view would be to wait for this very server.
        }
        let path = entry.path();
        if published(&path).is_ok_and(|found| found == text) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

impl Drop for Published {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            fs::remove_file(path).ok(); // Somebody may have cleared the folder.
        }
    }
}

/// Reads the address that a server has left in a file of its address folder.
///
/// # Errors
///
/// Those of opening and reading; `InvalidInput`: it is something else than a regular file.
pub fn published(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open_regular(path)?.take(TEXT_LEN_MAX).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_one_that_other_nodes_reach_and_stands_there_once() {
        let folder = tempfile::tempdir().expect("folder");
        fs::write(folder.path().join("killed.1"), "tcp://10.0.0.1:7\n").expect("written");
        fs::write(folder.path().join("other.1"), "tcp://10.0.0.2:7\n").expect("written");
        let published = Published::write(&"tcp://10.0.0.1:7".parse().unwrap(), Some(folder.path()));
        let published = published.expect("written");
        let count = || fs::read_dir(folder.path()).expect("folder").count();
        assert_eq!(count(), 2);
        assert!(!folder.path().join("killed.1").exists());
        drop(published);
        assert_eq!(count(), 1);

        for everywhere in ["tcp://0.0.0.0:7", "tcp://[::]:7"] {
            let address = reachable(&everywhere.parse().unwrap(), "io1");
            assert_eq!(address.to_string(), "tcp://io1:7");
        }
    }

    #[test]
    fn a_link_in_the_place_of_the_address_is_replaced() {
        let folder = tempfile::tempdir().expect("folder");
        let precious = folder.path().join("precious");
        fs::write(&precious, "precious").expect("written");
        let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let name = format!("{node}.{}", process::id());
        for name in [name.clone(), format!(".{name}")] {
            std::os::unix::fs::symlink(&precious, folder.path().join(name)).expect("link");
        }
        let address = "tcp://10.0.0.1:7".parse().expect("an address");
        let published = Published::write(&address, Some(folder.path())).expect("written");
        assert_eq!(fs::read(&precious).expect("kept"), b"precious");
        assert!(fs::symlink_metadata(folder.path().join(name)).expect("there").is_file());
        drop(published);
    }

    #[test]
    fn a_pipe_among_the_addresses_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().expect("folder");
        let pipe = folder.path().join("pipe");
        let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, mode, 0).expect("a pipe");
        let address = "tcp://10.0.0.1:7".parse().expect("an address");
        Published::write(&address, Some(folder.path())).expect("written");
        published(&pipe).expect_err("no file");
    }

    #[test]
    fn an_address_that_cannot_be_left_leaves_nothing() {
        let folder = tempfile::tempdir().expect("folder");
        let write = || Published::write(&"tcp://10.0.0.1:7".parse().unwrap(), Some(folder.path()));
        let path = write().expect("written").0.clone().expect("a path");
        fs::create_dir(path).expect("its place is taken");
        write().expect_err("a folder is no file's place");
        assert_eq!(fs::read_dir(folder.path()).expect("folder").count(), 1);
    }
}
