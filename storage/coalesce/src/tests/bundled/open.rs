//! Files that are made before they are closed.

use super::*;

/// A close that has not waited leaves all of a file, whoever dies after it.
#[test]
fn open_files_are_made_whole_and_no_close_waits() {
    let mut all = Bundles::new(8);
    for (maker, file) in NAMES.iter().take(3).enumerate() {
        all.create(maker, file);
        all.write(maker);
    }

    all.world.check();

    for maker in &all.makers {
        let bundle = &maker.segment.shared().bundle;
        assert_eq!((bundle.recalled() > 0, bundle.torn()), (true, 0));
    }
    (0..3).for_each(|maker| all.close(maker));
    all.restart(false);
    all.world.check();
}

/// A file whose name another one may have by now is made in steps.
#[test]
fn file_that_may_not_be_the_first_of_its_name_is_torn() {
    let mut all = Bundles::new(8);
    all.lease(0, "");
    let Lease { folder, next: inode, .. } = all.makers[0].leases[""];
    // As if it had been claimed.
    all.world.open("b", OFlags::CREATE | OFlags::RDWR).expect("made");
    let (how, time, name) = (CreateFlags::default(), (1, 2), &b"b"[..]);
    all.makers[0].push(&Record::Create { inode, folder, mode: 0o600, how, time, name });
    all.makers[0].push_data(b"one", true);
    all.makers[0].push(&Record::Data { inode, len: 3 });
    all.makers[0].publish();
    let there = all.world.open("b", OFlags::RDONLY).expect("there");
    assert_eq!(all.world.read(&there), b"one");
    assert!(all.makers[0].segment.shared().bundle.torn() > 0);
}
