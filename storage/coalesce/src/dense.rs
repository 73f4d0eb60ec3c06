//! Small files that were made and written before anybody asked for them. Most are closed.

use std::io;

use multifile::catalogue::Time;

use super::volume::{Changing, Volume};

/// A small file.
pub(super) struct Small {
    /// Its number, which was [reserved](super::tree::Tree::reserve), and which nobody has.
    pub(super) inode: u64,
    /// Its folder, and its name, which is free.
    pub(super) folder: u64,
    pub(super) name: Vec<u8>,
    /// Permission bits.
    pub(super) mode: u32,
    /// When it was made and written.
    pub(super) time: Time,
    /// The task with its bytes, which were [kept](Volume::keep); `None` for an empty file.
    pub(super) task: Option<u64>,
    /// It is open still: it is not at rest once it is made.
    pub(super) is_open: bool,
}

impl Volume {
    /// Makes all of `files`, whose names differ: writes headers and journals first, and then all
    /// names by one record. On return they are in the multifile.
    ///
    /// # Errors
    ///
    /// Those of writing: none of the files is made.
    pub(super) async fn take_files(
        &self,
        changing: &Changing<'_>,
        files: &mut [Small],
    ) -> io::Result<()> {
        // Nobody knows of them, so there is nothing to hide; but none is shown before it is made.
        let _paused = self.resting.pause();
        self.tell_kept(files.iter().filter_map(|file| file.task)).await?;
        let shown = self.resting.to_show(files);
        self.make_files(changing, files).await?;
        self.resting.calm_down(shown);
        Ok(())
    }
}
