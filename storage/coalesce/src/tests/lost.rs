//! Locks that a file system forgets.

use std::fs;

use rustix::fs::{FlockOperation, flock};

use super::*;
use crate::hold::ASKED_AGAIN_AFTER;

impl World {
    /// The bytes of the physical files and of all beside them.
    fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let files = fs::read_dir(self.folder.path()).expect("there").flatten();
        files.map(|file| (file.path(), fs::read(file.path()).expect("there"))).collect()
    }

    /// Waits until the lock is asked for again.
    fn grow_old(&mut self) {
        let slept = self.executor.handle().sleep(ASKED_AGAIN_AFTER);
        self.executor.run_until(slept);
    }

    /// Has the file system forget the lock.
    fn forget_lock(&self) {
        let (_, volume) = &self.files.volumes[0];
        flock(&*volume.hold.file, FlockOperation::Unlock).expect("forgotten");
    }
}

#[test]
fn writer_whose_lock_somebody_else_has_writes_nothing_more() {
    let mut world = World::new(1);
    let open = world.open("a", OFlags::CREATE | OFlags::RDWR).expect("made");
    world.write(&open, 0, b"before");
    world.forget_lock();
    let other = fs::File::open(world.path()).expect("there");
    flock(&other, FlockOperation::NonBlockingLockExclusive).expect("free");
    let before = world.contents();

    world.grow_old();
    let files = world.files.clone();
    let data = Heap::buffer(5).into();
    world.executor.run_until(files.write(&open, 6, data)).expect_err("refused");
    world.name(NameCall::MakeDir { path: name("f"), mode: 0o755 }).expect_err("refused");
    let (unclosed, _) = world.executor.run_until(files.close());

    let why = unclosed.values().next().expect("said");
    assert!(why.contains("forgotten its lock"), "{why}");
    assert!(world.contents() == before, "it was written");
    // Who has the lock goes on with what was there.
    drop((other, open));
    world.restart(false);
    let open = world.open("a", OFlags::RDONLY).expect("there");
    assert_eq!(world.read(&open), b"before");
}

#[test]
fn writer_whose_lock_somebody_else_had_meanwhile_writes_nothing_more() {
    // One that this writer has begun, and one that it has only read so far.
    for is_begun in [true, false] {
        let mut world = World::new(1);
        world.restart(true);
        if is_begun {
            world.open("a", OFlags::CREATE | OFlags::RDWR).expect("made");
        }
        let files = world.files.clone();
        world.forget_lock();
        world.restart(false);
        world.open("b", OFlags::CREATE | OFlags::RDWR).expect("made");
        world.restart(true);
        world.files.volumes = Rc::new([]);
        let before = world.contents();

        world.grow_old();
        world.files = files;
        for _ in 0..2 {
            world.name(NameCall::MakeDir { path: name("f"), mode: 0o755 }).expect_err("refused");
        }
        let files = world.files.clone();
        let (unclosed, _) = world.executor.run_until(files.close());

        assert_eq!(unclosed.len(), usize::from(is_begun), "{unclosed:?}");
        assert!(world.contents() == before, "it was written");
    }
}

#[test]
fn multifile_whose_times_somebody_has_set_is_written_on() {
    let mut world = World::new(1);
    world.restart(true);
    let (file, now) = (fs::File::open(world.path()).expect("there"), std::time::SystemTime::now());
    file.set_modified(now).expect("set");
    world.grow_old();

    world.name(NameCall::MakeDir { path: name("f"), mode: 0o755 }).expect("made");
    file.set_modified(now).expect("set");
    world.grow_old();
    world.name(NameCall::MakeDir { path: name("g"), mode: 0o755 }).expect("made");

    world.restart(true);
    world.name(NameCall::RemoveDir { path: name("f") }).expect("there");
}

#[test]
fn lock_that_is_forgotten_is_taken_again_if_nobody_has_it() {
    let mut world = World::new(1);
    world.forget_lock();
    world.grow_old();

    world.name(NameCall::MakeDir { path: name("f"), mode: 0o755 }).expect("made");

    let other = fs::File::open(world.path()).expect("there");
    flock(&other, FlockOperation::NonBlockingLockExclusive).expect_err("it is locked again");
}
