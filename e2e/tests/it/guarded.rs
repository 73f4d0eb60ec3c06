//! What a lock guards that is on another file than what is written: whoever gets the lock finds all
//! of it, by whichever call the lock was given up.

use crate::visibility::Pair;

const ROUNDS: u32 = 10;
/// What is locked, and how.
const LOCKS: [(&str, &str); 5] =
    [("file", "flock"), ("file", "posix"), ("file", "ofd"), ("file", "lockf"), ("folder", "flock")];
/// Calls that give up the lock of number `LOCK`, of a program that has `DATA` open, too.
const WAYS: [&[&str]; 5] = [
    &["unlock LOCK KIND"],
    &["close LOCK"],
    &["dup2 DATA LOCK"],
    &["closerange LOCK"],
    &["dup2 LOCK 70", "close LOCK", "close 70"],
];

/// A file that two processes have had open since before it was written.
struct Shared {
    numbers: [u64; 2],
    text: String,
}

impl Shared {
    #[track_caller]
    fn open(pair: &mut Pair, text: String) -> Self {
        let path = format!("{}.{text}", pair.path);
        let one = pair.one.get(&format!("open {path} +c"));
        Self { numbers: [one, pair.other.get(&format!("open {path} r"))], text }
    }

    #[track_caller]
    fn write(&self, pair: &mut Pair) {
        pair.one.get(&format!("pwrite {} 0 {}", self.numbers[0], self.text));
    }

    /// Asserts that the other process finds what one has written.
    #[track_caller]
    fn find(self, pair: &mut Pair, after: &str) {
        let [one, other] = self.numbers;
        let found = pair.other.ask(&format!("pread {other} 0 99"));
        assert_eq!(found, format!("[{}]", self.text), "{after}");
        pair.one.get(&format!("close {one}"));
        pair.other.get(&format!("close {other}"));
    }
}

/// Has one process write under a lock and give it up, and another take it, `ROUNDS` times.
#[track_caller]
fn pass(pair: &mut Pair, open: &str, kind: &str, ways: (&[&str], &str)) {
    let (give_up, take) = ways;
    let after = format!("{open} {kind}: {give_up:?}");
    for round in 0..ROUNDS {
        let data = Shared::open(pair, format!("round{round}"));
        let (lock, theirs) = (pair.one.get(open), pair.other.get(open));
        pair.one.get(&format!("lock {lock} {kind}"));
        data.write(pair);
        for call in give_up {
            let call = call.replace("LOCK", &lock.to_string()).replace("KIND", kind);
            pair.one.get(&call.replace("DATA", &data.numbers[0].to_string()));
        }
        pair.other.get(&format!("{take} {theirs} {kind}"));
        data.find(pair, &after);
        // It may be closed by now.
        pair.one.ask(&format!("close {lock}"));
        pair.other.get(&format!("close {theirs}"));
        pair.one.get(&format!("unlink {}.round{round}", pair.path));
    }
}

#[test]
fn whoever_gets_a_lock_finds_what_was_written_under_it_in_other_files() {
    let mut pair = Pair::new();
    let path = pair.path.clone();
    pair.one.get(&format!("mkdir {path}.folder"));
    for (locked, kind) in LOCKS {
        let open = if locked == "file" {
            format!("open {path}.lock +c")
        } else {
            format!("open {path}.folder r")
        };
        for give_up in WAYS {
            pass(&mut pair, &open, kind, (give_up, "trylock"));
        }
        if kind != "lockf" {
            pass(&mut pair, &open, kind, (&["share LOCK KIND"], "share"));
        }
    }
    pass(&mut pair, &format!("folder {path}.folder"), "flock", (&["closefolder"], "trylock"));
    pair.end(6 * 30 * u64::from(ROUNDS));
}

/// A name is a lock, too, for programs that make it where there is none.
#[test]
fn whoever_finds_a_name_gone_finds_what_was_written_before_that() {
    let mut pair = Pair::new();
    let path = pair.path.clone();
    for (make, give_up, make_theirs) in [
        ("open LOCK wcx", "unlink LOCK", "open LOCK wcx"),
        ("mkdir LOCK", "rmdir LOCK", "mkdir LOCK"),
        ("open LOCK wcx", "rename LOCK LOCK.old", "open LOCK wcx"),
        ("open LOCK wcx", "rename LOCK LOCK.free", "rename LOCK.free LOCK"),
    ] {
        for round in 0..ROUNDS {
            let data = Shared::open(&mut pair, format!("round{round}"));
            let lock = format!("{path}.lock");
            let call = |text: &str| text.replace("LOCK", &lock);
            pair.one.get(&call(make));
            data.write(&mut pair);
            pair.one.get(&call(give_up));
            pair.other.get(&call(make_theirs));
            data.find(&mut pair, give_up);
            pair.other.get(&call(give_up));
            for file in ["old", "free"] {
                pair.other.ask(&format!("unlink {lock}.{file}"));
            }
            pair.one.get(&format!("unlink {path}.round{round}"));
        }
    }
    pair.end(6 * 4 * u64::from(ROUNDS));
}
