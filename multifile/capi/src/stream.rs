//! Real stdio streams on physical files, for programs that read and write through them.
//!
//! A stream has a descriptor of its own on the same open file. The library itself reads and writes
//! by position and never moves the stream's but where it says so, so the stream's position always
//! tells how far the program went.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    ffi::c_int,
    fs,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::fd::{AsRawFd as _, IntoRawFd},
    ptr::null_mut,
    sync::Arc,
};

use libc::{FILE, off_t};
use multifile::parallel::LocalTask;

use crate::error::{Failure, Result};

/// A stdio stream.
pub(crate) struct Stream {
    file: *mut FILE,
    /// Buffer given to `setvbuf`; lives until the stream is closed.
    buffer: Vec<u8>,
    /// The program closed it.
    closed: bool,
}

// SAFETY: stdio streams may be used from any thread.
unsafe impl Send for Stream {}

impl Stream {
    /// A stream on `file`, for writing too if `writable`; one to read has a position of its own.
    fn on(file: &fs::File, writable: bool) -> Result<Self> {
        let own = if writable { file.try_clone().map_err(Failure::Stream) } else { again(file) };
        let fd = own?.into_raw_fd();
        let mode = if writable { c"r+b" } else { c"rb" };
        // SAFETY: the descriptor is ours to give away, the mode is a C string.
        let file = unsafe { libc::fdopen(fd, mode.as_ptr()) };
        if file.is_null() {
            let error = io::Error::last_os_error();
            // SAFETY: nobody else has the descriptor.
            unsafe { libc::close(fd) };
            return Err(Failure::Stream(error));
        }
        Ok(Self { file, buffer: Vec::new(), closed: false })
    }

    /// The stream's position in bytes, with what waits in its buffer; `None` once closed.
    fn at(&self) -> Result<Option<u64>> {
        if self.closed {
            return Ok(None);
        }
        // SAFETY: an open stream.
        let at = unsafe { libc::ftello(self.file) };
        u64::try_from(at).map(Some).map_err(|_| Failure::Stream(io::Error::last_os_error()))
    }

    fn seek(&self, at: u64) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        let at = off_t::try_from(at).map_err(|_| multifile::Error::TooLarge)?;
        // SAFETY: an open stream.
        done(unsafe { libc::fseeko(self.file, at, libc::SEEK_SET) })
    }

    /// Fails when something written was lost, now or before.
    fn check(&self) -> Result<()> {
        // SAFETY: an open stream.
        if !self.closed && unsafe { libc::ferror(self.file) } != 0 {
            return Err(Failure::Stream(io::Error::from_raw_os_error(libc::EIO)));
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        // SAFETY: an open stream.
        done(unsafe { libc::fflush(self.file) })
    }

    /// Makes it one to read `file`, at whatever position.
    fn turn(&self, file: &fs::File) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        self.flush()?;
        // SAFETY: an open stream.
        let own = unsafe { libc::fileno(self.file) };
        // SAFETY: the stream's descriptor, and another one that is open.
        let turned = unsafe { libc::dup3(again(file)?.as_raw_fd(), own, libc::O_CLOEXEC) };
        done(c_int::from(turned < 0))
    }

    /// Reads up to `buf.len()` bytes; 0 at the end of the file or after an error.
    fn read(&self, buf: &mut [u8]) -> usize {
        if self.closed {
            return 0;
        }
        // SAFETY: an open stream, and as many bytes as the buffer has.
        unsafe { libc::fread(buf.as_mut_ptr().cast(), 1, buf.len(), self.file) }
    }

    /// Writes all of `bytes`.
    fn write(&self, bytes: &[u8]) -> Result<()> {
        if self.closed {
            return Err(Failure::Mode("the stream is closed"));
        }
        // SAFETY: an open stream, and as many bytes as there are.
        let n = unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), self.file) };
        done(c_int::from(n < bytes.len()))
    }

    fn set_buffer(&mut self, len: usize) -> Result<()> {
        self.flush()?;
        let mut buffer = vec![0; len];
        // SAFETY: the buffer lives until the stream is closed or gets another one.
        let set =
            unsafe { libc::setvbuf(self.file, buffer.as_mut_ptr().cast(), libc::_IOFBF, len) };
        if set == 0 {
            self.buffer = buffer;
        }
        done(set)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.closed {
            // SAFETY: an open stream, closed once.
            unsafe { libc::fclose(self.file) };
        }
    }
}

/// The same file, open to be read, with a position of its own: a duplicate of the handle reads
/// elsewhere.
fn again(file: &fs::File) -> Result<fs::File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    fs::File::open(path).map_err(Failure::Stream)
}

fn done(code: c_int) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(Failure::Stream(io::Error::last_os_error())) }
}

/// The streams of one handle.
#[derive(Default)]
pub(crate) struct Streams {
    /// By number of the physical file.
    by_file: BTreeMap<u32, Stream>,
    /// One of the program's own, used instead; closed with the handle.
    second: Option<Stream>,
    /// Descriptors given to a program in place of streams, by number of the physical file.
    descriptors: BTreeMap<u32, Arc<fs::File>>,
    /// Of these, on which a write of the library's has failed.
    failed: BTreeSet<u32>,
    /// In whose place another one came; closed with the handle.
    turned: Vec<Stream>,
}

impl Streams {
    /// Makes the stream on physical file `number` if it is `wanted`, while other ranks can still be
    /// told that it cannot be made.
    pub(crate) fn prepare(
        &mut self,
        number: u32,
        file: &fs::File,
        wanted: bool,
        writable: bool,
    ) -> multifile::Result<()> {
        if wanted {
            self.make(number, file, writable).map_err(Failure::shared)?;
        }
        Ok(())
    }

    /// As [`prepare`](Self::prepare), on the file of the first of these tasks, to read it.
    pub(crate) fn prepare_first(
        &mut self,
        tasks: &[LocalTask<fs::File>],
        wanted: bool,
    ) -> multifile::Result<()> {
        let mut first = tasks.iter().take(1).map(|local| &local.stream);
        first.try_for_each(|task| self.prepare(task.file_number(), task.file(), wanted, false))
    }

    /// The stream on physical file `number`, made if there is none yet.
    pub(crate) fn make(
        &mut self,
        number: u32,
        file: &fs::File,
        writable: bool,
    ) -> Result<*mut FILE> {
        if let Entry::Vacant(slot) = self.by_file.entry(number) {
            slot.insert(Stream::on(file, writable)?);
        }
        Ok(self.of(number).map_or(null_mut(), |stream| stream.file))
    }

    /// Lends the program the descriptor of physical file `number`, from now on like a stream.
    pub(crate) fn lend(
        &mut self,
        number: u32,
        file: &Arc<fs::File>,
        writable: bool,
    ) -> Result<c_int> {
        let lent = match self.descriptors.entry(number) {
            Entry::Occupied(lent) => lent.into_mut(),
            Entry::Vacant(slot) if writable => slot.insert(Arc::clone(file)),
            Entry::Vacant(slot) => slot.insert(Arc::new(again(file)?)),
        };
        Ok(lent.as_raw_fd())
    }

    /// Gives the program on physical file `number`, where it goes on, what it has on others.
    pub(crate) fn follow(
        &mut self,
        number: u32,
        file: &Arc<fs::File>,
        writable: bool,
    ) -> Result<()> {
        if self.descriptors.is_empty() {
            return self.make(number, file, writable).map(|_| ());
        }
        self.lend(number, file, writable).map(|_| ())
    }

    /// Has the program's stream on physical file `from` be one on `number`, for who reads on there
    /// and does not ask for another. What it has read ahead is forgotten.
    pub(crate) fn turn(&mut self, from: u32, number: u32, file: &fs::File) -> Result<()> {
        if let Some(stream) = self.by_file.remove(&from) {
            stream.turn(file)?;
            // The program may have that one, too.
            self.turned.extend(self.by_file.insert(number, stream));
        }
        Ok(())
    }

    /// True if the program has a stream of this handle, and may have moved it.
    pub(crate) fn exported(&self) -> bool {
        let mut streams = self.by_file.values().chain(&self.second);
        !self.descriptors.is_empty() || streams.any(|stream| !stream.closed)
    }

    /// Where the program left the stream on physical file `number`, if it has one.
    pub(crate) fn at(&self, number: u32) -> Result<Option<u64>> {
        match self.descriptors.get(&number) {
            Some(file) => file.as_ref().stream_position().map(Some).map_err(Failure::Stream),
            None => self.of(number).map_or(Ok(None), Stream::at),
        }
    }

    /// Moves the stream on physical file `number` to `at`, if there is one.
    pub(crate) fn seek(&self, number: u32, at: u64) -> Result<()> {
        if let Some(file) = self.descriptors.get(&number) {
            file.as_ref().seek(SeekFrom::Start(at)).map_err(Failure::Stream)?;
        }
        self.of(number).map_or(Ok(()), |stream| stream.seek(at))
    }

    /// Reads through the stream on physical file `number`; 0 if that gives nothing.
    pub(crate) fn read(&self, number: u32, buf: &mut [u8]) -> usize {
        match self.descriptors.get(&number) {
            Some(file) => file.as_ref().read(buf).unwrap_or(0),
            None => self.of(number).map_or(0, |stream| stream.read(buf)),
        }
    }

    /// Writes through the stream on physical file `number`.
    pub(crate) fn write(&mut self, number: u32, bytes: &[u8]) -> Result<()> {
        let Some(file) = self.descriptors.get(&number) else {
            return self.of(number).map_or(Err(Failure::Internal), |stream| stream.write(bytes));
        };
        let written = file.as_ref().write_all(bytes);
        if written.is_err() {
            self.failed.insert(number);
        }
        written.map_err(Failure::Stream)
    }

    /// Hands over what waits in the stream on physical file `number`.
    pub(crate) fn flush(&self, number: u32) -> Result<()> {
        self.of(number).map_or(Ok(()), Stream::flush)
    }

    /// Fails when the stream on physical file `number` has lost something that was written.
    pub(crate) fn check(&self, number: u32) -> Result<()> {
        if self.failed.contains(&number) {
            return Err(Failure::Stream(io::Error::from_raw_os_error(libc::EIO)));
        }
        self.of(number).map_or(Ok(()), Stream::check)
    }

    /// Gives all streams but the program's own, which outlive the handle, a buffer of `len` bytes.
    pub(crate) fn set_buffers(&mut self, len: usize) -> Result<()> {
        let all = self.by_file.values_mut();
        all.filter(|stream| !stream.closed).try_for_each(|stream| stream.set_buffer(len))
    }

    /// Uses `file`, a stream of the program, from now on.
    pub(crate) fn set_second(&mut self, file: *mut FILE) {
        // The one before is the program's again, which may go on with it.
        self.unset_second();
        self.second = Some(Stream { file, buffer: Vec::new(), closed: false });
    }

    /// Gives the program its stream back; false if there was none.
    pub(crate) fn unset_second(&mut self) -> bool {
        self.second.take().map(|mut stream| stream.closed = true).is_some()
    }

    /// The program closed the current stream itself.
    pub(crate) fn set_closed(&mut self, number: u32) {
        if let Some(stream) = self.second.as_mut().or_else(|| self.by_file.get_mut(&number)) {
            stream.closed = true;
        }
    }

    /// Number of descriptors held.
    pub(crate) fn count(&self) -> usize {
        self.by_file.len() + usize::from(self.second.is_some())
    }

    fn of(&self, number: u32) -> Option<&Stream> {
        self.second.as_ref().or_else(|| self.by_file.get(&number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_another_takes_the_place_of_stays_open() {
        let mut streams = Streams::default();
        // SAFETY: no arguments.
        let [first, second] = [(); 2].map(|()| unsafe { libc::tmpfile() });
        assert!(!first.is_null() && !second.is_null());
        // SAFETY: an open stream.
        let descriptor = unsafe { libc::fileno(first) };
        streams.set_second(first);
        streams.set_second(second);
        // SAFETY: descriptors are integers; this one is open if the stream is.
        assert_ne!(unsafe { libc::fcntl(descriptor, libc::F_GETFD) }, -1);
        // SAFETY: it is open, and the test's own.
        assert_eq!(unsafe { libc::fclose(first) }, 0);
    }
}
