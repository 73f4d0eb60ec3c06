//! Requests survive their entries.

use core::iter;
use std::{format, string::String, vec::Vec};

use super::*;

fn all() -> [Request; Kind::ALL.len()] {
    let paths = PathPair { from_len: 7, to_len: 9 };
    [
        Request::Open { file: 3, flags: 0o1101, mode: 0o644, path_len: 12, inode: 0 },
        Request::Close { file: 255 },
        Request::Read { file: 1, at: 1 << 40, len: 65536, arena_at: 8192 },
        Request::Write { file: 2, at: u64::MAX, len: 1, arena_at: 0 },
        Request::FlushAll { of_job: true },
        Request::Sync { file: 4 },
        Request::Datasync { file: 5 },
        Request::SetPosition { file: 6, at: 1 << 62 },
        Request::Flush { file: 7, upto: 77 },
        Request::Attach { file: 8, arena_at: 4096, len: 65536 },
        Request::Settle { device: 9, inode: 10, demote: true },
        Request::Fetch { file: 11, at: 12, len: 13 },
        Request::Materialize { file: 14 },
        Request::Stat { path_len: 15, follow: true },
        Request::FileStat { file: 16 },
        Request::Name { file: 17 },
        Request::Truncate { file: 17, path_len: 0, len: 18 },
        Request::Unlink { path_len: 19 },
        Request::Rename { paths, flags: 1 },
        Request::MakeDir { path_len: 20, mode: 0o755 },
        Request::RemoveDir { path_len: 21 },
        Request::ReadDir { path_len: 22, from: 23 },
        Request::Link { paths },
        Request::Symlink { paths },
        Request::Nothing,
        Request::ReadLink { path_len: 24 },
        Request::SetMode { file: 25, path_len: 0, mode: 0o750 },
        Request::SetOwner { file: 0, path_len: 26, user: 1, group: u32::MAX, follow: true },
        Request::SetTimes { file: 27, path_len: 0, follow: false },
        Request::Access { path_len: 28, mode: 4 },
        Request::FileSystem { file: 28, path_len: 29 },
        Request::Lock { file: 31, terms: 0x7_0016, start: 32, len: 0 },
        Request::FindLock { file: 33, terms: 1, start: u64::MAX, len: 34 },
        Request::Allocate { file: 38, mode: 3, at: 39, len: 1 << 40 },
        Request::SyncFolder { path_len: 40 },
        Request::Lease { path_len: 12, session: 5, uses: Uses { reads: true, makes: false } },
        Request::Share { number: 3 },
        Request::FindEnd { file: 41 },
        Request::FindData { file: 42, at: 43 },
        Request::FindHole { file: 44, at: 45 },
        Request::Reclaimed,
        Request::Grow,
        Request::SetAppend { file: 46, appends: true },
        Request::CloseDuplicate { file: 47 },
    ]
}

#[test]
fn every_request_survives_its_entry() {
    for request in all() {
        assert_eq!(Request::decode(&request.encode()), Ok(request));
    }
}

/// A changed entry needs another version: raise it, then write down here what both have become.
#[test]
fn entries_that_look_different_have_another_version() {
    // Each as the first of its lane, which numbers it.
    let words = all().into_iter().flat_map(|request| {
        let [first, rest @ ..] = request.encode().0;
        iter::once(first | 1).chain(rest)
    });
    let fingerprint = words.fold(0xcbf2_9ce4_8422_2325, |hash: u64, word| {
        (hash ^ word).wrapping_mul(0x0100_0000_01b3)
    });
    assert_eq!((crate::VERSION, fingerprint), (19, 0x3353_ac30_df06_51ae));
}

#[test]
fn numbers_of_kinds_go_up_to_the_last() {
    assert!(Kind::ALL.is_sorted_by_key(|&kind| kind as u8));
    assert_eq!(Kind::ALL.last().map(|&last| last as usize + 1), Some(Kind::NUMBERS));
}

#[test]
fn unknown_kinds_are_refused_by_number() {
    for number in (0..=255).filter(|&n| Kind::ALL.iter().all(|&kind| kind as u8 != n)) {
        let entry = Entry::new(number);
        assert_eq!(Request::decode(&entry), Err(Invalid::Kind(number)));
    }
}

/// The rows of the document's table of requests: numbers with names, and for the slot, the length,
/// and the two arguments if there is something.
fn documented() -> Vec<(String, [bool; 4])> {
    let document = include_str!("../../../docs/reference/protocol.md");
    let section = document.split("\n## ").find(|section| section.starts_with("3"));
    let rows = section.expect("a section on requests").lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split('|').map(str::trim);
        let kinds = cells.next().filter(|kinds| kinds.starts_with(|c: char| c.is_ascii_digit()))?;
        let places = [(); 4].map(|()| cells.next().is_some_and(|cell| !cell.is_empty()));
        Some(kinds.split(", ").map(move |kind| (String::from(kind), places)))
    });
    rows.flatten().collect()
}

#[test]
fn document_has_the_numbers_names_and_places_of_the_table() {
    let documented = documented();
    assert_eq!(documented.len(), Kind::ALL.len());
    for kind in Kind::ALL {
        let all_set = Entry([(kind as u64) << 32, u64::MAX, u64::MAX, u64::MAX, 0, 0, 0, 0]);
        let [_, lens, a, b, ..] = Request::decode(&all_set).expect("a kind").encode().0;
        let places = [lens << 32 != 0, lens >> 32 != 0, a != 0, b != 0];
        let row = (format!("{} {}", kind as u8, kind.name().replace('_', "-")), places);
        assert!(documented.contains(&row), "{row:?} is not in {documented:?}");
    }
}
