//! Expected content of the files: every accepted byte, in the order of acceptance.

use std::{collections::BTreeMap, rc::Rc};

use shm::staging::APPEND;

use super::{
    CLIENTS,
    disk::{Disk, Open, Stored},
};

/// A client writes only to its own region of a shared file.
pub(super) const REGION_LEN: u64 = 4 << 10;

/// The accepted bytes of every file.
pub(super) struct Model {
    pub(super) disk: Rc<Disk>,
    files: BTreeMap<u64, Vec<Byte>>,
    /// When the last settling of each file had begun that has ended.
    settled: BTreeMap<u64, u64>,
    stamp: u64,
}

/// The last byte accepted for a place in a file.
#[derive(Clone, Copy, Default)]
struct Byte {
    value: u8,
    /// When it was accepted; zero for never.
    stamp: u64,
}

impl Model {
    pub(super) fn new(disk: Rc<Disk>) -> Self {
        Self { disk, files: BTreeMap::new(), settled: BTreeMap::new(), stamp: 0 }
    }

    /// Notes bytes as accepted.
    pub(super) fn accept(&mut self, inode: u64, at: u64, bytes: &[u8]) {
        let now = self.now();
        self.accept_since(now, inode, at, bytes);
    }

    /// Notes bytes as accepted that do not wait until they are drained, as nobody else had the file
    /// at `stamp`: whoever has settled it since has waited for them.
    pub(super) fn accept_since(&mut self, stamp: u64, inode: u64, at: u64, bytes: &[u8]) {
        assert!(self.settled.get(&inode).is_none_or(|settled| *settled < stamp), "not waited for");
        let file = self.files.entry(inode).or_default();
        let at = if at == APPEND { file.len() } else { usize::try_from(at).unwrap() };
        if file.len() < at + bytes.len() {
            file.resize(at + bytes.len(), Byte::default());
        }
        for (byte, value) in file[at..].iter_mut().zip(bytes) {
            *byte = Byte { value: *value, stamp };
        }
    }

    /// Notes that bytes are being changed: until they are accepted, nothing is promised of them.
    pub(super) fn blur(&mut self, inode: u64, at: u64, len: usize) {
        self.accept(inode, at, &vec![0; len]);
        let at = usize::try_from(at).unwrap();
        let file = self.files.entry(inode).or_default();
        file[at..at + len].iter_mut().for_each(|byte| byte.stamp = u64::MAX);
    }

    /// The present moment, in the order of those that were asked for.
    pub(super) fn now(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }

    /// The file was settled from `stamp` on: checks what was accepted before.
    pub(super) fn note_settled(&mut self, inode: u64, stamp: u64) {
        self.check_settled(inode, stamp);
        self.settled.insert(inode, stamp);
    }

    /// Checks what a client has read of its region.
    pub(super) fn check_read(&self, inode: u64, client: u64, bytes: &[u8]) {
        let at = usize::try_from(client * REGION_LEN).unwrap();
        self.compare(inode, at, bytes, self.stamp);
    }

    /// Checks all that one client has written to a file, in its `content`.
    pub(super) fn check_own(&self, open: &Open, client: u64, content: fn(&Stored) -> &[u8]) {
        if open.appends {
            return self.check_appended(open.inode, content);
        }
        let files = self.disk.files.borrow();
        let stored = files.get(&open.inode).map_or(&[][..], content);
        let at = usize::try_from(client * REGION_LEN).unwrap();
        self.compare(open.inode, at, stored.get(at..).unwrap_or_default(), self.stamp);
    }

    /// Checks a file that was only appended to.
    fn check_appended(&self, inode: u64, content: fn(&Stored) -> &[u8]) {
        let files = self.disk.files.borrow();
        let Some(stored) = files.get(&inode) else { return assert!(self.bytes(inode).is_empty()) };
        if !stored.tainted.contains(&true) {
            let expected: Vec<u8> = self.bytes(inode).iter().map(|byte| byte.value).collect();
            let found = content(stored);
            let same = found.iter().zip(&expected).take_while(|(a, b)| a == b).count();
            assert!(
                found == expected,
                "appended: {} bytes of {}, equal up to {same}",
                found.len(),
                expected.len()
            );
        }
    }

    /// Checks that what was accepted up to `stamp`, and not overwritten since, is stored.
    pub(super) fn check_settled(&self, inode: u64, stamp: u64) {
        if inode >= 100 {
            return self.check_appended(inode, |stored| &stored.bytes);
        }
        let files = self.disk.files.borrow();
        let stored = files.get(&inode).map_or(&[][..], |stored| &stored.bytes);
        for client in 0..CLIENTS {
            let at = usize::try_from(client * REGION_LEN).unwrap();
            self.compare(inode, at, stored.get(at..).unwrap_or_default(), stamp);
        }
    }

    /// Checks everything.
    pub(super) fn check_all(&self) {
        for inode in self.files.keys() {
            self.check_settled(*inode, self.stamp);
        }
    }

    /// Compares a region, found as `found`, with what was accepted up to `stamp`.
    fn compare(&self, inode: u64, at: usize, found: &[u8], stamp: u64) {
        let files = self.disk.files.borrow();
        let tainted = files.get(&inode).map_or(&[][..], |stored| &stored.tainted);
        let region = self.bytes(inode).iter().enumerate().skip(at);
        for (offset, byte) in region.take(usize::try_from(REGION_LEN).unwrap()) {
            if byte.stamp == 0 || byte.stamp > stamp || found.get(offset - at) == Some(&byte.value)
            {
                continue;
            }
            let is_tainted = tainted.get(offset).is_some_and(|tainted| *tainted);
            assert!(is_tainted, "byte {offset} of inode {inode} is not the one accepted last");
        }
    }

    fn bytes(&self, inode: u64) -> &[Byte] {
        self.files.get(&inode).map_or(&[], Vec::as_slice)
    }
}
