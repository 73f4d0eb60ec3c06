//! Packets of one client, and how they are stored.
//!
//! Short packets that came together and continue each other in the file are stored together: each
//! by itself would cost more than its copy. No packet waits for another that has not come yet.

use std::{future::poll_fn, mem, pin::pin, rc::Rc};

use executor::{Class, Credit};
use uring::{BUFFER_COUNT_MAX, Buffer, Buffers};

use super::{answers::Answers, server::Server};

/// Longer packets are stored one by one.
const GATHERED_LEN_MAX: usize = 64 << 10;
/// No more bytes are stored together: all of them are still in the cache.
const GROUP_LEN: usize = 256 << 10;

/// Packets of one client.
pub(crate) struct Intake {
    server: Rc<Server>,
    answers: Rc<Answers>,
    /// Came last, and more may follow.
    group: Group,
}

/// Packets that continue each other.
#[derive(Default)]
struct Group {
    at: u64,
    len: usize,
    bodies: Vec<Buffer>,
    /// Of the client's turn.
    shares: Vec<Credit>,
}

impl Intake {
    pub(crate) fn new(server: Rc<Server>, answers: Rc<Answers>) -> Self {
        Self { server, answers, group: Group::default() }
    }

    /// Waits for what comes next, and has stored meanwhile what has come.
    pub(crate) async fn wait<T>(&mut self, next: impl Future<Output = T>) -> T {
        let mut next = pin!(next);
        poll_fn(|context| {
            let next = next.as_mut().poll(context);
            if next.is_pending() {
                self.store();
            }
            next
        })
        .await
    }

    /// Takes a packet, or a part of one, and its share of the client's turn.
    pub(crate) fn take(&mut self, at: u64, body: Buffer, share: Option<Credit>) {
        self.server.meter.start();
        if !self.group.is_continued_by(at, &body) {
            self.store();
        }
        self.group.add(at, body, share);
        if self.group.is_full() {
            self.store();
        }
    }

    /// Has what has come stored. What can't be stored is never served: the run does not end, and is
    /// given up by who started it.
    pub(crate) fn store(&mut self) {
        let Group { mut at, len, bodies, shares } = mem::take(&mut self.group);
        let Some(bodies) = Buffers::new(bodies) else { return };
        let (server, answers) = (Rc::clone(&self.server), Rc::clone(&self.answers));
        self.server.handle.start(Class::Latency, async move {
            let half = server.halves.serve(len as u64).await;
            if let Some(file) = &server.file {
                let mut left = Some(bodies);
                while let Some(bodies) = left {
                    match server.engines.write(file, at, bodies.clone()).await {
                        Ok(len @ 1..) => (at, left) = (at + len as u64, bodies.suffix(len)),
                        _ => return,
                    }
                }
            }
            drop((half, shares));
            server.count(len);
            answers.served(len);
        });
    }
}

impl Group {
    fn is_continued_by(&self, at: u64, body: &Buffer) -> bool {
        self.at + self.len as u64 == at && self.len + body.len() <= GROUP_LEN
    }

    fn add(&mut self, at: u64, body: Buffer, share: Option<Credit>) {
        if self.bodies.is_empty() {
            self.at = at;
        }
        self.len += body.len();
        self.bodies.push(body);
        self.shares.extend(share);
    }

    /// True if no other packet is to be stored with these.
    fn is_full(&self) -> bool {
        let is_long = self.bodies.last().is_some_and(|last| last.len() > GATHERED_LEN_MAX);
        is_long || self.len >= GROUP_LEN || self.bodies.len() == BUFFER_COUNT_MAX
    }
}

#[cfg(test)]
mod tests {
    use uring::Heap;

    use super::*;

    fn group(at: u64, lens: &[usize]) -> Group {
        let mut group = Group::default();
        for len in lens {
            group.add(at + group.len as u64, Heap::buffer(*len), None);
        }
        group
    }

    #[test]
    fn what_continues_a_group_is_stored_with_it_up_to_its_length() {
        let group = group(100, &[10, 20]);
        let is_continued_by = |at, len| group.is_continued_by(at, &Heap::buffer(len));
        assert!(is_continued_by(130, 1) && is_continued_by(130, GROUP_LEN - 30));
        assert!(!is_continued_by(130, GROUP_LEN - 29));
        assert!(!is_continued_by(129, 1) && !is_continued_by(131, 1) && !is_continued_by(100, 1));
    }

    #[test]
    fn a_group_waits_for_more_unless_it_is_full_or_its_packet_long() {
        for (lens, is_full) in [
            (vec![GATHERED_LEN_MAX], false),
            (vec![GATHERED_LEN_MAX + 1], true),
            (vec![GROUP_LEN / 4; 3], false),
            (vec![GROUP_LEN / 4; 4], true),
            (vec![1; BUFFER_COUNT_MAX - 1], false),
            (vec![1; BUFFER_COUNT_MAX], true),
        ] {
            assert_eq!(group(0, &lens).is_full(), is_full, "{} packets", lens.len());
        }
    }
}
