//! The daemon's operations, under every choice.

use std::{
    cell::Cell,
    fs::File as StdFile,
    io,
    rc::Rc,
    sync::{Arc, Mutex, mpsc},
};

use executor::Class;
use uring::{Buffers, Choice, Engines, File, Heap};

use crate::support::{CHOICES, Core, buffer, content, dirs, open};

#[test]
fn every_operation_does_what_it_says_under_every_choice() {
    for choice in CHOICES {
        for dir in dirs() {
            let mut core = Core::new(choice, 2);
            let engines = core.engines.clone();
            core.run(every_operation(engines, &dir)).expect("no error");
        }
    }
}

pub(crate) async fn every_operation(engines: Engines, dir: &tempfile::TempDir) -> io::Result<()> {
    let file = open(dir, "data")?;
    let text = b"drop by drop or in a stream";
    assert_eq!(engines.write(&file, 3, buffer(text).into()).await?, text.len());

    let parts = Buffers::new(vec![buffer(b"one "), buffer(b""), buffer(b"two")]).expect("few");
    assert_eq!(engines.write(&file, 30, parts).await?, 7);

    engines.sync(&file, true).await?;
    engines.sync(&file, false).await?;
    assert_eq!(engines.fetch(&file, 0, 1 << 20).await?, 37);
    assert_eq!(engines.fetch(&file, 100, 1 << 20).await?, 0);

    let (head, rest) = (Heap::buffer(5), Heap::buffer(100));
    let into = Buffers::new(vec![head.clone(), rest.clone()]).expect("few");
    assert_eq!(engines.read(&file, 0, into).await?, 37);
    assert_eq!(content(&head), b"\0\0\0dr");
    assert!(content(&rest).starts_with(b"op by drop or in a streamone two"));

    assert_eq!(engines.call(|| Ok(7)).await?, 7);
    let error = engines.call(|| Err(io::ErrorKind::NotFound.into())).await.expect_err("told so");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    Ok(())
}

#[test]
fn a_storm_of_completions_is_reaped_completely() {
    for choice in CHOICES {
        for dir in dirs() {
            let mut core = Core::new(choice, 4);
            let file = open(&dir, "storm").expect("created");
            let done = Rc::new(Cell::new(0));
            for at in 0..2000u64 {
                let (engines, file, done) = (core.engines.clone(), file.clone(), done.clone());
                core.executor.handle().spawn(Class::Latency, async move {
                    let from = buffer(&at.to_le_bytes());
                    assert_eq!(engines.write(&file, at * 8, from.into()).await.expect("room"), 8);
                    done.set(done.get() + 1);
                });
            }
            let engines = core.engines.clone();
            core.turn_until(|| done.get() == 2000);
            core.run(async {
                let into = Heap::buffer(16_000);
                assert_eq!(
                    engines.read(&file, 0, into.clone().into()).await.expect("read"),
                    16_000
                );
                for (at, value) in (0u64..).zip(content(&into).chunks(8)) {
                    assert_eq!(value, at.to_le_bytes());
                }
            });
        }
    }
}

#[test]
fn a_long_inline_call_is_cut_and_says_so() {
    for dir in dirs() {
        let mut core = Core::new(Choice::Auto, 1);
        let (engines, file) = (core.engines.clone(), open(&dir, "data").expect("created"));
        let long = Heap::buffer(3 * uring::INLINE_LEN_MAX);

        let written = core.run(engines.write(&file, 0, long.into())).expect("written");

        assert_eq!((written, engines.counters().inline), (uring::INLINE_LEN_MAX, 1));
    }
}

#[test]
fn more_operations_than_fit_wait_for_room() {
    let mut core = Core::new(Choice::Uring, 1);
    let dir = dirs().swap_remove(0);
    let file = open(&dir, "data").expect("created");
    let done = Rc::new(Cell::new(0));
    for at in 0..1000 {
        let (read, done) = (core.engines.read(&file, at, Heap::buffer(1).into()), done.clone());
        core.executor.handle().spawn(Class::Latency, async move {
            assert_eq!(read.await.expect("empty"), 0);
            done.set(done.get() + 1);
        });
    }

    core.turn_until(|| done.get() == 1000);
}

#[test]
fn direct_files_go_to_the_ring() {
    let dir = dirs().swap_remove(0);
    let path = dir.path().join("direct");
    let flags = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).expect("fits");
    let mut options = std::fs::File::options();
    options.read(true).write(true).create(true);
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags);
    let Ok(file) = options.open(path) else { return }; // Not on every file system.
    let file = File::new(file.into()).expect("a file");
    let mut core = Core::new(Choice::Auto, 1);
    let (engines, from, into) = (core.engines.clone(), Heap::buffer(8192), Heap::buffer(8192));
    crate::support::fill(&from, 7);

    assert_eq!(core.run(engines.write(&file, 0, from.into())).expect("aligned"), 8192);
    assert_eq!(core.run(engines.read(&file, 0, into.clone().into())).expect("aligned"), 8192);

    assert_eq!(content(&into), [7; 8192]);
    assert_eq!(engines.counters().inline, 0);
}

/// As a file server that does not answer, and more clients that ask for its files than fit.
#[test]
fn a_device_that_stands_still_leaves_room_to_the_others() {
    let mut core = Core::new(Choice::Auto, 4);
    let still = File::new(StdFile::open("/proc/version").expect("there").into()).expect("a file");
    let (stuck, stands_still) = mpsc::channel::<()>();
    let stands_still = Arc::new(Mutex::new(stands_still));
    let left = Rc::new(Cell::new(2000));
    for _ in 0..left.get() {
        let (engines, still, left) = (core.engines.clone(), still.clone(), Rc::clone(&left));
        let stands_still = Arc::clone(&stands_still);
        core.executor.handle().spawn(Class::Latency, async move {
            let call = move || {
                stands_still.lock().expect("nobody panics").recv().ok();
                Ok(0)
            };
            engines.call_on(&still, call).await.expect("it goes on");
            left.set(left.get() - 1);
        });
    }
    core.turn_a_while();

    for dir in dirs() {
        core.run(every_operation(core.engines.clone(), &dir)).expect("no error");
    }

    assert_eq!(left.get(), 2000);
    drop(stuck);
    core.turn_until(|| left.get() == 0);
}
