//! Errors come back as they are, under every choice.

use std::{fs::File as StdFile, io};

use uring::{Buffers, File, Heap};

use crate::support::{CHOICES, Core, buffer, dirs, open};

#[test]
fn a_full_device_is_enospc() {
    for choice in CHOICES {
        let mut core = Core::new(choice, 1);
        let full = StdFile::options().write(true).open("/dev/full").expect("is there");
        let file = File::new(full.into()).expect("a device");
        let write = core.engines.write(&file, 0, buffer(b"no room").into());

        let error = core.run(write).expect_err("full");

        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{choice:?}");
    }
}

#[test]
fn a_write_to_a_file_opened_for_reading_is_ebadf() {
    for choice in CHOICES {
        for dir in dirs() {
            drop(open(&dir, "data").expect("created"));
            let mut core = Core::new(choice, 1);
            let read_only = StdFile::open(dir.path().join("data")).expect("just made");
            let file = File::new(read_only.into()).expect("a file");
            let write = core.engines.write(&file, 0, buffer(b"refused").into());

            let error = core.run(write).expect_err("read-only");

            assert_eq!(error.raw_os_error(), Some(libc_ebadf()), "{choice:?}");
        }
    }
}

fn libc_ebadf() -> i32 {
    rustix::io::Errno::BADF.raw_os_error()
}

#[test]
fn an_offset_beyond_what_files_can_be_is_an_error() {
    for choice in CHOICES {
        for dir in dirs() {
            let mut core = Core::new(choice, 1);
            let file = open(&dir, "data").expect("created");
            for at in [1 << 63, u64::MAX] {
                let read = core.engines.read(&file, at, Heap::buffer(1).into());
                let error = core.run(read).expect_err("no such offset");
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{choice:?} at {at}");
            }
        }
    }
}

#[test]
fn a_panicking_call_is_an_error_and_its_thread_goes_on() {
    let mut core = Core::new(uring::Choice::Auto, 1);
    let engines = core.engines.clone();

    let error = core.run(engines.call(|| panic!("told to"))).expect_err("panicked");

    assert_eq!(error.kind(), io::ErrorKind::Other);
    assert_eq!(core.run(engines.call(|| Ok(1))).expect("the thread lives"), 1);
}

#[test]
fn an_empty_buffer_transfers_nothing() {
    for choice in CHOICES {
        for dir in dirs() {
            let mut core = Core::new(choice, 1);
            let file = open(&dir, "data").expect("created");
            let engines = core.engines.clone();
            let empty = || Buffers::from(Heap::buffer(0));
            assert_eq!(core.run(engines.write(&file, 0, empty())).expect("nothing"), 0);
            assert_eq!(core.run(engines.read(&file, 0, empty())).expect("nothing"), 0);
            assert_eq!(core.run(engines.fetch(&file, 0, 0)).expect("nothing"), 0);
        }
    }
}
