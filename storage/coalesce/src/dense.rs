//! Small files that were made and written before anybody asked for them. Most are closed.

use std::{io, ops::Range};

use multifile::catalogue::Time;
use uring::Buffer;

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
    /// Its bytes, among those of all files that are made together.
    pub(super) data: Range<usize>,
    /// It is open still: it is not at rest once it is made.
    pub(super) is_open: bool,
}

impl Volume {
    /// Makes all of `files`, whose names are different ones: their bytes first, and then all names
    /// by one record. On return they are in the multifile.
    ///
    /// # Errors
    ///
    /// Those of writing: none of the files is made.
    pub(super) async fn take_files(
        &self,
        changing: &Changing<'_>,
        files: &mut [Small],
        data: &[Buffer],
    ) -> io::Result<()> {
        // Nobody knows of them, so there is nothing to hide; but none is shown before it is made.
        let _paused = self.resting.pause();
        let (mut shown, mut tasks) = (Vec::new(), Vec::new());
        let with_bytes = files.iter().filter(|file| !file.data.is_empty());
        let with_bytes: Vec<&[Buffer]> =
            with_bytes.filter_map(|file| data.get(file.data.clone())).collect();
        let taken = async {
            self.keep(&with_bytes, &mut tasks).await?;
            debug_assert_eq!(tasks.len(), with_bytes.len(), "every file with bytes has a task");
            shown = self.resting.to_show(files);
            self.make_files(changing, files, &tasks).await
        };
        let taken = taken.await;
        match taken {
            Ok(()) => self.resting.calm_down(shown),
            Err(_) => self.users.set_left(tasks),
        }
        taken
    }
}
