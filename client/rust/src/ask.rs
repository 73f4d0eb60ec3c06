//! Requests about names, and others that come or go with more than fits into an entry: that lies in
//! the lane's buffer.

use core::ffi::CStr;

use rustix::{
    fd::RawFd,
    fs::OFlags,
    io::{self, Errno},
};
use shm::copy::{copy_in, copy_out};
use wire::{PathPair, Request};

use crate::{
    client::{Client, Status},
    connection::Lane,
    names::Name,
    paths::{AbsolutePath, Asked, apart},
    rules::CURRENT_FOLDER,
};

/// The value of a completion, and the lane that has what else was answered.
pub(crate) type Answer = (u64, Lane<'static>);

impl Client {
    /// Sends a request with a path and what belongs behind that. `None`: there is no daemon, or it
    /// was lost on the way. `EXDEV`: a link leads to what is not remote.
    pub(crate) fn ask(
        &'static self,
        path: Asked<'_>,
        extra: &[u8],
        request: impl Fn(u32) -> Request,
    ) -> Option<io::Result<Answer>> {
        match self.ask_once(path, extra.into(), &request)? {
            Err(Errno::XDEV) if !path.text.is_empty() => {
                apart(|| self.ask_beyond_links(path.text, extra, &request))
            }
            answer => Some(answer),
        }
    }

    fn ask_once(
        &'static self,
        path: Asked<'_>,
        extra: Asked<'_>,
        request: impl FnOnce(u32) -> Request,
    ) -> Option<io::Result<Answer>> {
        let mut lane = self.connection()?.lane().ok()?;
        if !path.text.is_empty() && self.is_confined() {
            return Some(Err(Errno::ACCESS));
        }
        let path_len = match put(&lane, path, extra) {
            Ok(len) => len,
            Err(errno) => return Some(Err(errno)),
        };
        let value = lane.call(request(path_len)).ok()?;
        Some(value.map(|value| (value, lane)))
    }

    /// Sends a request again, by the path to which the kernel follows links that a server does not:
    /// those of the folder, then one at the end.
    fn ask_beyond_links(
        &'static self,
        path: &[u8],
        extra: &[u8],
        request: &impl Fn(u32) -> Request,
    ) -> Option<io::Result<Answer>> {
        for is_whole in [false, true] {
            if is_whole && !follows(&request(0)) {
                break;
            }
            let Some(found) = self.beyond_links(CURRENT_FOLDER, path, is_whole) else { continue };
            if !found.is_remote() {
                break;
            }
            if found.bytes() == path {
                continue;
            }
            match self.ask_once(found.asked(), extra.into(), request) {
                Some(Err(Errno::XDEV)) => {}
                answer => return answer,
            }
        }
        Some(Err(Errno::XDEV))
    }

    /// As [`ask`](Self::ask), about what nobody but the daemon knows.
    pub(crate) fn ask_remote(
        &'static self,
        path: Asked<'_>,
        extra: &[u8],
        request: impl Fn(u32) -> Request,
    ) -> io::Result<Answer> {
        self.ask(path, extra, request).unwrap_or_else(|| Err(self.unserved()))
    }

    /// Asks for a status.
    pub(crate) fn status(
        &'static self,
        path: Asked<'_>,
        request: impl Fn(u32) -> Request,
    ) -> Option<io::Result<Status>> {
        let answer = self.ask(path, &[], request)?;
        Some(answer.and_then(|(_, lane)| status_in(&lane)))
    }

    /// Sends a request about one path, if a rule delegates it.
    pub(crate) fn about_path(
        &'static self,
        dir: RawFd,
        path: &CStr,
        request: impl Fn(u32) -> Request,
    ) -> Option<io::Result<()>> {
        self.if_ruled(|| {
            let name = self.delegated_path(dir, path)?;
            let done = self.ask(name.asked(), &[], request).map(|done| done.map(drop));
            self.unless_elsewhere(&name, done.or(name.is_remote().then_some(Err(Errno::IO))))
        })
    }

    /// Sends a request about two paths, of which a rule delegates the second.
    pub(crate) fn about_paths(
        &'static self,
        from: Asked<'_>,
        to: &AbsolutePath,
        request: impl FnOnce(PathPair) -> Request,
    ) -> Option<io::Result<()>> {
        let to_len = u32::try_from(to.asked().len()).ok()?;
        let request = |from_len| request(PathPair { from_len, to_len });
        let done = self.ask_once(from, to.asked(), request).map(|done| done.map(drop));
        self.unless_elsewhere(to, done.or(to.is_remote().then_some(Err(Errno::IO))))
    }

    /// Sends a request about a remote path, with `extra` bytes behind it.
    pub(crate) fn about_remote(
        &'static self,
        dir: RawFd,
        path: &CStr,
        extra: &[u8],
        request: impl Fn(u32) -> Request,
    ) -> Option<io::Result<Answer>> {
        if !self.has_remote() {
            return None;
        }
        apart(|| {
            let absolute = self.remote_path(dir, path)?;
            let checked = self.check_folder(Name { dir, path });
            let answer = checked.and_then(|()| self.ask_remote(absolute.asked(), extra, request));
            self.unless_elsewhere(&absolute, Some(answer))
        })
    }

    /// Sends a request about a remote open file.
    pub(crate) fn about_remote_file(
        &'static self,
        fd: RawFd,
        extra: &[u8],
        request: impl Fn(u32) -> Request,
    ) -> Option<io::Result<Answer>> {
        let file = self.has_remote().then(|| self.locked_fd(fd)).flatten()?;
        let kept = file.state.link().filter(|_| file.state.is_remote())?.keep();
        drop(file);
        Some(self.ask_remote(Asked::default(), extra, |_| request(kept.number())))
    }
}

/// True if a link at the end of a request's path is followed.
fn follows(request: &Request) -> bool {
    match request {
        Request::Open { flags, .. } => {
            let flags = OFlags::from_bits_retain(*flags);
            !flags.contains(OFlags::NOFOLLOW) && !flags.contains(OFlags::CREATE.union(OFlags::EXCL))
        }
        Request::Stat { follow, .. }
        | Request::SetOwner { follow, .. }
        | Request::SetTimes { follow, .. } => *follow,
        Request::Truncate { .. }
        | Request::Access { .. }
        | Request::SetMode { .. }
        | Request::FileSystem { .. } => true,
        _ => false,
    }
}

/// Puts a path, and what belongs behind it, into the lane's buffer; returns the path's length.
fn put(lane: &Lane<'_>, path: Asked<'_>, extra: Asked<'_>) -> io::Result<u32> {
    let mut rest = lane.buffer();
    for Asked { base, text } in [path, extra] {
        let base = base.map(|base| base.encode());
        for bytes in [base.as_ref().map_or(&[][..], |base| base), text] {
            let (head, behind) = rest.split_at_checked(bytes.len()).ok_or(Errno::NAMETOOLONG)?;
            copy_in(head, bytes);
            rest = behind;
        }
    }
    u32::try_from(path.len()).map_err(|_| Errno::NAMETOOLONG)
}

/// The status that an answer has put into a lane's buffer.
pub(crate) fn status_in(lane: &Lane<'_>) -> io::Result<Status> {
    let mut bytes = [0; Status::LEN];
    copy_out(&mut bytes, lane.buffer());
    Status::decode(&bytes).ok_or(Errno::IO)
}
