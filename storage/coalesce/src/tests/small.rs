//! Small files in dense physical files, whoever dies: those that come together, and those that
//! outgrow their chunk.

use std::os::unix::fs::FileExt as _;

use uring::{Buffer, Heap};

use super::{between::dies_after, *};
use crate::{dense::Small, opening::now};

/// Bytes with those of another file right behind, as clients leave them, or elsewhere.
fn pieces(lens: &[usize], beside: bool) -> Vec<Vec<Buffer>> {
    let place = |len: usize| len.next_multiple_of(16);
    let all = Heap::buffer(lens.iter().map(|len| place(*len)).sum());
    let mut at = 0;
    let mut piece = |(number, len): (usize, &usize)| {
        let found = if beside { all.suffix(at).prefix(*len) } else { Heap::buffer(*len) };
        at += place(*len);
        found.store(&vec![u8::try_from(number).expect("few") + 1; *len]);
        // In two parts.
        vec![found.prefix(len / 3), found.suffix(len / 3)]
    };
    lens.iter().enumerate().map(&mut piece).collect()
}

async fn keep(volume: &Volume, all: &[Vec<Buffer>]) -> io::Result<Vec<u64>> {
    let all: Vec<&[Buffer]> = all.iter().map(|data| &data[..]).collect();
    let mut tasks = Vec::new();
    let changing = volume.begin().await?;
    volume.keep(&all, &mut tasks).await?;
    drop(changing);
    Ok(tasks)
}

fn is_there(world: &mut World, task: u64, number: usize, len: usize) -> bool {
    let volume = Rc::clone(&world.files.volumes[0].1);
    let stream = volume.stream(task).expect("a task");
    let (buffer, mut found) = (Heap::buffer(len + 1), Vec::new());
    let into = buffer.clone().into();
    let read = stream.read(&world.machine, 0, &into);
    let read = world.executor.run_until(read).expect("readable");
    buffer.prefix(read).append_to(&mut found);
    found == vec![u8::try_from(number).expect("few") + 1; len]
}

#[test]
fn files_that_come_together_are_next_to_each_other_in_as_many_physical_files_as_it_takes() {
    let lens = [1, 16, 17, 100, 2000, 5, 64, 300, 1000, 30, 31, 32, 33, 40];
    for beside in [true, false] {
        let mut world = World::shaped(1, SMALL);
        let volume = Rc::clone(&world.files.volumes[0].1);
        let data = pieces(&lens, beside);
        let tasks = world.executor.run_until(keep(&volume, &data)).expect("room");
        for (number, (task, len)) in tasks.iter().zip(lens).enumerate() {
            assert!(is_there(&mut world, *task, number, len), "{number}");
            let (_, chunk_len, _) = volume.stream(*task).expect("a task").reach();
            assert_eq!(chunk_len, len.next_multiple_of(16) as u64);
        }
        // Of 4, 8, and 8 tasks.
        let name = |number| world.folder.path().join(format!("kept.sion.00000{number}"));
        assert!(name(3).exists() && !name(4).exists());
        let reach = |task: &u64| volume.stream(*task).expect("a task").reach().0;
        assert_eq!(reach(&tasks[1]), reach(&tasks[0]) + 16);
    }
}

/// As a job does that writes many small files again and again, and removes the old ones.
#[test]
fn files_that_come_together_fill_chunks_of_removed_ones() {
    for seed in 0..8 {
        let mut world = World::shaped(seed, SMALL);
        let volume = Rc::clone(&world.files.volumes[0].1);
        let (mut old, mut known) = (Vec::new(), 0);
        for round in 0..40 {
            let lens: Vec<_> = (0..30).map(|_| world.rng.usize(1..700)).collect();
            let data = pieces(&lens, world.rng.bool());
            let tasks = world.executor.run_until(keep(&volume, &data)).expect("room");
            for (number, (task, len)) in tasks.iter().zip(&lens).enumerate() {
                assert!(!old.contains(task), "{seed}: {number} is another file's");
                assert!(is_there(&mut world, *task, number, *len), "{seed}: {number}");
            }
            // The files of the round before are removed.
            volume.users.set_left(std::mem::replace(&mut old, tasks));
            let count = volume.streams.borrow().len();
            known = if round == 10 { count } else { known };
            assert!(round <= 10 || count <= known + 60, "{seed}: {count} after {round}");
        }
    }
}

#[test]
fn files_that_a_daemon_dies_over_leave_chunks_for_others() {
    let lens = [10, 20, 2000, 9000, 30, 40, 50];
    for steps in 1.. {
        let mut world = World::shaped(1, SMALL);
        let volume = Rc::clone(&world.files.volumes[0].1);
        let data = pieces(&lens, true);
        let call = async { drop(keep(&volume, &data).await.expect("room")) };
        let is_done = world.die_in(steps, Box::pin(call));
        drop(volume);
        world.restart(false);
        // No name leads to them.
        for name in ["a", "b", "d/a", "d/b"] {
            let open = world.open(name, OFlags::CREATE | OFlags::RDWR).expect("made");
            world.write(&open, 5, &[7; 20]);
            assert_eq!(world.read(&open), [&[0; 5][..], &[7; 20]].concat(), "{steps} {name}");
            drop(open);
            world.model.insert(name.to_owned(), [&[0; 5][..], &[7; 20]].concat());
        }
        for in_order in [false, true, true] {
            world.restart(in_order);
            world.check();
        }
        if is_done {
            break;
        }
    }
}

#[test]
fn a_file_that_outgrows_its_chunk_has_its_bytes_whoever_dies() {
    let mut moves = 0;
    for steps in 1.. {
        let mut world = World::shaped(1, SMALL);
        let open = world.open("a", OFlags::CREATE | OFlags::RDWR).expect("made");
        world.write(&open, 0, &[7; 100]);
        let other = world.open("b", OFlags::CREATE | OFlags::RDWR).expect("made");
        world.write(&other, 0, &[9; 100]);
        let files = world.files.clone();
        let buffer = Heap::buffer(5000);
        buffer.store(&[8; 5000]);
        let call = async {
            let done = files.write(&open, 100, buffer.into()).await.expect("room");
            assert!(done > 0);
        };
        let is_done = world.executor.run_until(dies_after(steps, Box::pin(call)));
        let machine = world.machine.clone();
        world.executor.run_until(machine.call(|| Ok(()))).expect("done");
        drop((files, open, other));
        world.restart(false);
        let open = world.open("a", OFlags::RDONLY).expect("there");
        let found = world.read(&open);
        assert!(found[..100] == [7; 100] && found[100..].iter().all(|byte| *byte == 8), "{steps}");
        let volume = Rc::clone(&world.files.volumes[0].1);
        let inode = find(&volume.tree.borrow(), "/a").expect("a folder").inode.expect("there");
        let task = volume.tree.borrow().node(inode).and_then(|node| node.task).expect("a task");
        moves += usize::from(volume.stream(task).expect("its own").reach().1 > 112);
        drop((open, volume));
        let other = world.open("b", OFlags::RDONLY).expect("there");
        assert_eq!(world.read(&other), [9; 100]);
        if is_done {
            break;
        }
    }
    assert!(moves > 1, "no daemon died behind the move");
}

/// Bytes behind a file in its chunk, such as memory of a client, are not seen when it grows.
#[test]
fn what_is_behind_a_small_file_in_its_chunk_is_not_seen_when_it_grows() {
    let mut world = World::shaped(1, SMALL);
    let open = world.open("a", OFlags::CREATE | OFlags::RDWR).expect("made");
    world.write(&open, 0, &[9; 90]);
    drop(open);
    for len in [10, 60, 80] {
        for in_order in [false, true] {
            let call = NameCall::Truncate { path: name("a"), len: 10 };
            world.name(call).expect("there");
            let volume = Rc::clone(&world.files.volumes[0].1);
            let (at, chunk_len, _) = volume.stream(1).expect("the first small one").reach();
            assert_eq!(chunk_len, 96);
            drop(volume);
            world.restart(in_order);
            let path = world.folder.path().join("kept.sion.000001");
            let stray = std::fs::File::options().write(true).open(path).expect("there");
            stray.write_all_at(&[3; 20], at + 10).expect("room");
            world.name(NameCall::Truncate { path: name("a"), len }).expect("there");
            let open = world.open("a", OFlags::RDWR).expect("there");
            let zeros = vec![0; usize::try_from(len).expect("short") - 10];
            assert_eq!(world.read(&open), [&[9; 10][..], &zeros].concat(), "{len}");
        }
    }
}

/// Writes, truncations, and readers beside a move.
#[test]
fn calls_beside_a_move_are_before_it_or_after_it() {
    use super::between::{Call, beside, bytes};
    for delay in 0..14 {
        for kind in 0..3 {
            let mut world = World::shaped(1, SMALL);
            let open = world.open("a", OFlags::CREATE | OFlags::RDWR).expect("made");
            world.write(&open, 0, &[7; 200]);
            let files = world.files.clone();
            let grow: Call<'_> = Box::pin(async {
                files.write(&open, 200, bytes(4000, 8)).await.expect("room");
            });
            let other: Call<'_> = Box::pin(async {
                match kind {
                    0 => drop(files.write(&open, 0, bytes(100, 9)).await.expect("room")),
                    1 => files.truncate(&open, 5000).await.expect("room"),
                    _ => {
                        let buffer = Heap::buffer(200);
                        files.read(&open, 0, buffer.clone().into()).await.expect("there");
                        let mut found = Vec::new();
                        buffer.append_to(&mut found);
                        assert_eq!(found, [7; 200]);
                    }
                }
            });
            world.executor.run_until(beside([grow, other], delay));
            let first = if kind == 0 { 9 } else { 7 };
            let zeros = if kind == 1 { 800 } else { 0 };
            let expected = [vec![first; 100], vec![7; 100], vec![8; 4000], vec![0; zeros]].concat();
            assert!(world.read(&open) == expected, "{delay} {kind}");
        }
    }
}

/// As a daemon under `ulimit -f` makes them, whose files are not dense; the next one has no limit.
#[test]
fn file_that_is_kept_in_a_chunk_of_a_wide_one_has_its_bytes_after_a_kill() {
    let limited = Shape { chunk_len: 4096, small_len: 0, ..SHAPE };
    let mut world = World::shaped(1, limited);
    let all: Vec<_> = (0..12).map(|number| format!("old{number}")).collect();
    for file in &all {
        let open = world.open(file, OFlags::CREATE | OFlags::RDWR).expect("made");
        world.write(&open, 0, &[9; 3000]);
    }
    world.restart(true);
    world.shape = Shape { chunk_len: 1 << 20, small_len: 256 << 10, dense: SMALL.dense, ..SHAPE };
    world.restart(true);
    for file in &all {
        world.name(NameCall::Unlink { path: name(file) }).expect("there");
    }
    let volume = Rc::clone(&world.files.volumes[0].1);
    let tasks = world.executor.run_until(async {
        volume.sync_names(true).await.expect("names");
        keep(&volume, &pieces(&[3000], true)).await.expect("room")
    });
    let packs = |task| volume.streams.borrow().member_of(task).expect("a file").is_packed;
    assert_eq!(tasks.iter().map(|task| packs(*task)).collect::<Vec<_>>(), [false]);
    world.executor.run_until(volume.tell_kept(tasks.iter().copied())).expect("told");
    let mut small = [Small {
        inode: volume.tree.borrow_mut().reserve(1),
        folder: ROOT,
        name: b"new".to_vec(),
        mode: 0o644,
        time: now(),
        task: tasks.first().copied(),
        is_open: false,
    }];
    world.executor.run_until(async {
        let changing = volume.begin().await.expect("begun");
        volume.take_files(&changing, &mut small).await.expect("made");
    });
    drop(volume);
    world.restart(false);
    let open = world.open("new", OFlags::RDONLY).expect("there");
    assert_eq!(world.read(&open).len(), 3000);
}
