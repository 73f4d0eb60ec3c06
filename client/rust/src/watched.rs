//! The records of this process for `kakehi run --report`.
//!
//! Records are lines of fields parted by tabs (`cli/src/profile/records.rs` reads them); they are
//! gathered in memory and appended when that is full, and when the process ends or becomes another
//! program. A process that is killed leaves out what it had gathered.

use core::{
    ffi::CStr,
    fmt::{self, Write},
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{
    fd::RawFd,
    fs::{self, Mode, OFlags},
    io,
};

use crate::{
    client::Client,
    file::{Descriptor, FileEntry},
    locked::Locked,
    table::FileId,
    watch::{Call, Line, Lines, PATH_MAX, RECORD_MAX, ROOM, Way, now_ns, own_pid},
};

impl Client {
    /// Begins to watch, if the settings say so.
    pub(crate) fn start_watch(&'static self) {
        if self.config.get().is_some_and(|config| !config.watch().is_empty()) {
            self.watch.start();
            // Files that are left unexamined nobody could tell of.
            self.examine_from_now_on();
        }
    }

    /// A watched call has read some bytes.
    #[cold]
    pub(crate) fn watch_read(&'static self, call: Call, id: FileId, entry: &FileEntry, len: usize) {
        self.watch.end(call, Way::Read, id.index, &Ok(len));
        // Else the daemon, which draws reads over time, would be told when the file is closed.
        if call.0.is_some() {
            self.count_reads(entry);
        }
    }

    /// The last number of a file is closed: records what was done with it.
    pub(crate) fn watch_closing(&'static self, file: &Locked) {
        if self.watch.is_on() {
            self.record_file(file);
        }
    }

    /// The name of a file of a server, of which a descriptor tells nothing.
    pub(crate) fn watch_name(&'static self, identity: (u64, u64), path: &[u8]) {
        if self.watch.is_on() {
            self.record_name(identity, path);
        }
    }

    #[cold]
    #[inline(never)]
    fn record_name(&'static self, (device, inode): (u64, u64), path: &[u8]) {
        self.record(|line| {
            write!(line, "N\t{device}\t{inode}\t")?;
            line.text(path);
            Ok(())
        });
    }

    /// The process ends, or becomes another program: appends everything.
    pub(crate) fn leave_watch(&'static self) {
        if self.watch.is_on() && !self.is_anothers() {
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
        if let Ok(mut lines) = self.watch.lines.lock() {
            self.append(&mut lines);
        }
    }

    /// True in a child that has its parent's memory.
    fn is_anothers(&self) -> bool {
        self.watch.pid.load(Ordering::Relaxed) != own_pid()
    }

    #[cold]
    #[inline(never)]
    fn record_file(&'static self, file: &Locked) {
        let Some(watched) = self.watch.files.get(usize::from(file.id.index)) else { return };
        let take = |word: &AtomicU64| word.swap(0, Ordering::Relaxed);
        let [written, read] = watched.bytes.each_ref().map(take);
        let [writes, reads] = watched.calls.each_ref().map(|it| it.swap(0, Ordering::Relaxed));
        let opened = watched.opened_ns.load(Ordering::Relaxed);
        if writes == 0 && reads == 0 {
            return;
        }
        let (pid, closed) = (self.watch.pid.load(Ordering::Relaxed), now_ns());
        let (device, inode) = (file.device, file.inode);
        let has_name = !matches!(file.descriptor, Descriptor::Remote | Descriptor::StandIn);
        let mut path = [0; PATH_MAX];
        let path = if has_name { name_of(file.fd, &mut path) } else { &[] };
        self.record(|line| {
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
        let (pid, started) = (watch.pid.load(Ordering::Relaxed), get(&watch.started_ns));
        watch.started_ns.store(started, Ordering::Relaxed);
        let rank = self.config.get().and_then(|config| config.rank);
        let (closes, close_ns) = (get(&watch.closes), get(&watch.close_ns));
        self.record(|line| {
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
                    self.record(|line| {
                        write!(line, "C\t{pid}\t{way}\t{size}\t{calls}\t{bytes}\t{timed}\t")?;
                        write!(line, "{timed_ns}")
                    });
                }
            }
        }
    }

    /// Gathers a record; one that is too long is left out.
    #[cold]
    #[inline(never)]
    fn record(&'static self, write: impl FnOnce(&mut Line) -> fmt::Result) {
        let mut line = Line { bytes: [0; RECORD_MAX], len: 0 };
        if write(&mut line).and_then(|()| line.write_char('\n')).is_err() {
            return;
        }
        let Ok(mut lines) = self.watch.lines.lock() else { return };
        if lines.len + line.len > ROOM {
            self.append(&mut lines);
        }
        let len = lines.len;
        let from = line.bytes.get(..line.len).unwrap_or_default();
        if let Some(to) = lines.bytes.get_mut(len..len + from.len()) {
            to.copy_from_slice(from);
            lines.len += from.len();
        }
    }

    /// Appends what was gathered, by one call: other processes append to the file, too.
    #[cold]
    #[inline(never)]
    fn append(&'static self, lines: &mut Lines) {
        let bytes = lines.bytes.get(..lines.len).unwrap_or_default();
        let Some(path) = self.config.get().map(|config| config.watch()) else { return };
        if !bytes.is_empty() && !self.is_anothers() {
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
            let opened = fs::open(path, flags, Mode::empty());
            // A report that lacks something is better than a program that fails.
            opened.and_then(|file| io::write(&file, bytes)).unwrap_or_default();
        }
        lines.len = 0;
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
