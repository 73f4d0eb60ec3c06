//! Records of this process for `kakehi run --report` and `--trace`: of a file when it is closed,
//! and the rest when the process ends or becomes another program.

use core::{
    ffi::CStr,
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{fd::RawFd, fs, io};

use crate::{
    client::Client,
    clock::{nanoseconds, now_ns},
    file::{FileEntry, OpenFile},
    locked_file::Locked,
    recorder::{Line, PATH_MAX, RECORD_MAX},
    table::{Entry, FileId},
    watch::{Call, Way},
};

impl Client {
    /// Begins to watch, if the settings say so.
    pub(crate) fn start_watch(&'static self) {
        let config = self.config.get().filter(|config| !config.watch().is_empty());
        if let Some(config) = config {
            self.watch.recorder.start(config.watch(), config.traces);
            let files = self.table.files(0, u32::MAX).map(|(_, id)| id.index);
            self.watch.start(files);
        }
    }

    /// Keeps an open file.
    pub(crate) fn add_file(&'static self, mut file: OpenFile) -> Option<FileId> {
        if self.config.get().is_some_and(|config| config.synchronous) {
            file.writes.synchronize();
        }
        self.files.add(file).inspect(|id| self.watch.opened(id.index))
    }

    /// The kernel has executed the first call on a file that was not examined.
    #[inline]
    pub(crate) fn watch_unexamined(&'static self, fd: RawFd, way: Way, len: usize) {
        if self.watch.is_on() {
            self.watch_first(fd, way, len);
        }
    }

    /// Only of a file that is known a record can be written.
    #[cold]
    #[inline(never)]
    fn watch_first(&'static self, fd: RawFd, way: Way, len: usize) {
        if let Entry::File(id) = self.look_up(fd) {
            self.watch.end(Call::UNTIMED, way, id.index, len);
        }
    }

    /// A watched call has written some bytes, or failed.
    #[cold]
    #[inline(never)]
    pub(crate) fn watch_write(&'static self, call: Call, id: FileId, wrote: &io::Result<usize>) {
        let Ok(len) = *wrote else { return };
        self.watch.end(call, Way::Write, id.index, len);
        if call.is_traced {
            self.trace_write(call, id, len);
        }
    }

    /// A watched call has read some bytes.
    #[cold]
    #[inline(never)]
    pub(crate) fn watch_read(&'static self, call: Call, id: FileId, entry: &FileEntry, len: usize) {
        self.watch.end(call, Way::Read, id.index, len);
        // Else the daemon, which draws reads over time, would be told when the file is closed.
        if call.began.is_some() {
            self.count_reads(entry);
        }
    }

    /// A write that a trace shows has been staged, if its file has a log.
    #[cold]
    #[inline(never)]
    fn trace_write(&'static self, call: Call, id: FileId, len: usize) {
        let Some(began) = call.began else { return };
        let Some(mut file) = self.files.get(id).and_then(|entry| entry.lock.try_lock()) else {
            return;
        };
        let is_its = file.generation == id.generation;
        let staging = file.state.staging().filter(|_| is_its);
        let Some((link, log)) = staging.filter(|(_, log)| log.producer.waiting() > 0) else {
            return;
        };
        let head = log.producer.head();
        log.traced_to = head;
        let at = link.at();
        self.watch.recorder.staged(at, head, len as u64, nanoseconds(began));
    }

    /// The last number of a file is closed: records what was done with it.
    pub(crate) fn watch_closing(&'static self, file: &Locked) {
        if self.watch.is_on() {
            self.record_file(file);
        }
    }

    /// The name of a file of a server, of which a descriptor tells nothing.
    pub(crate) fn watch_name(&'static self, device: u64, inode: u64, path: &[u8]) {
        if self.watch.is_on() {
            self.record_name(device, inode, path);
        }
    }

    #[cold]
    #[inline(never)]
    fn record_name(&'static self, device: u64, inode: u64, path: &[u8]) {
        self.watch.recorder.record(|line| {
            write!(line, "N\t{device}\t{inode}\t")?;
            line.text(path);
            Ok(())
        });
    }

    /// The process ends, or becomes another program: appends everything.
    pub(crate) fn leave_watch(&'static self) {
        if self.watch.is_on() && !self.watch.recorder.is_anothers() {
            self.record_all();
        }
    }

    #[cold]
    #[inline(never)]
    fn record_all(&'static self) {
        for (fd, id) in self.table.files(0, u32::MAX) {
            if let Some(file) = self.locked(fd, id) {
                self.record_file(&file);
            }
        }
        self.record_process();
        self.watch.recorder.append();
    }

    #[cold]
    #[inline(never)]
    fn record_file(&'static self, file: &Locked) {
        let Some(watched) = self.watch.files.get(usize::from(file.id.index)) else { return };
        let take = |word: &AtomicU64| word.swap(0, Ordering::Relaxed);
        let [written, read] = watched.bytes.each_ref().map(take);
        let [writes, reads] = watched.calls.each_ref().map(take);
        let opened = watched.opened_ns.load(Ordering::Relaxed);
        if writes == 0 && reads == 0 {
            return;
        }
        let (pid, closed) = (self.watch.recorder.pid(), now_ns());
        let (device, inode) = (file.device, file.inode);
        let has_name = !file.state.is_remote();
        let mut path = [0; PATH_MAX];
        let path = if has_name { name_of(file.fd, &mut path) } else { &[] };
        self.watch.recorder.record(|line| {
            write!(line, "F\t{pid}\t{opened}\t{closed}\t{written}\t{read}\t{writes}\t{reads}\t")?;
            write!(line, "{device}\t{inode}\t")?;
            line.text(path);
            Ok(())
        });
    }

    #[cold]
    #[inline(never)]
    fn record_process(&'static self) {
        let watch = &self.watch;
        let get = |word: &AtomicU64| word.swap(0, Ordering::Relaxed);
        let (pid, started) = (watch.recorder.pid(), get(&watch.started_ns));
        watch.started_ns.store(started, Ordering::Relaxed);
        let rank = self.config.get().and_then(|config| config.rank);
        let (closes, close_ns) = (get(&watch.closes), get(&watch.close_ns));
        self.watch.recorder.record(|line| {
            write!(line, "P\t{pid}\t")?;
            match rank {
                Some(rank) => write!(line, "{rank}")?,
                None => line.write_str("-")?,
            }
            write!(line, "\t{started}\t{}\t{closes}\t{close_ns}\t", now_ns())?;
            let mut path = [0; PATH_MAX];
            line.text(link(c"/proc/self/exe", &mut path));
            Ok(())
        });
        for (way, classes) in watch.classes.iter().enumerate() {
            for (size, class) in classes.iter().enumerate() {
                let [calls, bytes, timed, timed_ns] = class.words().map(get);
                if calls > 0 {
                    self.watch.recorder.record(|line| {
                        write!(line, "C\t{pid}\t{way}\t{size}\t{calls}\t{bytes}\t{timed}\t")?;
                        write!(line, "{timed_ns}")
                    });
                }
            }
        }
    }
}

/// The name of an open file, as the kernel knows it.
fn name_of(fd: RawFd, path: &mut [u8; PATH_MAX]) -> &[u8] {
    let mut line = Line { bytes: [0; RECORD_MAX], len: 0 };
    if write!(line, "/proc/self/fd/{fd}\0").is_err() {
        return &[];
    }
    let bytes = line.bytes.get(..line.len).unwrap_or_default();
    match CStr::from_bytes_with_nul(bytes) {
        Ok(name) => link(name, path),
        Err(_) => &[],
    }
}

/// Where a link leads.
fn link<'a>(name: &CStr, path: &'a mut [u8; PATH_MAX]) -> &'a [u8] {
    let len = fs::readlinkat_raw(fs::CWD, name, &mut path[..]).unwrap_or(0);
    path.get(..len).unwrap_or_default()
}
