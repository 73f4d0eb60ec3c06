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

/// Bytes that a client publishes once another has opened its file go behind what that has appended.
#[test]
fn what_several_append_to_a_new_file_is_all_there() {
    let mut all = Bundles::new(7);
    all.lease(0, "");
    let Lease { folder, key, next: inode, .. } = all.makers[0].leases[""];
    let node = Arc::clone(&all.node);
    assert!(node.shared().names.claim(NameHash::new(key, b"b")));
    let (how, time, name) = (CreateFlags::APPENDS, (1, 2), &b"b"[..]);
    all.makers[0].push(&Record::Create { inode, folder, mode: 0o600, how, time, name });
    let append = |all: &mut Bundles, bytes: &[u8], is_first| {
        all.makers[0].push_data(bytes, is_first);
        all.makers[0].push(&Record::Data { inode, len: u32::try_from(bytes.len()).unwrap() });
        all.makers[0].publish();
    };
    append(&mut all, b"one", true);
    let open = all.world.open("b", OFlags::RDWR | OFlags::APPEND).expect("there");
    all.world.write(&open, 0, b" two");
    append(&mut all, b" three", false);
    let read = all.world.open("b", OFlags::RDONLY).expect("there");
    assert_eq!(all.world.read(&read), b"one two three");
}
