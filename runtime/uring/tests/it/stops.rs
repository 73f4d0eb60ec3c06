//! Bytes at which the kernel stops a receive, though more have come.

use std::{io, mem::MaybeUninit, os::fd::AsFd, time::Duration};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, send, sendmsg},
    pipe::{PipeFlags, pipe_with},
};
use uring::Stream;

use crate::{
    sockets::{Net, receive},
    support::DEADLINE,
};

/// Receives four bytes that have come, and of which the executor has heard.
fn receive_four(net: &mut Net, stream: &mut Stream) -> Vec<u8> {
    net.core.run(net.core.executor.handle().sleep(Duration::from_millis(5)));
    net.core.run(receive(stream, 4, 9)).expect("no error")
}

#[test]
fn what_follows_urgent_bytes_is_received_without_more_being_sent() {
    let mut net = Net::new();
    let mut listener = net.tcp_listener();
    let [ours, mut theirs] = net.pair(&mut listener);
    for (bytes, flags) in [(&b"ab!"[..], SendFlags::OOB), (b"cd", SendFlags::empty())] {
        send(&ours, bytes, flags).expect("room");
    }
    // The kernel takes the urgent byte out of the stream.
    assert_eq!(receive_four(&mut net, &mut theirs), b"abcd");
}

#[test]
fn descriptors_that_are_passed_are_closed_and_hold_nothing_up() {
    let mut net = Net::new();
    let [_, mut listener] = net.listeners();
    let [ours, mut theirs] = net.pair(&mut listener);
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
    let (fds, mut space) = ([writer.as_fd()], [MaybeUninit::uninit(); 64]);
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(&ours, &[io::IoSlice::new(b"ab")], &mut control, SendFlags::empty()).expect("room");
    send(&ours, b"cd", SendFlags::empty()).expect("room");

    assert_eq!(receive_four(&mut net, &mut theirs), b"abcd");

    drop(writer);
    let mut end = [PollFd::new(&reader, PollFlags::empty())];
    let deadline = Timespec::try_from(DEADLINE).expect("a short time");
    assert_eq!(poll(&mut end, Some(&deadline)), Ok(1), "somebody has the writing end");
}
