//! Space of files that are gone.

use std::{fs, os::unix::fs::MetadataExt as _};

use storage::{Storage, names::FileCall};

use super::{between::Call, *};

impl World {
    /// Bytes that the physical files have on the disk.
    fn used(&self) -> u64 {
        let files = fs::read_dir(self.folder.path()).expect("there").flatten();
        files.map(|file| file.metadata().expect("there").blocks() * 512).sum()
    }

    fn make(&mut self, file: &str, len: usize) -> Open {
        let open = self.open(file, OFlags::CREATE | OFlags::RDWR).expect("made");
        self.write(&open, 0, &vec![7; len]);
        open
    }

    fn sync(&mut self, open: &Open) {
        let files = self.files.clone();
        let synced = files.on(open, FileCall::Sync { data_only: true });
        self.executor.run_until(synced).expect("synced");
    }

    fn unlink(&mut self, file: &str) {
        self.name(NameCall::Unlink { path: name(file) }).expect("there");
    }
}

#[test]
fn removed_file_gives_its_space_back_once_nobody_has_it_open() {
    for (shape, is_synced) in [(SHAPE, false), (SMALL, false), (SHAPE, true), (SMALL, true)] {
        let mut world = World::shaped(1, shape);
        let other = world.make("b", LEN_MAX);
        if is_synced {
            world.sync(&other);
        }
        for is_open in [false, true] {
            let open = world.make("a", LEN_MAX);
            let open = Some(open).filter(|_| is_open);
            let before = world.used();
            world.unlink("a");
            if let Some(open) = open {
                assert_eq!(world.read(&open), [7; LEN_MAX]);
                assert_eq!(world.used(), before);
                let files = world.files.clone();
                world.executor.run_until(Storage::close(&files, open)).expect("closed");
            }
            assert!(world.used() + 16_000 < before, "{is_open} {is_synced}");
        }
        assert_eq!(world.read(&other), [7; LEN_MAX]);
    }
}

#[test]
fn sync_gives_back_the_space_of_files_removed_before() {
    let mut world = World::new(1);
    let other = world.make("b", 100);
    world.sync(&other);
    // Too few bytes to be worth a sync.
    drop(world.make("a", 9_000));
    world.unlink("a");
    let before = world.used();
    world.sync(&other);
    assert!(world.used() + 8_000 < before);
}

/// Nobody knows then whether the names on the disk still lead to the tasks.
#[test]
fn sync_that_fails_frees_no_task_and_is_told_to_whoever_syncs() {
    let mut world = World::new(1);
    let more = world.open("c", OFlags::CREATE | OFlags::RDWR).expect("made");
    let kept = world.make("b", 100);
    drop((world.make("a", 100), world.make("d/a", 100)));
    world.unlink("a");
    world.unlink("d/a");
    // It takes writes, and no sync.
    let null = fs::File::options().read(true).write(true).open("/dev/null").expect("there");
    let journal = uring::File::new(null.into()).expect("a file");
    world.files.volumes[0].1.stream(0).expect("names").member().begin(journal);
    world.write(&more, 0, &[3; 100]);
    assert_eq!((world.read(&more), world.read(&kept)), (vec![3; 100], vec![7; 100]));
    assert!(world.files.volumes[0].1.members().len() > 1, "another physical file");
    let files = world.files.clone();
    let synced = files.on(&kept, FileCall::Sync { data_only: true });
    assert_eq!(world.executor.run_until(synced).map_err(errno).err(), Some(Errno::INVAL));
}

#[test]
fn daemon_that_dies_over_a_removal_leaves_all_of_a_file_or_nothing() {
    let mut removed = 0;
    for steps in 1.. {
        let mut world = World::shaped(1, if steps % 2 == 0 { SHAPE } else { SMALL });
        drop((world.make("a", LEN_MAX), world.make("b", LEN_MAX)));
        let files = world.files.clone();
        let call: Call<'_> = Box::pin(async {
            files.name(NameCall::Unlink { path: name("a") }).await.expect("there");
        });
        let is_done = world.die_in(steps, call);
        drop(files);
        world.restart(false);
        match world.open("a", OFlags::RDONLY) {
            Ok(open) => assert!(!is_done && world.read(&open) == [7; LEN_MAX], "{steps}"),
            Err(_) => removed += 1,
        }
        let other = world.open("b", OFlags::RDONLY).expect("there");
        assert!(world.read(&other) == [7; LEN_MAX], "{steps}");
        // Whoever gets its place finds nothing there.
        for new in ["c", "d/a", "d/b"] {
            let open = world.open(new, OFlags::CREATE | OFlags::RDWR).expect("made");
            world.name(NameCall::Truncate { path: name(new), len: 9000 }).expect("there");
            assert!(world.read(&open) == [0; 9000], "{steps} {new}");
        }
        if is_done {
            break;
        }
    }
    assert!(removed > 2, "no daemon died behind the record");
}

/// They are not known to be empty on the disk, and what waits for one to be would wait for ever.
#[test]
fn places_of_removed_files_are_nobodys_once_a_sync_has_failed() {
    let mut world = World::new(1);
    let other = world.make("b", 100);
    (0..3).for_each(|number| drop(world.make(&format!("r{number}"), 9_000)));
    (0..3).for_each(|number| world.unlink(&format!("r{number}")));
    world.sync(&other);
    world.files.volumes[0].1.has_failed_to_sync.set(true);
    for number in 0..12 {
        let open = world.make(&format!("n{number}"), 5_000);
        assert_eq!(world.read(&open), [7; 5_000]);
    }
}
