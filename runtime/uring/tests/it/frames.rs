//! Admission: buffers as permits, frames within what was granted.

use std::{
    cell::{Cell, RefCell},
    io,
    pin::pin,
    rc::Rc,
};

use executor::{Class, Credit};
use fastrand::Rng;
use rustix::pipe::{PipeFlags, pipe_with};
use uring::{Buffer, Choice, File, FrameError, Frames, Pool, Receiver, Sender, Stages, Stream};

use crate::{
    sockets::{Net, pattern},
    support::{Core, buffer, content, dirs, open, poll},
};

const HEAD: usize = 8;

/// The peer's end, and frames of ours.
fn frames(net: &mut Net, pool: &Pool) -> (Stream, Frames<Receiver, HEAD>, Sender) {
    frames_on(net, pool, &Stages::default())
}

fn frames_on(
    net: &mut Net,
    pool: &Pool,
    stages: &Stages,
) -> (Stream, Frames<Receiver, HEAD>, Sender) {
    let mut listener = net.tcp_listener();
    let [peer, ours] = net.pair(&mut listener);
    let (receiver, sender) = ours.split();
    (peer, Frames::new(receiver, pool.clone(), stages), sender)
}

/// A head that tells its body's length, and the body.
fn frame(body: &[u8]) -> Vec<Buffer> {
    vec![buffer(&(body.len() as u64).to_le_bytes()), buffer(body)]
}

fn body_len(head: &[u8; HEAD]) -> Result<usize, FrameError> {
    usize::try_from(u64::from_le_bytes(*head)).map_err(|_| FrameError::BadHead)
}

/// All bodies until the stream ends.
async fn bodies(frames: &mut Frames<Receiver, HEAD>) -> Result<Vec<Vec<u8>>, FrameError> {
    let mut all = Vec::new();
    let mut whole = Vec::new();
    while let Some(frame) = frames.next(body_len).await? {
        assert_eq!(frame.at, whole.len());
        let lent = frame.lent.iter().flat_map(|lent| lent.as_slice());
        frame.body.iter().chain(lent).for_each(|part| whole.extend(content(part)));
        if frame.is_last {
            assert_eq!(body_len(&frame.head).ok(), Some(whole.len()));
            all.push(std::mem::take(&mut whole));
        }
    }
    Ok(all)
}

#[test]
fn frames_of_every_length_arrive_whole_however_they_are_cut() {
    let mut rng = Rng::with_seed(7);
    let mut net = Net::new();
    for round in 0..40 {
        // With the shorter buffers, longer bodies come in parts.
        let pool = Pool::new([300_000, 35_000][round % 2], 2);
        let mut listener = net.tcp_listener();
        let [mut peer, ours] = net.pair(&mut listener);
        let (receiver, _sender) = ours.split();
        let frames = Frames::new(receiver, pool.clone(), &Stages::default());
        let mut frames = frames.with_own_up_to([0, 5000][round / 2 % 2]);
        let lens = [0, 1, 100, 4096, 16_384, 16_385, 70_000, 300_000];
        let sent: Vec<_> = (0..rng.usize(1..30)).map(|_| pattern(lens[rng.usize(..8)])).collect();
        let stream: Vec<u8> =
            sent.iter().flat_map(|body| frame(body)).flat_map(|part| content(&part)).collect();
        let mut cuts: Vec<_> = (0..rng.usize(..20)).map(|_| rng.usize(..=stream.len())).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let parts: Vec<_> = cuts.windows(2).map(|cut| buffer(&stream[cut[0]..cut[1]])).collect();
        net.core.executor.handle().spawn(Class::Latency, async move {
            for part in parts {
                peer.send_all(vec![part]).await.expect("no error");
            }
        });
        let received = net.core.run(bodies(&mut frames)).expect("no error");
        assert!(received == sent);
        assert_eq!(pool.available(), 2);
    }
}

/// Frames that a peer may still send.
struct Grants(Cell<u32>);

impl Grants {
    fn spend(&self) -> Result<(), FrameError> {
        self.0.set(self.0.get().checked_sub(1).ok_or(FrameError::NoCredit)?);
        Ok(())
    }
}

#[test]
fn a_peer_that_sends_without_credit_is_cut_off() {
    let mut net = Net::new();
    let pool = Pool::new(16, 4);
    let (mut peer, mut frames, _sender) = frames(&mut net, &pool);
    let grants = Grants(Cell::new(2));
    let admit = |head: &_| grants.spend().and_then(|()| body_len(head));
    let error = net.core.run(async {
        for _ in 0..3 {
            peer.send_all(frame(b"abc")).await.expect("sent");
        }
        frames.next(admit).await.expect("a credit");
        frames.next(admit).await.expect("a credit");
        frames.next(admit).await
    });
    assert!(matches!(error, Err(FrameError::NoCredit)), "{error:?}");
    assert_eq!(pool.available(), 4);
    // Though the other half is still there. What it sent and nobody read makes it a reset.
    let end = net.core.run(peer.receive(&buffer(b"-").into()));
    assert!(end.is_err() || end.is_ok_and(|len| len == 0));
}

/// However long it is, a frame takes one credit, and no more buffers than there are.
#[test]
fn a_part_waits_for_a_buffer_and_costs_no_credit() {
    let mut net = Net::new();
    let pool = Pool::new(16, 1);
    let (mut peer, mut frames, _sender) = frames(&mut net, &pool);
    let body: Vec<u8> = (0..40).collect();
    let grants = Grants(Cell::new(1));
    let admit = |head: &_| grants.spend().and_then(|()| body_len(head));
    let parts = net.core.run(async {
        peer.send_all(frame(&body)).await.expect("sent");
        let mut parts = Vec::new();
        for _ in 0..3 {
            let part = frames.next(admit).await.expect("a credit").expect("a part");
            assert_eq!(pool.available(), 0);
            parts.push((part.at, part.body.map(|body| content(&body)), part.is_last));
        }
        parts
    });
    let part = |range: std::ops::Range<usize>, is_last| {
        (range.start, body.get(range).map(<[u8]>::to_vec), is_last)
    };
    assert_eq!(parts, [part(0..16, false), part(16..32, false), part(32..40, true)]);
}

#[test]
fn a_senseless_head_ends_the_stream() {
    let mut net = Net::new();
    let pool = Pool::new(16, 1);
    let (mut peer, mut frames, _sender) = frames(&mut net, &pool);
    let error = net.core.run(async {
        peer.send_all(frame(b"abc")).await.expect("sent");
        frames.next(|_| Err(FrameError::BadHead)).await
    });
    assert!(matches!(error, Err(FrameError::BadHead)), "{error:?}");
}

#[test]
fn a_stream_that_ends_within_a_frame_is_broken() {
    let mut net = Net::new();
    let lens = [1, HEAD - 1, HEAD, HEAD + 1, 9_000];
    for (len, own) in lens.into_iter().flat_map(|len| [(len, 0), (len, 10_000)]) {
        let whole = frame(&vec![1; 20_000 - own]);
        let whole: Vec<u8> = whole.iter().flat_map(content).collect();
        let pool = Pool::new(20_000, 1);
        let (mut peer, frames, _sender) = frames(&mut net, &pool);
        let mut frames = frames.with_own_up_to(own);
        let error = net.core.run(async {
            peer.send_all(vec![buffer(&whole[..len])]).await.expect("sent");
            drop(peer);
            frames.next(body_len).await
        });
        let Err(FrameError::Broken(error)) = error else { panic!("{error:?}") };
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{len}");
        assert_eq!(pool.available(), 1);
    }
}

/// Pressure reaches the sender: with every buffer held, nothing more is taken in.
#[test]
fn a_frame_waits_for_a_buffer() {
    let mut net = Net::new();
    let pool = Pool::new(16, 1);
    let (mut peer, mut frames, _sender) = frames(&mut net, &pool);
    let (taken, held) = (Rc::new(Cell::new(0)), pool.try_take());
    assert!(pool.try_take().is_none());
    let count = Rc::clone(&taken);
    net.core.executor.handle().spawn(Class::Latency, async move {
        while let Ok(Some(_)) = frames.next(body_len).await {
            count.set(count.get() + 1);
        }
    });
    net.core.run(peer.send_all(frame(b"a"))).expect("sent");
    net.core.turn_a_while();
    assert_eq!(taken.get(), 0);

    drop(held);

    net.core.turn_until(|| taken.get() == 1);
}

/// Bodies that are bounded by their number need no buffer of the pool.
#[test]
fn a_small_body_can_have_memory_of_its_own() {
    let mut net = Net::new();
    let pool = Pool::new(16, 1);
    let (mut peer, frames, _sender) = frames(&mut net, &pool);
    let (mut frames, held) = (frames.with_own_up_to(4), pool.try_take());
    let parts = net.core.run(async {
        peer.send_all(frame(b"abcd")).await.expect("sent");
        let own = frames.next(body_len).await.expect("no error").expect("a frame");
        peer.send_all(frame(b"abcde")).await.expect("sent");
        drop(held);
        let pooled = frames.next(body_len).await.expect("no error").expect("a frame");
        [own, pooled].map(|frame| content(&frame.body.expect("a body"))).to_vec()
    });
    assert_eq!(parts, [&b"abcd"[..], b"abcde"]);
    assert_eq!(pool.available(), 1);
}

/// Small bodies stay where they were received, or have memory of their own when many are held:
/// nothing else comes there as long as somebody has them.
#[test]
fn small_bodies_that_are_held_are_not_overwritten() {
    const LEN: usize = 8000;
    let mut net = Net::new();
    let pool = Pool::new(16, 1);
    let (mut peer, frames, _sender) = frames(&mut net, &pool);
    let mut frames = frames.with_own_up_to(LEN);
    let sent: Vec<_> = (0..250).map(|number| [number; LEN]).collect();
    let parts = sent.iter().flat_map(|body| frame(body)).collect();
    net.core.executor.handle().spawn(Class::Latency, async move {
        peer.send_all(parts).await.expect("no error");
    });
    let mut rng = Rng::with_seed(7);
    let mut held: Vec<(u8, Buffer)> = Vec::new();
    net.core.run(async {
        for number in 0..250 {
            let frame = frames.next(body_len).await.expect("no error").expect("a frame");
            held.push((number, frame.body.expect("a body")));
            if held.len() > [3, 200][usize::from(number > 50)] {
                held.swap_remove(rng.usize(..held.len()));
            }
        }
    });
    for (number, body) in held {
        assert!(content(&body) == [number; LEN], "{number}");
    }
}

/// Received and unserved data is bounded, and all that was sent is received in the end.
#[test]
fn streams_in_turns_hold_no_more_together_than_is_to_be_served() {
    const BUDGET: u64 = 8 << 20;
    const STREAMS: usize = 16;
    const FRAMES: usize = 128;
    const LEN: usize = 8192;
    let mut net = Net::new();
    let pool = Pool::new(LEN, STREAMS * FRAMES);
    let stages = Stages::in_turns(&net.core.executor.handle());
    let (held, is_serving) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(false)));
    let count = Rc::new(Cell::new(0));
    for _ in 0..STREAMS {
        let (mut peer, mut frames, sender) = frames_on(&mut net, &pool, &stages);
        let (held, is_serving, count) = (held.clone(), is_serving.clone(), count.clone());
        let handle = net.core.executor.handle();
        handle.spawn(Class::Latency, async move {
            let sent = (0..FRAMES).flat_map(|_| frame(&[1; LEN])).collect();
            peer.send_all(sent).await.expect("sent");
        });
        handle.spawn(Class::Latency, async move {
            while let Ok(Some(_)) = frames.next(body_len).await {
                let share = frames.share(LEN);
                count.set(count.get() + 1);
                held.borrow_mut().extend(share.filter(|_| !is_serving.get()));
            }
            drop(sender);
        });
    }
    let sum = || held.borrow().iter().map(Credit::amount).sum::<u64>();
    // All but a part of a turn.
    net.core.turn_until(|| sum() > BUDGET - (256 << 10));
    net.core.turn_a_while();
    assert!(sum() <= BUDGET, "{}", sum());

    is_serving.set(true);
    held.take();

    net.core.turn_until(|| count.get() == STREAMS * FRAMES);
}

/// Peers that stop within a frame keep nobody from receiving, however many they are.
#[test]
fn a_stream_that_stalls_holds_no_turn() {
    let mut net = Net::new();
    let pool = Pool::new(16, 20);
    let stages = Stages::in_turns(&net.core.executor.handle());
    let stalled: Vec<_> = (0..16)
        .map(|_| {
            let (mut peer, mut frames, sender) = frames_on(&mut net, &pool, &stages);
            net.core.run(peer.send_all(vec![buffer(&9_u64.to_le_bytes())])).expect("sent");
            net.core.executor.handle().spawn(Class::Latency, async move {
                frames.next(body_len).await.ok();
            });
            (peer, sender)
        })
        .collect();
    net.core.turn_until(|| pool.available() == 4);
    let (mut peer, mut frames, _sender) = frames_on(&mut net, &pool, &stages);
    let share = net.core.run(async {
        peer.send_all(frame(b"abc")).await.expect("sent");
        frames.next(body_len).await.expect("no error");
        frames.share(3)
    });
    assert_eq!(share.map(|share| share.amount()), Some(3));
    drop(stalled);
}

/// A client that does not use its buffers keeps only its own part, however many there are.
#[test]
fn a_member_takes_an_equal_part_of_a_pool() {
    let pool = Pool::reserve(16, 4);
    let (one, other) = (pool.join(), pool.join());
    let mut held: Vec<_> = std::iter::from_fn(|| one.try_take()).collect();
    assert_eq!(held.len(), 2);
    let others: Vec<_> = std::iter::from_fn(|| other.try_take()).collect();
    assert_eq!((others.len(), pool.available()), (2, 0));
    drop(others);
    assert!(one.try_take().is_none());

    drop(other);

    held.extend(std::iter::from_fn(|| one.try_take()));
    assert_eq!(held.len(), 4);
    let more: Vec<_> = (0..8).map(|_| pool.join()).collect();
    held.truncate(1);
    assert!(one.try_take().is_none(), "more members than buffers: one each");
    assert!(more[0].try_take().is_some());
}

/// In order of asking, but for those that hold their part; one that gives up keeps nobody waiting.
#[test]
fn who_asked_first_has_the_next_buffer() {
    let pool = Pool::reserve(16, 2);
    let members = [(); 2].map(|()| pool.join());
    let mut held = members.each_ref().map(|member| member.try_take());
    assert!(held.iter().all(Option::is_some));
    let mut first = Box::pin(members[0].take());
    let mut second = Box::pin(members[1].take());
    let mut third = Box::pin(members[1].take());
    for waiting in [&mut first, &mut second, &mut third] {
        assert!(poll(waiting.as_mut()).is_pending());
    }

    held[1] = None;

    assert!(poll(first.as_mut()).is_pending(), "it holds its part");
    assert!(poll(third.as_mut()).is_pending(), "the second asked earlier");
    drop(second);
    assert!(poll(third.as_mut()).is_ready());
}

#[test]
fn buffers_are_reused_last_in_first_out_and_never_while_a_clone_is_held() {
    let pool = Pool::new(5000, 3);
    let [first, second] = [(); 2].map(|()| pool.try_take().expect("free"));
    let address = |buffer: &Buffer| buffer.bytes().as_ptr();
    assert_eq!(address(&first).align_offset(4096), 0);
    assert_eq!(address(&second).align_offset(4096), 0);
    let (used, clone) = (address(&second), second.suffix(10));
    drop(second);
    assert_eq!(pool.available(), 1);

    drop(clone);

    assert_eq!(address(&pool.try_take().expect("free")), used);
    assert_eq!(first.len(), 5000);
}

/// A read in flight owns its permit: dropping the future must not hand the buffer out again.
#[test]
fn dropped_read_keeps_its_permit() {
    let Some(mut core) = Core::with_ring() else { return };
    let pool = Pool::new(4096, 1);
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
    let file = File::new(read).expect("a descriptor");
    {
        let permit = pool.try_take().expect("free");
        assert!(poll(pin!(core.engines.read(&file, 0, permit.into()))).is_pending());
    }
    core.turn_a_while();
    assert_eq!(pool.available(), 0);

    drop(write);

    core.turn_until(|| pool.available() == 1);
}

#[test]
fn buffers_of_a_pool_are_written_and_read_like_others() {
    for choice in [Choice::Auto, Choice::Uring, Choice::Threads] {
        for dir in dirs() {
            let mut core = Core::new(choice, 1);
            let pool = Pool::new(8192, 2);
            let engines = core.engines.clone();
            let file = open(&dir, "pooled").expect("a file");
            let [from, into] = [(); 2].map(|()| pool.try_take().expect("free"));
            from.store(&pattern(8192));
            let done = core.run(async {
                let written = engines.write(&file, 0, from.prefix(5000).into()).await?;
                let read = engines.read(&file, 1000, into.suffix(100).into()).await?;
                io::Result::Ok((written, read))
            });
            assert_eq!(done.expect("no error"), (5000, 4000));
            assert_eq!(content(&into)[100..4100], pattern(8192)[1000..5000]);
        }
    }
}
