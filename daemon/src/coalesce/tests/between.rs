//! What happens within calls: daemons that die in the middle of one.

use std::{future::poll_fn, pin::Pin, task::Poll};

use super::*;

type Call<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Has a call begun and no more than `steps` of what it waits for done; whether that was all.
async fn dies_after(steps: usize, mut call: Call<'_>) -> bool {
    let mut left = steps;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        call.as_mut().poll(context).map(|()| true)
    })
    .await
}

impl World {
    /// The daemon dies `steps` into a call, and another comes; whether the call was complete.
    fn die_in(&mut self, steps: usize, call: Call<'_>) -> bool {
        let is_done = self.executor.run_until(dies_after(steps, call));
        // The one engine thread is done with what it had.
        let machine = self.machine.clone();
        self.executor.run_until(machine.call(|| Ok(()))).expect("done");
        is_done
    }
}

#[test]
fn a_truncation_that_a_daemon_dies_in_leaves_a_multifile_that_opens() {
    for steps in 1.. {
        let mut world = World::new(1);
        let open = world.open("a", OFlags::CREATE | OFlags::RDWR).expect("made");
        world.write(&open, 0, &[7; LEN_MAX]);
        let files = world.files.clone();
        let call = Box::pin(async { files.truncate(&open, 10).await.expect("cut") });
        let is_done = world.die_in(steps, call);
        drop((files, open));
        world.restart(false);
        let open = world.open("a", OFlags::RDONLY).expect("there");
        let found = world.read(&open);
        assert!(found.starts_with(&[7; 10]), "{steps}");
        assert!(!is_done || found.len() == 10, "{steps}");
        if is_done {
            break;
        }
    }
}
