//! Interrupted and concurrent calls: daemons that die in the middle of one, and calls beside each
//! other.

use std::{future::poll_fn, pin::Pin, task::Poll};

use super::*;
use storage::names::{Attributes, FileCall};

pub(super) type Call<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Has a call begun and no more than `steps` of what it waits for done; whether that was all.
pub(super) async fn dies_after(steps: usize, mut call: Call<'_>) -> bool {
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

/// Runs two calls side by side, the second one `delay` steps later.
pub(super) async fn beside(mut calls: [Call<'_>; 2], mut delay: usize) {
    let mut are_done = [false; 2];
    poll_fn(|context| {
        for (number, (call, is_done)) in calls.iter_mut().zip(&mut are_done).enumerate() {
            if number == 1 && delay > 0 {
                delay -= 1;
                context.waker().wake_by_ref();
            } else if !*is_done {
                *is_done = call.as_mut().poll(context).is_ready();
            }
        }
        if are_done == [true; 2] { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

impl World {
    /// The daemon dies `steps` into a call, and another comes; whether the call was complete.
    pub(super) fn die_in(&mut self, steps: usize, call: Call<'_>) -> bool {
        let is_done = self.executor.run_until(dies_after(steps, call));
        // The one engine thread is done with what it had.
        let machine = self.machine.clone();
        self.executor.run_until(machine.call(|| Ok(()))).expect("done");
        is_done
    }
}

pub(super) fn bytes(len: usize, byte: u8) -> uring::Buffers {
    let buffer = Heap::buffer(len);
    buffer.store(&vec![byte; len]);
    buffer.into()
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
        // As it was, or shorter: nothing before its end is lost.
        assert!(found.len() >= 10 && found.iter().all(|byte| *byte == 7), "{steps}");
        assert!(!is_done || found.len() == 10, "{steps}");
        if is_done {
            break;
        }
    }
}

/// Attributes, a name that goes, and the task for the first byte change one node.
#[test]
fn the_first_byte_of_a_file_is_kept_beside_calls_on_its_names() {
    let mut world = World::new(1);
    for round in 0..1500 {
        let open = world.open("a", OFlags::CREATE | OFlags::RDWR).expect("made");
        let (files, is_unlinked) = (world.files.clone(), round % 2 == 0);
        let write: Call<'_> = Box::pin(async {
            files.write(&open, 0, bytes(100, 9)).await.expect("room");
        });
        let other: Call<'_> = Box::pin(async {
            if is_unlinked {
                files.name(NameCall::Unlink { path: name("a") }).await.expect("there");
            } else {
                files.on(&open, FileCall::Set(Attributes::Mode(0o600))).await.expect("its own");
            }
        });
        let calls = if round % 4 < 2 { [write, other] } else { [other, write] };
        world.executor.run_until(beside(calls, 0));
        let status = world.status(&open);
        let mode = if is_unlinked { 0o644 } else { 0o600 };
        assert_eq!((status.size, status.mode & 0o777), (100, mode), "{round}");
        world.name(NameCall::Unlink { path: name("a") }).ok(); // It may be gone.
    }
}

#[test]
fn what_a_write_left_that_a_daemon_died_in_is_not_seen_when_a_file_grows() {
    let mut was_left = false;
    for steps in 1.. {
        let mut world = World::new(1);
        // The next task has the same bytes behind its end if nobody looks.
        let open = world.open("a", OFlags::CREATE | OFlags::RDWR).expect("made");
        world.write(&open, 0, &[7; 10]);
        let files = world.files.clone();
        let call = Box::pin(async {
            files.write(&open, 10, bytes(3000, 9)).await.expect("room");
        });
        let is_done = world.die_in(steps, call);
        drop((files, open));
        was_left |= std::fs::read(world.path()).expect("there").contains(&9);
        world.restart(false);
        let call = NameCall::Stat { path: name("a"), follow: true };
        let status = world.name(call).expect("there");
        let len = Status::decode(&status).expect("a status").size;
        world.name(NameCall::Truncate { path: name("a"), len: 4000 }).expect("there");
        let open = world.open("a", OFlags::RDONLY).expect("there");
        let found = world.read(&open);
        let nines = found.iter().filter(|byte| **byte == 9).count();
        assert_eq!((nines, found.len()), (if len == 10 { 0 } else { 3000 }, 4000), "{steps}");
        if is_done {
            break;
        }
    }
    assert!(was_left, "no daemon died between a write and its record");
}

#[test]
fn a_truncation_beside_a_write_is_before_it_or_after_it() {
    for delay in 0..12 {
        let mut world = World::new(1);
        let open = world.open("a", OFlags::CREATE | OFlags::RDWR).expect("made");
        world.write(&open, 0, &[7; 3000]);
        let files = world.files.clone();
        let write: Call<'_> = Box::pin(async {
            files.write(&open, 0, bytes(4000, 9)).await.expect("room");
        });
        let cut: Call<'_> = Box::pin(async { files.truncate(&open, 0).await.expect("cut") });
        world.executor.run_until(beside([write, cut], delay));
        let found = world.read(&open);
        assert!(found.is_empty() || found == [9; 4000], "{delay}: {}", found.len());
    }
}

#[test]
fn appends_beside_each_other_are_in_turn_and_in_one_piece() {
    for delay in 0..6 {
        let mut world = World::new(1);
        let flags = OFlags::CREATE | OFlags::APPEND | OFlags::RDWR;
        let [one, other] = [(); 2].map(|()| world.open("a", flags).expect("made"));
        world.write(&one, 0, &[7; 3000]);
        let files = world.files.clone();
        let append = async |file: &Open, byte| {
            assert_eq!(files.write(file, 0, bytes(9000, byte)).await.expect("room"), 9000);
        };
        let calls: [Call<'_>; 2] = [Box::pin(append(&one, 8)), Box::pin(append(&other, 9))];
        world.executor.run_until(beside(calls, delay));
        let found = world.read(&one);
        let runs: Vec<_> = found.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect();
        assert_eq!(runs, [(7, 3000), (8, 9000), (9, 9000)], "{delay}");
    }
}

#[test]
fn an_append_beside_a_truncation_is_before_it_or_after_it() {
    for delay in 0..12 {
        let mut world = World::new(1);
        let flags = OFlags::CREATE | OFlags::APPEND | OFlags::RDWR;
        let open = world.open("a", flags).expect("made");
        world.write(&open, 0, &[7; 3000]);
        let files = world.files.clone();
        let append: Call<'_> = Box::pin(async {
            files.write(&open, 0, bytes(100, 9)).await.expect("room");
        });
        let cut: Call<'_> = Box::pin(async { files.truncate(&open, 0).await.expect("cut") });
        world.executor.run_until(beside([cut, append], delay));
        assert_eq!(world.read(&open), [9; 100], "{delay}");
    }
}

/// The journal of a physical file cannot be written any more, as on a device that fails.
fn break_journal(world: &World, task: u64) {
    let volume = &world.files.volumes[0].1;
    let unwritable = std::fs::File::open("/dev/null").expect("there");
    let journal = uring::File::new(unwritable.into()).expect("a file");
    volume.stream(task).expect("a task").member().begin(journal);
}

fn mend_journal(world: &World, task: u64) {
    let journal = world.folder.path().join("kept.sion.journal");
    let journal = std::fs::OpenOptions::new().read(true).write(true).open(journal);
    let journal = uring::File::new(journal.expect("there").into()).expect("a file");
    world.files.volumes[0].1.stream(task).expect("a task").member().begin(journal);
}

#[test]
fn a_length_that_could_not_be_written_down_is_as_before() {
    let mut world = World::new(1);
    let open = world.open("a", OFlags::CREATE | OFlags::RDWR).expect("made");
    world.write(&open, 0, &[7; 10_000]);
    break_journal(&world, 0);
    let files = world.files.clone();
    for len in [10, 5000, 15_000] {
        let cut = world.executor.run_until(files.truncate(&open, len));
        assert_eq!(cut.map_err(errno), Err(Errno::BADF), "{len}");
        assert!(world.read(&open) == [7; 10_000], "{len}");
    }
    mend_journal(&world, 0);
    drop((open, files));
    world.restart(false);
    let open = world.open("a", OFlags::RDONLY).expect("there");
    assert!(world.read(&open) == [7; 10_000]);
}

#[test]
fn names_whose_record_could_not_be_written_are_as_before() {
    let mut world = World::new(1);
    for file in ["a", "b"] {
        let open = world.open(file, OFlags::CREATE | OFlags::RDWR).expect("made");
        world.write(&open, 0, file.as_bytes());
    }
    let before = world.files.volumes[0].1.tree.borrow().stream();
    let held = world.open("b", OFlags::RDONLY).expect("there");
    break_journal(&world, 0);
    let folder = |path: &str| NameCall::MakeDir { path: name(path), mode: 0o755 };
    for call in [
        NameCall::Unlink { path: name("b") },
        NameCall::Rename { from: name("a"), to: name("b"), flags: 0 },
        NameCall::Rename { from: name("d"), to: name("e"), flags: 0 },
        NameCall::Rename { from: name("a"), to: name("d"), flags: 2 },
        NameCall::RemoveDir { path: name("d") },
        NameCall::Link { from: name("a"), to: name("c") },
        folder("new"),
        NameCall::Set { path: name("a"), follow: true, what: Attributes::Mode(0o600) },
    ] {
        assert_eq!(errno(world.name(call.clone()).expect_err("unwritable")), Errno::BADF);
        let names = world.files.volumes[0].1.tree.borrow().stream();
        assert!(names.starts_with(&before), "{call:?}");
    }
    let made = world.open("c", OFlags::CREATE | OFlags::WRONLY).map(drop);
    assert_eq!(errno(made.expect_err("unwritable")), Errno::BADF);
    // One that builds on another.
    let files = world.files.clone();
    let make = async |path| assert!(files.name(folder(path)).await.is_err());
    let calls: [Call<'_>; 2] = [Box::pin(make("new")), Box::pin(make("new/a"))];
    world.executor.run_until(beside(calls, 0));
    mend_journal(&world, 0);
    assert!(world.files.volumes[0].1.tree.borrow().stream().starts_with(&before));
    world.name(folder("new")).expect("free");
    world.name(NameCall::Unlink { path: name("b") }).expect("there");
    assert_eq!(world.read(&held), b"b");
    drop((held, files));
    world.restart(false);
    world.model.insert("a".to_owned(), b"a".to_vec());
    world.check();
    assert_eq!(world.name(folder("new")).map_err(errno), Err(Errno::EXIST));
}

#[test]
fn a_multifile_is_closed_also_when_its_first_change_has_just_come() {
    for delay in 0..4 {
        let mut world = World::new(1);
        world.restart(true);
        let files = world.files.clone();
        let change: Call<'_> = Box::pin(async {
            let made = NameCall::MakeDir { path: name("new"), mode: 0o755 };
            files.name(made).await.expect("free");
        });
        let close: Call<'_> = Box::pin(async { assert!(files.close().await.0.is_empty()) });
        world.executor.run_until(beside([change, close], delay));
        let journal = world.folder.path().join("kept.sion.journal");
        assert!(!journal.exists(), "{delay}");
    }
}

/// Its name goes, it is closed before that is written down, and another file gets a task.
#[test]
fn a_file_whose_name_may_still_be_there_keeps_its_bytes() {
    for steps in 1.. {
        let mut world = World::new(1);
        let open = world.open("a", OFlags::CREATE | OFlags::RDWR).expect("made");
        world.write(&open, 0, &[7; 3000]);
        let files = world.files.clone();
        let unlink = Box::pin(async {
            files.name(NameCall::Unlink { path: name("a") }).await.expect("there");
        });
        let next = Box::pin(async {
            drop(open);
            let flags = (OFlags::CREATE | OFlags::RDWR).bits();
            let call = OpenCall { path: name("b"), flags, mode: 0o644, inode: 0 };
            let (other, _) = files.open(call).await.expect("made");
            files.write(&other, 0, bytes(3000, 9)).await.expect("room");
        });
        let is_done = world.die_in(steps, Box::pin(beside([unlink, next], 0)));
        drop(files);
        world.restart(false);
        match world.open("a", OFlags::RDONLY) {
            Ok(open) => assert!(world.read(&open) == [7; 3000], "{steps}"),
            Err(error) => assert_eq!(errno(error), Errno::NOENT),
        }
        if is_done {
            break;
        }
    }
}

/// As the loss of a node leaves it, of which nothing was synced.
#[test]
fn a_gap_in_the_journal_of_one_file_is_its_own_alone() {
    use std::os::unix::fs::FileExt as _;
    let mut world = World::new(1);
    for file in ["a", "b"] {
        let open = world.open(file, OFlags::CREATE | OFlags::RDWR).expect("made");
        world.write(&open, 0, &[7; LEN_MAX]);
    }
    let journal = world.folder.path().join("kept.sion.journal");
    let journal = std::fs::File::options().write(true).open(journal).expect("there");
    // The second block of the second task, of four.
    journal.write_all_at(&[0; 16], (4 + 1) * 16).expect("there");
    world.restart(false);
    for (file, len) in [("a", 4096), ("b", LEN_MAX)] {
        let open = world.open(file, OFlags::RDWR).expect("there");
        assert!(world.read(&open) == vec![7; len], "{file}");
        world.write(&open, len + 5000, &[7]);
        assert_eq!(world.read(&open)[len..], [&[0; 5000][..], &[7]].concat(), "{file}");
    }
}

/// The loss of a node leaves names as they were synced last, and other bytes as they came to the
/// disk by themselves.
#[test]
fn a_file_whose_name_may_be_on_the_disk_keeps_its_bytes() {
    use std::os::unix::fs::FileExt as _;
    let mut world = World::new(1);
    let open = world.open("a", OFlags::CREATE | OFlags::RDWR).expect("made");
    world.write(&open, 0, &[7; 3000]);
    drop(open);
    let (names_at, chunk_len, _) = world.files.volumes[0].1.stream(0).expect("names").reach();
    let journal = world.folder.path().join("kept.sion.journal");
    // The names, and how long they are.
    let kept = [(world.path(), names_at, chunk_len), (journal, 0, 16)].map(|(path, at, len)| {
        let file = std::fs::File::options().read(true).write(true).open(path).expect("there");
        let mut bytes = vec![0; usize::try_from(len).expect("short")];
        file.read_exact_at(&mut bytes, at).expect("there");
        (file, at, bytes)
    });
    world.name(NameCall::Unlink { path: name("a") }).expect("there");
    for file in ["b", "c"] {
        let open = world.open(file, OFlags::CREATE | OFlags::RDWR).expect("made");
        world.write(&open, 0, &[9; 3000]);
    }
    world.files.volumes = Rc::new([]);
    for (file, at, bytes) in kept {
        file.write_all_at(&bytes, at).expect("there");
    }
    world.start();
    let open = world.open("a", OFlags::RDONLY).expect("there");
    assert!(world.read(&open) == [7; 3000]);
}

/// Files that come and go: the names of the ones that stay are written anew, more than once.
#[test]
fn names_of_files_that_come_and_go_take_no_more_space_whoever_dies() {
    let churn = |world: &mut World| {
        world.open("b", OFlags::CREATE | OFlags::WRONLY).expect("made");
        world.name(NameCall::Unlink { path: name("b") }).expect("there");
    };
    let places = |world: &World| {
        let records = &world.files.volumes[0].1.records;
        (records.begin_at.get(), records.end_at.get())
    };
    let mut world = World::new(1);
    let open = world.open("a", OFlags::CREATE | OFlags::RDWR).expect("made");
    world.write(&open, 0, b"kept");
    drop(open);
    let (mut rewritten, mut longest) = (Vec::new(), 0);
    for round in 0..400 {
        let (before, end) = places(&world);
        churn(&mut world);
        if places(&world).0 != before {
            rewritten.push(round);
        }
        longest = longest.max(end);
        if round % 150 == 0 {
            world.restart(round == 150);
        }
    }
    assert!(rewritten.len() > 5 && longest < 40_000, "{rewritten:?} {longest}");
    world.restart(true);
    let status = world.name(NameCall::Stat { path: name("a"), follow: true }).expect("there");
    assert_eq!(Status::decode(&status).expect("a status").size, 4);

    // Just before the first time, which is behind the old names, and the second, which is before.
    for round in &rewritten[..2] {
        for steps in 1.. {
            let mut world = World::new(1);
            let open = world.open("a", OFlags::CREATE | OFlags::RDWR).expect("made");
            world.write(&open, 0, b"kept");
            drop(open);
            (0..*round).for_each(|_| churn(&mut world));
            let files = world.files.clone();
            let (flags, mode) = ((OFlags::CREATE | OFlags::WRONLY).bits(), 0o644);
            let call = Box::pin(async {
                let call = OpenCall { path: name("b"), flags, mode, inode: 0 };
                drop(files.open(call).await.expect("made"));
                files.name(NameCall::Unlink { path: name("b") }).await.expect("there");
                files.name(NameCall::MakeDir { path: name("new"), mode }).await.expect("free");
            });
            let is_done = world.die_in(steps, call);
            drop(files);
            world.restart(false);
            let mut stat =
                |path: &str| world.name(NameCall::Stat { path: name(path), follow: true });
            assert!(stat("a").is_ok() && stat("d").is_ok(), "{round} {steps}");
            assert!(!is_done || stat("new").is_ok() && stat("b").is_err(), "{round} {steps}");
            let open = world.open("a", OFlags::RDONLY).expect("there");
            assert_eq!(world.read(&open), b"kept");
            if is_done {
                break;
            }
        }
    }
}

/// A checkpoint that takes the place of the one before, as programs write them.
#[test]
fn a_file_takes_the_place_of_another_or_does_not_while_names_are_written_anew() {
    let take_place = async |files: &Coalesced, dies: bool| {
        let (path, flags) = (name("e/a"), (OFlags::CREATE | OFlags::WRONLY).bits());
        drop(files.open(OpenCall { path, flags, mode: 0o644, inode: 0 }).await.expect("made"));
        let call = NameCall::Rename { from: name("e/a"), to: name("a"), flags: 0 };
        let renamed = files.name(call).await;
        assert!(dies || renamed.is_ok());
    };
    let begin = |world: &World| world.files.volumes[0].1.records.begin_at.get();
    let (mut deaths, mut was_rewritten) = ([0; 2], 0);
    for durable in [false, true] {
        let is_at = |world: &World| {
            let volume = &world.files.volumes[0].1;
            volume.is_durable.set(durable);
        };
        let (mut rewritten, mut world) = (Vec::new(), World::new(1));
        is_at(&world);
        for round in 0..150 {
            let (before, files) = (begin(&world), world.files.clone());
            world.executor.run_until(take_place(&files, false));
            if begin(&world) != before {
                rewritten.push(round);
            }
        }
        was_rewritten += rewritten.len();
        for round in &rewritten[..2] {
            for steps in 1.. {
                let mut world = World::new(1);
                is_at(&world);
                let files = world.files.clone();
                for _ in 0..*round {
                    world.executor.run_until(take_place(&files, false));
                }
                let is_done = world.die_in(steps, Box::pin(take_place(&files, true)));
                drop(files);
                world.restart(false);
                let volume = Rc::clone(&world.files.volumes[0].1);
                let (a, other) = (find_inode(&volume, "/a"), find_inode(&volume, "/e/a"));
                // Either name has an inode of its own, and none has two names or no name.
                assert!(a.is_some() && a != other, "{durable} {round} {steps}");
                let tree = volume.tree.borrow();
                let files = usize::from(other.is_some()) + 1;
                let is_file = |inode: &u64| tree.node(*inode).is_some_and(|node| node.is_file());
                let found = (1..1000).filter(is_file).count();
                assert_eq!(found, files, "{durable} {round} {steps}");
                assert!(!is_done || other.is_none(), "{durable} {round} {steps}");
                deaths[usize::from(other.is_some())] += 1;
                if is_done {
                    break;
                }
            }
        }
    }
    assert!(was_rewritten > 4 && deaths.iter().all(|count| *count > 8), "{deaths:?}");
}

fn find_inode(volume: &Volume, path: &str) -> Option<u64> {
    find(&volume.tree.borrow(), path).expect("its folder is there").inode
}
