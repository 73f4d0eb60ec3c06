//! Streams of names: whole, cut, changed, written anew, and made up.

use super::*;

fn file(task: Option<u64>) -> Node {
    Node { mode: FILE | 0o640, user: 7, task, times: [(-1, 5), (2, 0), (3, 9)], ..Node::default() }
}

fn folder() -> Node {
    Node { mode: FOLDER | 0o755, ..Node::default() }
}

/// The names in a stream, and how many of its bytes count.
fn names_in(stream: &[u8]) -> Result<(Catalogue, usize), Unreadable> {
    Catalogue::read(stream).map(|read| (read.catalogue, usize::try_from(read.len).unwrap()))
}

fn sample() -> (Vec<u8>, Vec<usize>) {
    let catalogue = Catalogue::new(42, folder());
    let (mut stream, mut ends) = (catalogue.write(), Vec::new());
    let link = Node { mode: LINK | 0o777, text: b"a/b".to_vec(), ..Node::default() };
    for changes in [
        vec![Change::Node(2, folder()), Change::Name(ROOT, b"a".to_vec(), 2)],
        vec![Change::Node(3, file(None)), Change::Name(2, b"b".to_vec(), 3)],
        vec![Change::Node(3, file(Some(1)))],
        vec![Change::Node(4, link), Change::Name(ROOT, b"z\xff".to_vec(), 4)],
        vec![Change::Name(ROOT, b"moved".to_vec(), 3), Change::NoName(2, b"b".to_vec())],
        vec![Change::NoName(ROOT, b"a".to_vec()), Change::Gone(2)],
    ] {
        stream.extend(encode(&changes));
        ends.push(stream.len());
    }
    (stream, ends)
}

/// Format rules 11.1, 11.2 and 11.4.
#[test]
fn names_read_back_as_they_were_written() {
    let (stream, _) = sample();
    let (catalogue, read) = names_in(&stream).unwrap();
    assert_eq!((catalogue.number(), read), (42, stream.len()));
    let paths = catalogue.paths().unwrap();
    assert_eq!(paths, [(b"moved".to_vec(), 3), (b"z\xff".to_vec(), 4)]);
    assert_eq!(catalogue.node(3), Some(&file(Some(1))));
    assert_eq!(catalogue.node(4).unwrap().text, b"a/b");
    let (again, _) = names_in(&catalogue.write()).unwrap();
    assert_eq!(again.paths().unwrap(), paths);
    assert_eq!(again.next_inode(), 5);
}

/// Format rule 11.3.
#[test]
fn a_stream_that_ends_anywhere_has_the_names_of_its_whole_records() {
    let (stream, ends) = sample();
    for end in HEAD_LEN..stream.len() {
        let (cut, read) = names_in(&stream[..end]).unwrap();
        assert!(read <= end);
        let whole = ends.iter().copied().filter(|whole| *whole <= end).max();
        if let Some(whole) = whole {
            assert_eq!(read, whole, "{end}");
            let (expected, _) = names_in(&stream[..whole]).unwrap();
            assert_eq!(cut.paths().unwrap(), expected.paths().unwrap());
        }
        // What was reserved behind it reads as zeros, which may be what was cut off.
        let holed = [&stream[..end], &[0; 100]].concat();
        let read_on = names_in(&holed).unwrap().1;
        assert!(read_on == read || holed[..read_on] == stream[..read_on], "{end}");
    }
    assert_eq!(names_in(&stream[..HEAD_LEN - 1]).err(), Some(Unreadable::NoNames));
}

#[test]
fn names_that_make_no_sense_are_refused() {
    let base = Catalogue::new(1, folder()).write();
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; 256]] {
        let record = encode(&[Change::Node(2, file(None)), Change::Name(ROOT, name.to_vec(), 2)]);
        let stream = [base.clone(), record].concat();
        assert_eq!(names_in(&stream).err(), Some(Unreadable::Damaged), "{name:?}");
    }
    for change in [
        Change::Name(ROOT, b"a".to_vec(), 9),
        Change::Name(9, b"a".to_vec(), 2),
        Change::Gone(ROOT),
        Change::Gone(3),
        Change::NoName(ROOT, b"a".to_vec()),
        Change::Node(ROOT, file(None)),
        Change::Node(2, folder()),
        Change::Node(2, Node::default()),
    ] {
        let named = Change::Name(ROOT, b"named".to_vec(), 3);
        let record = encode(&[Change::Node(2, file(None)), Change::Node(3, file(None)), named]);
        let stream = [base.clone(), record, encode(std::slice::from_ref(&change))].concat();
        assert_eq!(names_in(&stream).err(), Some(Unreadable::Damaged), "{change:?}");
    }
}

#[test]
fn a_folder_in_itself_is_listed_once() {
    let mut catalogue = Catalogue::new(1, folder());
    for change in [
        Change::Node(2, folder()),
        Change::Name(ROOT, b"a".to_vec(), 2),
        Change::Name(2, b"b".to_vec(), 2),
    ] {
        catalogue.apply(change).unwrap();
    }
    let paths: Vec<_> = catalogue.paths().unwrap().into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, [&b"a"[..], b"a/b"]);
}

#[test]
fn a_path_that_nobody_could_say_is_none() {
    let mut catalogue = Catalogue::new(1, folder());
    for inode in 2..20 {
        catalogue.apply(Change::Node(inode, folder())).unwrap();
        catalogue.apply(Change::Name(inode - 1, vec![b'x'; 255], inode)).unwrap();
        assert_eq!(catalogue.paths().is_some(), (inode - 1) * 256 - 1 <= 4095, "{inode}");
    }
}

/// Streams whose sums are right, and that say anything.
#[test]
fn any_changes_are_made_or_refused_and_read_back() {
    let mut read = 0;
    for seed in 0..3000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut stream = Catalogue::new(seed, folder()).write();
        for _ in 0..rng.usize(..40) {
            let (inode, other) = (rng.u64(..6), rng.u64(..6));
            let letters: &[u8] = if rng.u8(..50) == 0 { b"ab/" } else { b"ab" };
            let name = vec![*rng.choice(letters).unwrap()];
            let mut record = encode(&[match rng.u8(..6) {
                0 => Change::Node(inode, folder()),
                1 => Change::Node(inode, file(Some(other))),
                2..=3 => Change::Name(inode, name, other),
                4 => Change::NoName(inode, name),
                _ => Change::Gone(inode),
            }]);
            let body = rng.usize(8..record.len());
            if rng.u8(..50) == 0 {
                record[body] = rng.u8(..);
                let sum = crc32c::crc32c(&record[8..]).to_le_bytes();
                record[4..8].copy_from_slice(&sum);
            }
            // What makes no sense ends the stream, so most of it is to make some.
            let longer = [&stream[..], &record].concat();
            let is_read = names_in(&longer).is_ok();
            if is_read || rng.u8(..200) == 0 {
                stream = longer;
            }
        }
        let Ok((catalogue, _)) = names_in(&stream) else { continue };
        read += 1;
        let counts = |catalogue: &Catalogue| {
            (0..6)
                .map(|inode| (catalogue.link_count(inode), catalogue.folder_count(inode)))
                .collect::<Vec<_>>()
        };
        let (again, _) = names_in(&catalogue.write()).unwrap();
        assert_eq!(counts(&again), counts(&catalogue), "seed {seed}");
        assert_eq!(again.paths(), catalogue.paths(), "seed {seed}");
        for inode in 0..6 {
            let names = catalogue.names(inode).into_iter().flat_map(Names::iter);
            let inner = names.filter(|(_, inner)| catalogue.names(*inner).is_some()).count();
            assert_eq!(catalogue.folder_count(inode), wide(inner), "seed {seed}");
        }
    }
    assert!(read > 2000, "{read}");
}

#[test]
fn any_changed_byte_is_noticed_or_harmless() {
    let (stream, _) = sample();
    for at in 0..stream.len() {
        let mut changed = stream.clone();
        changed[at] ^= 0x55;
        // Refused, or the names up to the record it is in.
        if let Ok((catalogue, read)) = names_in(&changed) {
            assert!(read <= at || (MAGIC.len() + 4..HEAD_LEN).contains(&at), "{at}");
            assert!(catalogue.paths().unwrap().len() <= 3);
        }
    }
}

/// Format rule 11.3.
#[test]
fn whole_records_behind_a_changed_one_are_read_and_it_is_damage() {
    let (stream, ends) = sample();
    let root = Catalogue::new(42, folder()).write().len();
    let starts = || [HEAD_LEN, root].into_iter().chain(ends.iter().copied());
    let last = ends[ends.len() - 2];
    for at in HEAD_LEN..stream.len() {
        let mut changed = stream.clone();
        changed[at] ^= 4;
        let read = Catalogue::read(&changed).unwrap();
        let len = usize::try_from(read.len).unwrap();
        assert!(starts().any(|start| start == len) && len <= at, "{at}");
        let expected = if at < last { End::Damaged } else { End::Torn };
        assert_eq!(read.end, expected, "{at}");
        assert!(read.is_damaged(true), "{at}");
        // A link that later records say nothing of stays.
        let is_link = (ends[2]..ends[3]).contains(&at);
        let paths = read.catalogue.paths().unwrap();
        assert_eq!(paths.iter().any(|(name, _)| name == b"z\xff"), !is_link, "{at}");
        // What is left fits where it was, zeros behind it.
        let mut short = read.catalogue.write_short();
        assert!(short.len() <= stream.len(), "{at}");
        short.resize(stream.len(), 0);
        let again = Catalogue::read(&short).unwrap();
        assert_eq!((again.end, again.catalogue.paths().unwrap()), (End::Whole, paths), "{at}");
    }
    // A writer that died leaves the last record cut; zeros that end the records hide others.
    for end in last + 1..stream.len() {
        let read = Catalogue::read(&stream[..end]).unwrap();
        assert_eq!((read.end, read.len, read.is_damaged(false)), (End::Torn, last as u64, false));
    }
    let ended = [&stream[..last], &END, &stream[last..]].concat();
    assert_eq!(Catalogue::read(&ended).unwrap().end, End::Whole);
}

/// Format rule 11.5.
#[test]
fn names_that_were_written_anew_are_read_from_where_the_head_says() {
    let (old, _) = sample();
    let (catalogue, _) = names_in(&old).unwrap();
    let (records, later) = (catalogue.records(), Change::Name(ROOT, b"later".to_vec(), 3));
    let later = encode(&[later]);
    // Behind what was there, and before it, where the old records go on behind the new ones.
    let behind = [&old[..], &END, &records, &later].concat();
    let at = HEAD_LEN_MAX + records.len() + END.len();
    let before = [&[7; HEAD_LEN_MAX], &records[..], &END[..], &old].concat();
    let behind_at = old.len() + END.len();
    for (mut stream, records_at, end, count) in
        [(behind.clone(), behind_at, behind.len(), 3), (before, HEAD_LEN_MAX, at - END.len(), 2)]
    {
        stream[..HEAD_LEN_MAX].copy_from_slice(&catalogue.head_at(wide(records_at)));
        let (again, read) = names_in(&stream).unwrap();
        assert_eq!((again.number(), read, again.next_inode()), (42, end, 5));
        assert_eq!(again.paths().unwrap().len(), count);
        assert_eq!(super::records_at(&stream), Ok(wide(records_at)));
    }
    // Until the head says so nothing has changed, and what it says has to be there.
    let (still, read) = names_in(&behind).unwrap();
    assert_eq!((still.paths(), read), (catalogue.paths(), old.len()));
    for at in [0, HEAD_LEN, HEAD_LEN_MAX - 1, old.len() + 1, usize::MAX] {
        let stream = [&catalogue.head_at(wide(at)), &old[HEAD_LEN_MAX..]].concat();
        assert_eq!(names_in(&stream).err(), Some(Unreadable::Damaged), "{at}");
    }
}

#[test]
fn a_number_that_somebody_had_stays_theirs_when_names_are_written_anew() {
    let mut catalogue = Catalogue::new(1, folder());
    for change in [Change::Node(9, file(Some(3))), Change::Gone(9)] {
        catalogue.apply(change).unwrap();
    }
    let (again, _) = names_in(&catalogue.write()).unwrap();
    assert_eq!((again.next_inode(), again.nodes().count()), (10, 1));
}

/// A record of files is what the same changes one by one are, and is undone as a whole.
#[test]
fn files_made_together_are_as_if_made_one_by_one_and_undone_as_a_whole() {
    let empty = Catalogue::new(7, folder());
    let (mut together, mut record) = (empty.clone(), Encoder::with_room(0));
    let mut changes = Vec::new();
    for (inode, name) in (10..).zip([&b"b"[..], b"a", b"long name"]) {
        let node = Node { mode: FILE | 0o640, task: Some(inode), ..Node::default() };
        together.add_file(ROOT, name.to_vec(), inode, node.clone()).expect("free");
        record.node(inode, &node);
        record.name(ROOT, name, inode);
        changes.extend([Change::Node(inode, node), Change::Name(ROOT, name.to_vec(), inode)]);
    }
    let end = record.end();
    record.node(99, &folder());
    record.cut(end);
    let record = record.finish();
    assert_eq!(record, encode(&changes));
    let mut alone = empty.clone();
    changes.into_iter().for_each(|change| alone.apply(change).expect("possible"));
    assert_eq!(together.write(), alone.write());
    let taken = Node { mode: FILE, ..Node::default() };
    for (name, inode) in [(&b"a"[..], 50), (b"c", 10), (b"c/d", 51)] {
        assert_eq!(together.add_file(ROOT, name.to_vec(), inode, taken.clone()), None);
    }
    assert_eq!(together.write(), alone.write());
    for catalogue in [&empty, &together] {
        assert_eq!(catalogue.records_len(), catalogue.records().len() as u64);
    }
    together.reserve(1000);
    assert_eq!(together.records_len(), together.records().len() as u64);
    let undone = unmake_files(&record);
    undone.into_iter().for_each(|change| together.apply(change).expect("possible"));
    assert_eq!((together.nodes().count(), together.names(ROOT).map(Names::len)), (1, Some(0)));
}
