//! The table of places under the model checker.

use loom::sync::Arc;

use super::*;

struct Shared {
    near: Entry,
    further: Further,
    /// Bytes of a file.
    bytes: AtomicU64,
    reading: Reading<1>,
}

impl Shared {
    fn entry(&self) -> Whole<'_> {
        Whole { near: &self.near, further: &self.further }
    }
}

fn shared() -> Arc<Shared> {
    let shared = never_shown();
    shared.near.hide();
    shared.entry().show(&[1; PLACE_WORDS]);
    shared
}

fn never_shown() -> Arc<Shared> {
    let word = |_| AtomicU64::new(0);
    let near = Entry { sequence: AtomicU64::new(0), words: core::array::from_fn(word) };
    let further = Further(core::array::from_fn(word));
    let reading = Reading { count: AtomicU32::new(0), entries: [AtomicU32::new(0)] };
    Arc::new(Shared { near, further, bytes: AtomicU64::new(1), reading })
}

/// The daemon shows an entry for the first time, without hiding it before: whoever finds it finds
/// all of its words.
#[test]
fn reader_sees_all_of_an_entry_that_is_shown_for_the_first_time() {
    crate::sync::model(2, || {
        let shared = never_shown();
        let client = {
            let shared = Arc::clone(&shared);
            loom::thread::spawn(move || shared.entry().read())
        };
        shared.entry().show(&[2; PLACE_WORDS]);
        if let Some((_, words)) = client.join().unwrap() {
            assert_eq!(words, [2; PLACE_WORDS]);
        }
    });
}

/// A client reads a file by an entry that the daemon hides, writes to, and shows again: what
/// the client takes for true is one state of words and bytes.
#[test]
fn reader_sees_words_and_bytes_of_one_state() {
    crate::sync::model(2, || {
        let shared = shared();
        let client = {
            let shared = Arc::clone(&shared);
            loom::thread::spawn(move || {
                let (sequence, words) = shared.entry().read()?;
                let bytes = shared.bytes.load(Ordering::Relaxed);
                shared.near.is_still(sequence).then_some((words, bytes))
            })
        };
        shared.near.hide();
        shared.bytes.store(2, Ordering::Relaxed);
        shared.entry().show(&[2; PLACE_WORDS]);
        if let Some((words, bytes)) = client.join().unwrap() {
            assert_eq!(words, [bytes; PLACE_WORDS]);
        }
    });
}

/// A client begins to read by an entry that the daemon hides: it finds that out, or the daemon
/// keeps the file for it.
#[test]
fn reader_of_a_hidden_entry_is_known_or_knows() {
    crate::sync::model(3, || {
        let shared = shared();
        let client = {
            let shared = Arc::clone(&shared);
            loom::thread::spawn(move || {
                let Some((sequence, _)) = shared.entry().read() else { return false };
                shared.reading.begin(0, Seen { entry: 0, sequence });
                shared.near.is_still(sequence)
            })
        };
        shared.near.hide();
        let is_known = shared.reading.readers(0).next().is_some();
        let reads = client.join().unwrap();
        assert!(is_known || !reads, "nobody keeps its file");
    });
}
