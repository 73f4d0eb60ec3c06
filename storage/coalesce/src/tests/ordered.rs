//! Pieces of one file that are written together, as a drain has them under way.

use std::{cell::Cell, future::poll_fn, task::Poll};

use super::{
    between::{Call, bytes},
    *,
};

const PIECE_LEN: usize = 700;
const PIECES: u8 = 8;

/// Has calls begun one after the other, and goes on with any of those that are left, until so many
/// are answered, and for some `steps` more: how long they take is the machine's.
async fn mixed(mut calls: Vec<Call<'_>>, rng: &mut Rng, answers: usize, mut steps: usize) {
    let (mut begun, mut answered) = (0, 0);
    poll_fn(|context| {
        while (answered < answers || steps > 0) && !calls.is_empty() {
            if answered >= answers {
                steps -= 1;
            }
            let is_next = begun < calls.len() && rng.bool();
            let index = if is_next { begun } else { rng.usize(..begun.max(1)) };
            begun = begun.max(index + 1);
            if calls.get_mut(index).is_some_and(|call| call.as_mut().poll(context).is_ready()) {
                drop(calls.remove(index));
                begun -= 1;
                answered += 1;
            }
            if rng.u8(..4) == 0 {
                context.waker().wake_by_ref();
                return Poll::Pending; // Whatever they wait for is done meanwhile.
            }
        }
        Poll::Ready(())
    })
    .await;
}

#[test]
fn a_daemon_that_dies_leaves_no_hole_before_the_last_bytes() {
    let (mut whole, mut cut) = (0, 0);
    for seed in 0..500 {
        let mut world = World::shaped(seed, SMALL);
        let mut rng = Rng::with_seed(seed);
        let open = world.open("a", OFlags::CREATE | OFlags::WRONLY).expect("made");
        let files = world.files.clone();
        let answered_len = Cell::new(0);
        let calls = (0..PIECES).map(|number| -> Call<'_> {
            let (files, open, answered_len) = (&files, &open, &answered_len);
            let at = u64::from(number) * PIECE_LEN as u64;
            Box::pin(async move {
                let piece = bytes(PIECE_LEN, number + 1);
                assert_eq!(files.write(open, at, piece).await.expect("room"), PIECE_LEN);
                let end = PIECE_LEN * (usize::from(number) + 1);
                answered_len.set(answered_len.get().max(end));
            })
        });
        // All are answered in two worlds of ten.
        let (answers, steps) = (rng.u8(..PIECES + 2).min(PIECES), rng.usize(..200));
        world.executor.run_until(mixed(calls.collect(), &mut rng, answers.into(), steps));
        let machine = world.machine.clone();
        world.executor.run_until(machine.call(|| Ok(()))).expect("done");
        drop((files, open));
        world.restart(false);
        let open = world.open("a", OFlags::RDONLY).expect("there");
        let found = world.read(&open);
        let expected = (0..).map(|at| u8::try_from(at / PIECE_LEN + 1).unwrap_or(0));
        assert!(found.iter().copied().eq(expected.take(found.len())), "{seed}: {found:?}");
        assert!(found.len() >= answered_len.get(), "{seed}: what was answered is there");
        match found.len() / PIECE_LEN {
            0 => {}
            count if count < PIECES.into() => cut += 1,
            _ => whole += 1,
        }
    }
    assert!(whole > 50 && cut > 50, "{whole} whole, {cut} cut");
}
