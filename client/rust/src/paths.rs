//! Paths in full, as the daemon is sent them.

use core::ffi::CStr;

use rustix::{
    fd::{OwnedFd, RawFd},
    fs::{self, MemfdFlags},
    io::{self, Errno},
};
use wire::Base;

use crate::{
    config::Config,
    host::Host,
    proc::link_of,
    rooms::{PATH_MAX, Path, Room},
    rules::{CURRENT_FOLDER, Policy, policy_without_rules},
};

/// Beginning of the link of a descriptor that is nothing but a folder's name, which follows; with
/// what the kernel puts before and behind the name of memory.
const NAME_LINK: &[u8] = b"/memfd:kakehi:/";
const NAME_LINK_END: &[u8] = b" (deleted)";

/// A path as the daemon is sent it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked<'a> {
    /// The open folder that it is relative to, if that is in a view.
    pub(crate) base: Option<Base>,
    pub(crate) text: &'a [u8],
}

impl Asked<'_> {
    /// Its bytes, with those of the folder.
    pub(crate) fn len(&self) -> usize {
        self.base.map_or(0, |_| Base::LEN) + self.text.len()
    }
}

impl<'a> From<&'a [u8]> for Asked<'a> {
    fn from(text: &'a [u8]) -> Self {
        Self { base: None, text }
    }
}

/// An absolute path, without `.` and `..`, and the policy that serves it.
pub(crate) struct AbsolutePath {
    bytes: Room,
    len: usize,
    /// Length of what is left of the path of the folder that it is relative to.
    base_len: usize,
    /// Folders of that path that a `..` has taken away.
    ups: u8,
    /// That folder's node in its view.
    node: Option<u64>,
    /// A `..` has taken a name away that may have been a link's, which leads elsewhere.
    is_textual: bool,
    policy: Policy,
    /// Index of the rule that says so.
    rule: Option<usize>,
}

impl AbsolutePath {
    /// Resolves `path`, relative to `dir`, without looking at links; `None` when it is too long.
    pub(crate) fn new(config: &Config, host: &dyn Host, dir: RawFd, path: &CStr) -> Option<Self> {
        if path.count_bytes() >= PATH_MAX {
            return None; // However much shorter it is than it looks.
        }
        let policy = policy_without_rules(dir, path);
        let bytes = Room::take()?;
        let mut this = Self::empty(bytes, policy);
        let path = path.to_bytes();
        let is_relative = !path.starts_with(b"/");
        if is_relative {
            this.start_at(host, dir)?;
        }
        let (mut named, mut rest) = (0u32, path);
        if is_in_full(path) {
            this.push(path)?;
            rest = &[];
        }
        for part in rest.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => {
                    let slash = this.bytes().iter().rposition(|byte| *byte == b'/');
                    this.len = slash.unwrap_or(0);
                    this.is_textual |= named > 0;
                    if named == 0 {
                        this.base_len = this.len;
                        this.ups = this.ups.checked_add(1)?;
                    }
                    named = named.saturating_sub(1);
                }
                _ => {
                    named += 1;
                    this.push(b"/")?;
                    this.push(part)?;
                }
            }
        }
        if policy != Policy::Kernels {
            (this.policy, this.rule) = config.rules().of(this.bytes());
        }
        // An empty one is that of the open file itself, which may be no folder.
        if is_relative && !path.is_empty() {
            this.stay_in(config, host, dir);
        }
        Some(this)
    }

    fn empty(bytes: Room, policy: Policy) -> Self {
        let (len, base_len, ups, node) = (0, 0, 0, None);
        Self { bytes, len, base_len, ups, node, is_textual: false, policy, rule: None }
    }

    /// Has a remote path lead nowhere if another folder has the place of the one that it is
    /// relative to: another node may rename folders.
    fn stay_in(&mut self, config: &Config, host: &dyn Host, dir: RawFd) {
        let is_in_view = |base: &[u8]| config.rules().of(base).0 == Policy::Remote;
        if self.is_remote() && self.bytes.get(..self.base_len).is_some_and(is_in_view) {
            self.node = host.node_in_view(dir);
        }
    }

    /// The path of what is open, or of a name in an open folder, which no link is part of.
    pub(crate) fn in_folder(
        config: &Config,
        host: &dyn Host,
        folder: RawFd,
        name: Option<&[u8]>,
    ) -> Option<Self> {
        let mut this = Self::empty(Room::take()?, Policy::Hybrid);
        this.start_at(host, folder)?;
        if let Some(name) = name {
            this.push(b"/")?;
            this.push(name)?;
        }
        (this.policy, this.rule) = config.rules().of(this.bytes());
        // By itself it may be a file, which nothing is relative to.
        if name.is_some() {
            this.stay_in(config, host, folder);
        }
        Some(this)
    }

    /// The path as the daemon is sent it.
    pub(crate) fn asked(&self) -> Asked<'_> {
        self.asked_for(self.bytes())
    }

    /// The same of the folder that it is in.
    pub(crate) fn asked_folder(&self) -> Asked<'_> {
        self.asked_for(self.folder())
    }

    fn asked_for<'a>(&self, text: &'a [u8]) -> Asked<'a> {
        let base = || {
            let rest_len = u16::try_from(text.len().checked_sub(self.base_len)?).ok()?;
            Some(Base { number: self.node?, born: 0, rest_len, ups: self.ups })
        };
        Asked { base: base(), text }
    }

    /// The path's bytes, without a final NUL.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self.bytes.get(..self.len) {
            None | Some([]) => b"/",
            Some(bytes) => bytes,
        }
    }

    /// The path of the folder that it is in.
    pub(crate) fn folder(&self) -> &[u8] {
        let slash = self.bytes().iter().rposition(|byte| *byte == b'/');
        let above = slash.and_then(|slash| self.bytes().get(..slash));
        above.filter(|above| !above.is_empty()).unwrap_or(b"/")
    }

    /// Its last name.
    pub(crate) fn name(&self) -> &[u8] {
        self.bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    pub(crate) fn policy(&self) -> Policy {
        self.policy
    }

    pub(crate) fn rule(&self) -> Option<usize> {
        self.rule
    }

    /// The process itself opens what it names.
    pub(crate) fn stay_here(&mut self) {
        self.policy = Policy::Hybrid;
    }

    /// True if it is the path only if none of the names that a `..` takes away is a link's.
    pub(crate) fn is_textual(&self) -> bool {
        self.is_textual
    }

    pub(crate) fn is_remote(&self) -> bool {
        self.policy == Policy::Remote
    }

    /// The path as a C string in `space`.
    pub(crate) fn terminated<'a>(&self, space: &'a mut Path) -> io::Result<&'a CStr> {
        let bytes = self.bytes();
        space.get_mut(..bytes.len()).ok_or(Errno::NAMETOOLONG)?.copy_from_slice(bytes);
        *space.get_mut(bytes.len()).ok_or(Errno::NAMETOOLONG)? = 0;
        CStr::from_bytes_until_nul(space).map_err(|_| Errno::INVAL)
    }

    fn start_at(&mut self, host: &dyn Host, dir: RawFd) -> Option<()> {
        if dir == CURRENT_FOLDER {
            self.len = host.current_folder(&mut self.bytes[..])?;
        } else {
            let mut name = [0; 32];
            let link = link_of(dir, &mut name)?;
            self.len = read_link(host, link, &mut self.bytes[..])?;
            self.be_named();
        }
        if self.bytes() == b"/" {
            self.len = 0;
        }
        self.base_len = self.len;
        Some(())
    }

    /// Is the folder that the descriptor is the name of, if it is one's.
    fn be_named(&mut self) {
        let end = self.bytes().strip_suffix(NAME_LINK_END).map(<[u8]>::len);
        if let Some(end) = end.filter(|_| self.bytes().starts_with(NAME_LINK)) {
            let start = NAME_LINK.len() - 1;
            self.bytes.copy_within(start..end, 0);
            self.len = end - start;
        }
    }

    fn push(&mut self, part: &[u8]) -> Option<()> {
        debug_assert!(self.len <= PATH_MAX, "the path is in its room");
        // The kernel and the daemon need a NUL behind it.
        let room = self.bytes.get_mut(self.len..PATH_MAX - 1)?;
        room.get_mut(..part.len())?.copy_from_slice(part);
        self.len += part.len();
        Some(())
    }
}

/// A descriptor that is nothing but a folder's name: calls may be relative to it.
///
/// # Errors
///
/// `ENAMETOOLONG`; those of making it.
pub(crate) fn name_of_folder(path: &[u8], space: &mut Path) -> io::Result<OwnedFd> {
    let prefix = NAME_LINK.strip_prefix(b"/memfd:").and_then(|rest| rest.strip_suffix(b"/"));
    let parts = prefix.unwrap_or_default().iter().chain(path).chain(&[0]);
    let mut places = space.iter_mut();
    for byte in parts {
        *places.next().ok_or(Errno::NAMETOOLONG)? = *byte;
    }
    let name = CStr::from_bytes_until_nul(&space[..]).map_err(|_| Errno::INVAL)?;
    // The kernel takes a longer name for an invalid argument.
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    fs::memfd_create(name, flags).map_err(|errno| match errno {
        Errno::INVAL => Errno::NAMETOOLONG,
        errno => errno,
    })
}

/// True if a descriptor is nothing but a folder's name.
pub(crate) fn is_name_of_folder(host: &dyn Host, fd: RawFd) -> bool {
    let (mut name, mut begin) = ([0; 32], [0; NAME_LINK.len()]);
    let len = link_of(fd, &mut name).and_then(|link| read_link(host, link, &mut begin));
    len == Some(begin.len()) && begin == NAME_LINK
}

/// True if a path is one as the daemon is sent; of some that are, false.
fn is_in_full(path: &[u8]) -> bool {
    let is_odd = |pair: &[u8]| matches!(pair, [b'/', b'/' | b'.']);
    path.starts_with(b"/") && !path.ends_with(b"/") && !path.windows(2).any(is_odd)
}

/// Makes a call that has room for paths in a frame of its own. Without rules nobody needs it, and a
/// program's threads and signal handlers may have little stack.
#[cold]
#[inline(never)]
pub(crate) fn apart<T>(call: impl FnOnce() -> T) -> T {
    call()
}

fn read_link(host: &dyn Host, link: &CStr, target: &mut [u8]) -> Option<usize> {
    fs::readlinkat_raw(host.borrow(CURRENT_FOLDER), link, target).ok()
}
