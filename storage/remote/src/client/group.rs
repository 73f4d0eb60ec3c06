//! The ways of one executor to several servers, and which of them a request takes.
//!
//! The servers of a group serve one folder of a file system that their nodes share: each is only a
//! gate to it, and any of them can do anything. What the choice decides is how the load is spread,
//! and that requests about one file, which take one gate, are executed in one order.
//!
//! By file, a server is chosen by *rendezvous*: each has a weight for a path, and the heaviest
//! serves it. So all clients agree without talking, and where a server is missing only its own
//! files go elsewhere. By rank, a process takes the server of its number, modulo their count. What
//! is opened to append goes by file in any case: there the order, and what is known after the death
//! of a server, depend on there being one gate.

use std::{cell::RefCell, collections::BTreeSet, io, rc::Rc};

use executor::{Class, Handle};
use rustix::fs::OFlags;
use storage::names::{Answer, NameCall, OpenCall};
use wire::Status;

use super::{
    file::{self, RemoteFile, together},
    opened::Move,
    requests::{Client, Network},
};

/// How requests are spread over servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// By the file's path; every client agrees on a file's server.
    #[default]
    File,
    /// By the process's number in its parallel job; by file where it has none.
    Rank,
}

/// Servers of one folder.
pub struct Group<N> {
    /// In the order of their addresses.
    members: RefCell<Vec<Member<N>>>,
    spread: Spread,
}

/// A server of a group.
pub struct Member<N> {
    /// Its address.
    pub name: String,
    /// The way to it.
    pub client: Rc<Client<N>>,
}

impl<N> Clone for Member<N> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), client: Rc::clone(&self.client) }
    }
}

impl<N: Network> Group<N> {
    /// A group of servers, of which there is at least one.
    pub fn new(members: Vec<Member<N>>, spread: Spread) -> Self {
        debug_assert!(!members.is_empty(), "a group has a server");
        Self { members: RefCell::new(members), spread }
    }

    /// Begins to look for the servers.
    pub fn start(&self, handle: &Handle)
    where
        N: 'static,
    {
        for Member { client, .. } in &*self.members.borrow() {
            handle.spawn(Class::Latency, Rc::clone(client).run());
        }
    }

    /// Waits until at least one server is reached, and does without those that are not by then.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub async fn reach(&self) -> io::Result<()> {
        let members = self.members.borrow().clone();
        members.iter().for_each(|member| member.client.is_awaited.set(true));
        let reached = self.reach_any(&members).await;
        members.iter().for_each(|member| member.client.is_awaited.set(false));
        reached
    }

    async fn reach_any(&self, members: &[Member<N>]) -> io::Result<()> {
        loop {
            let tried = together(members.iter().map(|member| member.client.tried())).await;
            if tried.iter().any(|outcome| matches!(outcome, Ok(true))) {
                let reached = members.iter().zip(&tried).filter(|(member, outcome)| {
                    let why = match outcome {
                        Ok(true) => return true,
                        Ok(false) => "it cannot be reached",
                        Err(why) => &why.to_string(),
                    };
                    let name = &member.name;
                    tracing::warn!("{name}: server unreachable; continuing with the others: {why}");
                    member.client.abandon();
                    false
                });
                self.members.replace(reached.map(|(member, _)| member.clone()).collect());
                return Ok(());
            }
            let reasons =
                tried.iter().map(|outcome| outcome.as_ref().err().map(ToString::to_string));
            if let Some(reasons) = reasons.collect::<Option<BTreeSet<_>>>() {
                let reasons: Vec<_> = reasons.into_iter().collect();
                return Err(io::Error::other(reasons.join("; or ")));
            }
        }
    }

    /// True if one of the servers is lost.
    pub fn has_lost_one(&self) -> bool {
        self.members.borrow().iter().any(|member| member.client.is_dead())
    }

    /// The servers' addresses.
    pub fn names(&self) -> Vec<String> {
        self.members.borrow().iter().map(|member| member.name.clone()).collect()
    }

    /// Opens a file for a process, by its number at this daemon and in its parallel job; the path
    /// starts at the servers' root.
    ///
    /// # Errors
    ///
    /// Those of `open`; `EIO`: the server is lost.
    pub async fn open(
        &self,
        process: Option<u16>,
        rank: Option<u32>,
        call: OpenCall,
    ) -> io::Result<(Rc<RemoteFile<N>>, Status)> {
        let appends = OFlags::from_bits_retain(call.flags).contains(OFlags::APPEND);
        let rank = rank.filter(|_| !appends);
        RemoteFile::open(&self.client(rank, call.path.to_bytes()), process, call).await
    }

    /// Executes a call on names for the process of this number.
    ///
    /// # Errors
    ///
    /// Those of the call; `EIO`: the server is lost.
    pub async fn name(&self, rank: Option<u32>, mut call: NameCall) -> io::Result<Answer> {
        let [subject, _] = call.paths_mut();
        let client = self.client(rank, subject.map_or(&[][..], |path| path.to_bytes()));
        // Any of the servers may have files open below that name.
        let members = self.members.borrow().clone();
        let Some(change) = Move::of(&call) else {
            let removed = match &call {
                NameCall::Unlink { path } => Some(path.clone()),
                _ => None,
            };
            let answer = file::name(&client, call).await?;
            if let Some(name) = removed {
                members.iter().for_each(|member| member.client.unlink(name.to_bytes()));
            }
            return Ok(answer);
        };
        members.iter().for_each(|member| member.client.begin_move(&change));
        let answer = file::name(&client, call).await;
        members.iter().for_each(|member| member.client.end_move(&change, answer.is_ok()));
        answer
    }

    /// Waits until everything is answered, and ends the sessions.
    pub async fn leave(&self) {
        let members = self.members.borrow().clone();
        together(members.iter().map(|member| member.client.leave())).await;
    }

    fn client(&self, rank: Option<u32>, path: &[u8]) -> Rc<Client<N>> {
        let members = self.members.borrow();
        let by_rank = rank.filter(|_| self.spread == Spread::Rank);
        let index = match by_rank {
            Some(rank) => rank as usize % members.len().max(1),
            None => heaviest(members.iter().map(|member| member.name.as_bytes()), path),
        };
        let member = members.get(index).expect("a group is never empty");
        Rc::clone(&member.client)
    }
}

/// The index of the server that a path belongs to.
fn heaviest<'a>(servers: impl Iterator<Item = &'a [u8]>, path: &[u8]) -> usize {
    let weighed = servers.enumerate().map(|(index, name)| (weight(name, path), index));
    weighed.max().map_or(0, |(_, index)| index)
}

/// FNV-1a over the server's address, a zero, and the path, mixed so that every bit of it counts.
/// All clients have to agree: it is part of the protocol (`docs/reference/protocol.md`, section 8).
fn weight(server: &[u8], path: &[u8]) -> u64 {
    let bytes = server.iter().chain(&[0]).chain(path);
    let mut hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
    }
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVERS: [&[u8]; 3] = [b"tcp://io1:7777", b"tcp://io2:7777", b"tcp://io3:7777"];

    fn chosen(servers: &[&[u8]], file: u32) -> usize {
        heaviest(servers.iter().copied(), format!("/run/out.{file:05}").as_bytes())
    }

    #[test]
    fn files_are_spread_evenly() {
        let mut counts = [0; SERVERS.len()];
        for file in 0..3000 {
            counts[chosen(&SERVERS, file)] += 1;
        }
        assert!(counts.iter().all(|count| (900..=1100).contains(count)), "{counts:?}");
    }

    #[test]
    fn only_the_files_of_a_missing_server_go_elsewhere() {
        for file in 0..1000 {
            let (all, two) = (chosen(&SERVERS, file), chosen(&SERVERS[..2], file));
            assert!(two == all || all == 2, "file {file}: {all}, then {two}");
        }
    }

    #[test]
    fn every_client_of_every_version_agrees() {
        assert_eq!(weight(b"tcp://io1:7777", b"/run/out.00000"), 0x77ee_2c72_9958_d673);
    }
}
