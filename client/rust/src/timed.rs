//! Calls that are timed for the job's table of costs: which they are, and what is learned.

use core::sync::atomic::Ordering;

use rustix::{
    fd::RawFd,
    fs::{FileType, OFlags},
    io,
};
use shm::{CallKind, Sample};

use crate::{
    client::Client,
    file::FileEntry,
    open::identify,
    sampler::{Timed, times_read},
    table::Entry,
};

impl Client {
    /// A timed open of a file that stays unexamined has just ended.
    #[cold]
    pub(crate) fn open_ends(&'static self, opened: io::Result<RawFd>, flags: OFlags, timed: Timed) {
        if let Ok(fd) = opened {
            self.ask_if_slow(fd, timed.open_sample(flags));
        }
    }

    fn ask_if_slow(&'static self, fd: RawFd, sample: Sample) {
        if !self.sampler.is_asked(sample) {
            return;
        }
        let Ok((mode, (device, _))) = identify(self.borrow(fd)) else { return };
        if FileType::from_raw_mode(mode) == FileType::RegularFile {
            self.learn_open(fd, device, sample);
        }
    }

    /// The kernel has opened a file that may have been examined since: then its device is known.
    #[cold]
    pub(crate) fn learn_opened(&'static self, fd: RawFd, sample: Sample) {
        let id = match self.table.get(fd) {
            Entry::File(id) => id,
            Entry::Opened(_) => return self.ask_if_slow(fd, sample),
            Entry::Foreign | Entry::Unknown | Entry::Own => return,
        };
        let Some(file) = self.files.get(id).and_then(|entry| entry.lock.try_lock()) else { return };
        let device = file.device;
        drop(file);
        self.learn_open(fd, device, sample);
    }

    fn learn_open(&'static self, fd: RawFd, device: u64, sample: Sample) {
        let place = self.costs().and_then(|costs| Some((costs, costs.place(device)?)));
        if let Some((costs, place)) = place {
            costs.learn_at(place, sample);
            self.sampler.follow(fd, place);
        }
    }

    /// A transfer of a file begins that is not examined. `None`: it is passed by.
    #[must_use]
    #[inline]
    pub fn transfer_begins(&'static self, fd: RawFd) -> Option<Timed> {
        let place = self.sampler.place_of(fd)?;
        if self.table.is_opened(fd) { self.sampler.transfer_begins(place) } else { None }
    }

    /// A timed read has moved `len` bytes.
    #[cold]
    pub fn learn_read(&'static self, timed: Timed, len: usize) {
        self.learn(timed, CallKind::Read, len);
    }

    /// A timed write has moved `len` bytes.
    #[cold]
    pub fn learn_write(&'static self, timed: Timed, len: usize) {
        self.learn(timed, CallKind::Write, len);
    }

    /// The program's close of a number begins. `None`: it is passed by.
    #[must_use]
    #[inline]
    pub fn close_begins(&'static self, fd: RawFd) -> Option<Timed> {
        self.sampler.last_close_begins(self.sampler.place_of(fd)?)
    }

    /// A timed close is over.
    #[cold]
    pub fn learn_close(&'static self, timed: Timed) {
        self.learn(timed, CallKind::Close, 0);
    }

    /// The kernel is asked for the status of a name. `None`: it is passed by.
    #[must_use]
    #[inline]
    pub fn stat_begins(&'static self) -> Option<Timed> {
        self.sampler.stat_begins()
    }

    /// A timed status was that of a file of `device`.
    #[cold]
    pub fn learn_stat(&'static self, timed: Timed, device: u64) {
        let sample = timed.sample(CallKind::Stat, 0);
        if let Some(costs) = self.costs() {
            costs.learn_known(device, sample);
        }
    }

    /// A timed call on a file of `device` is over.
    #[cold]
    pub(crate) fn learn_on(&'static self, timed: Timed, device: u64, kind: CallKind, len: usize) {
        let sample = timed.sample(kind, len);
        if let Some(costs) = self.costs() {
            costs.learn_call(device, sample);
        }
    }

    #[cold]
    fn learn(&'static self, timed: Timed, kind: CallKind, len: usize) {
        let sample = timed.sample(kind, len);
        if let Some(costs) = self.costs() {
            costs.learn_at(timed.place(), sample);
        }
    }

    /// A read of an examined file begins of `len` bytes. `None`: it is passed by.
    #[inline]
    pub(crate) fn read_begins(&self, entry: &FileEntry, len: usize) -> Option<Timed> {
        let before = entry.read_len.load(Ordering::Relaxed);
        if times_read(before, len) { Timed::begin(1, usize::MAX) } else { None }
    }

    /// A timed read of an examined file has moved `len` bytes.
    #[cold]
    pub(crate) fn learn_read_of(&'static self, entry: &FileEntry, timed: Timed, len: usize) {
        if let Some(file) = entry.lock.try_lock() {
            self.learn_on(timed, file.device, CallKind::Read, len);
        }
    }
}
