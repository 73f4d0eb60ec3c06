//! `/dev/fuse` as a source of the executor: takes requests, and has each answered by a task.
//!
//! To look costs a system call. So an executor that polls looks at every turn only while requests
//! come, and else from time to time; one that parks is woken by the device.

use std::{io, os::fd::AsFd as _, rc::Rc, time::Duration};

use executor::{Armed, Class, Instant, Periodic, Source};
use fuse::{IN_HEADER_LEN, Operation, Request, WRITE_HEADER_LEN};
use rustix::io::Errno;
use storage::verdict::errno;
use uring::{Buffer, Heeded, read_message};

use super::View;

/// How long after a request the next one is looked for at every turn.
const ACTIVE: Duration = Duration::from_micros(500);
/// An executor that polls looks this often otherwise.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// The requests of one view.
pub(super) struct Device {
    view: Rc<View>,
    /// Where the next request's data will be; `None` while every buffer has data.
    data: Option<Buffer>,
    look: Periodic,
    /// When a request came last.
    came_at: Option<Instant>,
    last_look: Look,
    /// A park may have ended because of a request.
    was_armed: bool,
    /// `None` once the view was unmounted, and nobody has a file of it: the device would end every
    /// park.
    heeded: Option<Heeded>,
}

/// Outcome of the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Nothing,
    Requests,
    /// Requests, as the one before: there may be several at a time.
    Crowd,
}

impl Device {
    pub(super) fn new(view: Rc<View>, heeded: Heeded) -> Self {
        let look = Periodic::new(&view.core.handle, LOOK_EVERY);
        let (data, came_at) = (None, None);
        Self {
            view,
            data,
            look,
            came_at,
            last_look: Look::Nothing,
            was_armed: false,
            heeded: Some(heeded),
        }
    }

    /// Takes the next request, and begins to answer it.
    fn take(&mut self) -> bool {
        loop {
            if self.heeded.is_none() {
                return false;
            }
            self.data = self.data.take().or_else(|| self.view.pool.try_take());
            let Some(data) = &self.data else { return false };
            let mut head = [0; WRITE_HEADER_LEN];
            match read_message(self.view.mounted.device.as_fd(), &mut head, data) {
                Ok(len) => {
                    self.begin(&head, len);
                    return true;
                }
                Err(why) => match errno(&why) {
                    // Whoever asked was killed before it was taken.
                    Errno::NOENT | Errno::INTR => {}
                    Errno::NODEV => self.heeded = None,
                    _ => {
                        if why.kind() != io::ErrorKind::WouldBlock {
                            tracing::warn!("requests of a view are lost: {why}");
                            self.heeded = None;
                        }
                        return false;
                    }
                },
            }
        }
    }

    fn begin(&mut self, head: &[u8; WRITE_HEADER_LEN], len: usize) {
        let Some(data) = self.data.take() else { return };
        let rest = data.prefix(len.saturating_sub(WRITE_HEADER_LEN));
        let mut bytes = head.get(..len).unwrap_or(head).to_vec();
        // Of a request to write this is the data, which stays where it is.
        let is_write = bytes.get(4).is_some_and(|opcode| *opcode == 16);
        if !is_write {
            rest.append_to(&mut bytes);
        }
        let Some(request) = Request::decode(&bytes) else {
            self.refuse(&bytes);
            self.data = Some(data);
            return;
        };
        if !matches!(request.operation, Operation::Write(_)) {
            self.data = Some(data);
        }
        let handle = self.view.core.handle.clone();
        handle.start(Class::Latency, Rc::clone(&self.view).serve(request, rest));
    }

    /// Refuses a request that makes no sense.
    fn refuse(&self, bytes: &[u8]) {
        let unique = bytes.get(8..16).and_then(|unique| unique.try_into().ok());
        let Some(unique) = unique.filter(|_| bytes.len() >= IN_HEADER_LEN) else { return };
        let is_big = cfg!(target_endian = "big");
        let unique = if is_big { u64::from_be_bytes(unique) } else { u64::from_le_bytes(unique) };
        let message = fuse::error(unique, Errno::NOSYS.raw_os_error());
        // Nobody is left to tell.
        rustix::io::write(&self.view.mounted.device, &message).ok();
    }

    /// True if a request came lately.
    fn is_active(&self) -> bool {
        let lately = self.view.core.handle.lately();
        self.came_at.is_some_and(|at| lately.saturating_since(at) < ACTIVE)
    }

    /// Takes what is there, up to `budget` requests. One alone, unless more came right behind the
    /// last: who sent it mostly waits for the answer, and to look again costs a system call.
    fn take_all(&mut self, budget: usize) -> usize {
        let budget = if self.last_look == Look::Crowd { budget } else { budget.min(1) };
        let mut count = 0;
        while count < budget && self.take() {
            count += 1;
        }
        if count > 0 {
            self.came_at = Some(self.view.core.handle.lately());
        }
        self.last_look = match self.last_look {
            _ if count == 0 => Look::Nothing,
            Look::Requests | Look::Crowd if count == budget => Look::Crowd,
            _ => Look::Requests,
        };
        count
    }
}

impl Source for Device {
    fn poll(&mut self, budget: usize) -> usize {
        let heeded = self.heeded.as_ref();
        let was_woken =
            std::mem::take(&mut self.was_armed) && heeded.is_none_or(Heeded::may_have_ended_park);
        if !was_woken && !self.is_active() && !self.look.tick() {
            return 0;
        }
        self.take_all(budget)
    }

    /// While requests come, one that is there saves the park; any other ends it.
    fn arm(&mut self) -> Armed {
        self.was_armed = true;
        if self.is_active() && self.take_all(1) > 0 { Armed::Busy } else { Armed::Waits }
    }
}
