//! Batches: files whose bytes are written before their names.

use super::*;
use crate::file::Packed;

/// Makes and closes files of these names, and has their bytes written.
fn keep(all: &mut Bundles, names: &[&str]) {
    for name in names {
        all.create(0, name);
        all.write(0);
        all.close(0);
    }
    all.tick();
    let (intake, (_, tail)) = (intake(all), all.makers[0].segment.shared().bundle.tails());
    assert_eq!(tail, all.makers[0].data_head, "the log has room again");
    assert!(intake.has_kept(), "they wait for others");
}

fn intake(all: &Bundles) -> Rc<Intake> {
    all.world.files.intake.clone().expect("it takes in")
}

#[test]
fn batch_is_made_before_a_call_and_when_no_file_arrives() {
    let mut all = Bundles::new(2);
    keep(&mut all, &["a", "b"]);
    all.world.check();
    assert!(!intake(&all).has_kept());
    keep(&mut all, &["c"]);
    all.tick();
    assert!(!intake(&all).has_kept());
    all.restart(false);
    all.world.check();
}

/// A killed daemon leaves no file of its batch, and the next daemon's files do not show its bytes.
#[test]
fn killed_daemon_leaves_no_file_of_its_batch() {
    let mut all = Bundles::new(2);
    keep(&mut all, &["a", "b"]);
    all.restart(false);
    for name in ["a", "b"] {
        assert!(all.world.open(name, OFlags::RDONLY).is_err());
    }
    // With a hole, which must read as zeros.
    let open = all.world.open("c", OFlags::CREATE | OFlags::RDWR).expect("made");
    all.world.write(&open, 0, b"1");
    all.world.write(&open, 500, b"2");
    let read = all.world.read(&open);
    assert!(read[1..500].iter().all(|byte| *byte == 0) && read.len() == 501);
    drop(open);
    all.world.model.insert("c".to_owned(), read);
    all.restart(true);
    all.world.check();
}

/// One file of a batch finds its name taken: the others are made from the bytes in the multifile,
/// and so is that one if it may be.
#[test]
fn batch_is_made_without_a_file_whose_name_is_taken() {
    for is_exclusive in [true, false] {
        let mut all = Bundles::new(2);
        all.is_exclusive = is_exclusive;
        keep(&mut all, &["a", "b", "c"]);
        let volume = Rc::clone(&all.world.files.volumes[0].1);
        let folder = all.makers[0].leases[""].folder;
        let found = volume.tree.borrow().find_in(folder, b"b").expect("free");
        let inode = volume.tree.borrow_mut().reserve(1);
        let make = Packed::create_as(&volume, inode, &found, 0o600, (1, 2));
        drop(all.world.executor.run_until(make).expect("made"));
        drop(volume);
        if is_exclusive {
            all.world.model.insert("b".to_owned(), Vec::new());
        }
        all.world.check();
        assert!(!intake(&all).has_kept());
        let error = all.makers[0].segment.shared().bundle.take_error();
        assert_eq!(error.is_some(), is_exclusive, "b is another's");
        all.restart(true);
        all.world.check();
    }
}

/// A batch that loses its only file to a taken name writes no record: an empty one would hide all
/// later names from the next daemon.
#[test]
fn empty_batch_writes_no_record() {
    let mut all = Bundles::new(2);
    all.lease(0, "");
    let Lease { folder, key, next: inode, .. } = all.makers[0].leases[""];
    assert!(all.node.shared().names.claim(NameHash::new(key, b"b")));
    drop(all.world.open("b", OFlags::CREATE | OFlags::RDWR).expect("made"));
    all.world.model.insert("b".to_owned(), Vec::new());
    let (how, time, name) = (CreateFlags::EXCLUSIVE, (1, 2), &b"b"[..]);
    all.makers[0].push(&Record::Create { inode, folder, mode: 0o600, how, time, name });
    all.makers[0].push(&Record::Close { inode });
    all.makers[0].publish();
    all.makers[0].leases.get_mut("").expect("leased").next += 1;
    all.world.check();
    all.create(0, "a");
    all.write(0);
    all.close(0);
    all.world.check();
    all.restart(true);
    all.world.check();
}

/// Half of a data log of one byte is zero bytes; its records are read all the same.
#[test]
fn log_of_one_byte_is_read() {
    let mut all = Bundles::new(2);
    let (segment, _) = Segment::create(ARENA_LEN).expect("memory");
    let (segment, session) = (Arc::new(segment), all.next_session);
    segment.shared().bundle.place(Logs { data_len: 1, ..LOGS });
    all.node.bundles.add(session, &segment).expect("in its place");
    let (leases, open) = (HashMap::new(), Vec::new());
    all.makers[0] = Maker { session, segment, head: 0, data_head: 0, leases, open };
    all.create(0, "a");
    all.tick();
    let maker = &all.makers[0];
    assert_eq!(maker.segment.shared().bundle.tails().0, maker.head);
    all.world.check();
}
