//! The file that says where a server listens, for clients on other nodes that share a file system.

use std::{fs, io, path::Path, path::PathBuf, process};

use super::Address;

/// A file with an address; removed when dropped.
#[derive(Debug)]
pub(crate) struct Published(Option<PathBuf>);

impl Published {
    /// Writes the address into a file of `folder` that is named after this node and process; into
    /// none without a folder.
    ///
    /// # Errors
    ///
    /// Those of creating the file.
    pub(crate) fn write(address: &Address, folder: Option<&Path>) -> io::Result<Self> {
        let Some(folder) = folder else { return Ok(Self(None)) };
        let node = rustix::system::uname();
        let node = node.nodename().to_string_lossy().replace('/', "_");
        let path = folder.join(format!("{node}.{}", process::id()));
        // Renamed into place, so that nobody reads half of it.
        let fresh = folder.join(format!(".{node}.{}", process::id()));
        fs::write(&fresh, format!("{address}\n"))?;
        fs::rename(fresh, &path)?;
        Ok(Self(Some(path)))
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            fs::remove_file(path).ok(); // Somebody may have cleared the folder.
        }
    }
}
