//! When others see what one process has written.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::{
    calls::Calls,
    harness::{
        Daemon, Folder, SOON, kept_in_one_of, note, program, run, skip, succeed, text, wait_for,
    },
};

const ROUNDS: u32 = 50;
/// Longest wait of a reader that is not wrapped.
const STALE_MAX: Duration = Duration::from_millis(10);
/// One write in so many may take longer, in one try of so many, where the machine has other work.
const ELSEWHERE: (usize, u32) = (4, 4);
/// The same on a machine that has nothing else to do.
const HERE: (usize, u32) = (20, 1);

/// Two wrapped processes, and the path of a file they share.
pub(crate) struct Pair {
    pub(crate) path: String,
    pub(crate) one: Calls,
    pub(crate) other: Calls,
    daemon: Daemon,
    folder: Folder,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        let daemon = Daemon::start(&folder, "job", &[]);
        let path = folder.join("file").display().to_string();
        let (one, other) = (Calls::wrapped(&daemon), Calls::wrapped(&daemon));
        Self { path, one, other, daemon, folder }
    }

    /// Ends both processes, and asserts that `bytes` were staged: else nothing was put to the test.
    #[track_caller]
    pub(crate) fn end(mut self, staged: u64) {
        self.one.end();
        self.other.end();
        let summary = self.daemon.status()["summary"].clone();
        assert!(summary["bytes_staged"].as_u64() >= Some(staged), "{summary:#}");
        self.daemon.end();
        drop(self.folder);
    }
}

#[test]
fn a_wrapped_reader_sees_at_once_what_it_opens_or_stats() {
    let mut pair = Pair::new();
    for round in 0..ROUNDS {
        let path = format!("{}.{round}", pair.path);
        let fd = pair.one.get(&format!("open {path} wc"));
        pair.one.get(&format!("write {fd} hello"));
        if round % 2 == 0 {
            assert_eq!(pair.other.ask(&format!("stat {path}")), "5");
        }
        let reader = pair.other.get(&format!("open {path} r"));
        assert_eq!(pair.other.ask(&format!("pread {reader} 0 99")), "[hello]");
        assert_eq!(pair.other.ask(&format!("fstat {reader}")), "5");
        // Two have it open: each write is in the file when it returns.
        pair.one.get(&format!("write {fd} world"));
        assert_eq!(fs::read(&path).expect("the file"), b"helloworld");
        assert_eq!(pair.other.ask(&format!("pread {reader} 5 99")), "[world]");
        pair.one.get(&format!("close {fd}"));
        pair.other.get(&format!("close {reader}"));
    }
    pair.end(5 * u64::from(ROUNDS));
}

/// When the write begins the file is its client's alone, and when it ends no more.
/// As ranks that meet in a barrier between a collective write and a read.
#[test]
fn a_wrapped_reader_that_had_the_file_open_before_sees_what_is_written() {
    let mut pair = Pair::new();
    for round in 0..ROUNDS {
        let path = format!("{}.{round}", pair.path);
        fs::write(&path, "").expect("a file");
        let reader = pair.other.get(&format!("open {path} r"));
        let writer = pair.one.get(&format!("open {path} w"));
        assert_eq!(pair.one.get(&format!("write {writer} first")), 5);
        let read = match round % 3 {
            0 => (format!("read {reader} 9"), "[first]"),
            1 => (format!("pread {reader} 0 9"), "[first]"),
            _ => (format!("seekend {reader} 0"), "5"),
        };
        assert_eq!(pair.other.ask(&read.0), read.1, "round {round}");
        // Once told the writer stages no more.
        assert_eq!(pair.one.get(&format!("write {writer} second")), 6);
        assert_eq!(pair.other.ask(&format!("pread {reader} 5 9")), "[second]");
        pair.other.get(&format!("close {reader}"));
        pair.one.get(&format!("close {writer}"));
    }
    pair.end(u64::from(ROUNDS) * 5);
}

#[test]
fn a_write_during_which_others_open_the_file_is_in_it_when_it_returns() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, "job", &[]);
    let said = succeed(daemon.wrap(program("overtaken")).arg(folder.join("file")), SOON);
    assert_eq!(said, "seen\n");
    let summary = daemon.status()["summary"].clone();
    assert!(summary["bytes_staged"].as_u64() > Some(1 << 20), "{summary:#}");
    daemon.end();
}

#[test]
fn an_unwrapped_reader_sees_it_after_ten_milliseconds() {
    watch_unwrapped(ELSEWHERE);
}

#[test]
#[ignore = "wants the machine for itself: for `make soak`"]
fn an_unwrapped_reader_of_an_idle_machine_sees_nearly_all_after_ten_milliseconds() {
    watch_unwrapped(HERE);
}

fn watch_unwrapped((one_in, tries): (usize, u32)) {
    let folder = Folder::alone();
    let daemon = Daemon::start(&folder, "job", &[]);
    let mut writer = Calls::wrapped(&daemon);
    kept_in_one_of(tries, || {
        let ages = ages_seen(&folder, &mut writer);
        let (median, worst) = (ages[ages.len() / 2], ages[ages.len() - 1]);
        let old = ages.iter().filter(|age| **age > STALE_MAX).count();
        note(format_args!(
            "seen by others after {median:?} in the median, {worst:?} at worst, {old} of {} later \
             than {STALE_MAX:?}",
            ages.len()
        ));
        old * one_in <= ages.len()
    });
    writer.end();
    daemon.end();
}

/// How long each write took to be seen, in order.
fn ages_seen(folder: &Folder, writer: &mut Calls) -> Vec<Duration> {
    let mut ages = Vec::new();
    for round in 0..ROUNDS {
        let path = folder.join(format!("file{round}"));
        let fd = writer.get(&format!("open {} wc", path.display()));
        for size in [5, 10, 15] {
            writer.get(&format!("write {fd} hello"));
            let accepted = Instant::now();
            let seen = wait_for(SOON, || fs::metadata(&path).expect("the file").len() == size);
            assert!(seen, "never seen");
            ages.push(accepted.elapsed());
        }
        writer.get(&format!("close {fd}"));
        fs::remove_file(&path).expect("the file");
    }
    ages.sort();
    ages
}

#[test]
fn close_and_fsync_show_everything_to_everybody() {
    let mut pair = Pair::new();
    for round in 0..ROUNDS {
        let path = format!("{}.{round}", pair.path);
        let fd = pair.one.get(&format!("open {path} wc"));
        pair.one.get(&format!("fill {fd} 5000"));
        pair.one.get(&format!("fsync {fd}"));
        assert_eq!(fs::metadata(&path).expect("the file").len(), 5000);
        pair.one.get(&format!("fill {fd} 5000"));
        let last = pair.one.get(&format!("dup {fd}"));
        pair.one.get(&format!("close {fd}"));
        pair.one.get(&format!("close {last}"));
        assert_eq!(fs::metadata(&path).expect("the file").len(), 10_000);
    }
    pair.end(10_000 * u64::from(ROUNDS));
}

/// The one that syncs had the file open before the other began to stage.
#[test]
fn sync_covers_what_another_process_has_staged() {
    let mut pair = Pair::new();
    let folder = pair.other.get(&format!("folder {}", pair.folder.path().display()));
    for call in ["fsync {fd}", "fdatasync {fd}", "syncfs {folder}", "sync"] {
        let path = format!("{}.{}", pair.path, &call[..4]);
        let fd = pair.other.get(&format!("open {path} +c"));
        let writer = pair.one.get(&format!("open {path} w"));
        pair.one.get(&format!("write {writer} hello"));
        pair.daemon.running.signal(Signal::STOP); // So that it stays staged.
        pair.one.get(&format!("write {writer} world"));
        let call = call.replace("{fd}", &fd.to_string()).replace("{folder}", &folder.to_string());
        pair.other.begin(&call);
        let waits = pair.other.is_silent_for(Duration::from_millis(100));
        pair.daemon.running.signal(Signal::CONT);
        assert!(waits, "{call} has not asked for what is staged");
        assert_eq!(pair.other.answer(), "0", "{call}");
        assert_eq!(fs::read(&path).expect("the file"), b"helloworld", "{call}");
    }
    pair.end(20);
}

/// Of a file that is staged to as it is mapped, and of one that is written only later.
#[test]
fn shared_mapping_of_another_process_shows_each_write_and_keeps_its_stores() {
    let mut pair = Pair::new();
    for is_staged in [true, false] {
        let path = format!("{}.{is_staged}", pair.path);
        fs::write(&path, [0; 4096]).expect("a file");
        let fd = pair.other.get(&format!("open {path} +"));
        let writer;
        if is_staged {
            writer = pair.one.get(&format!("open {path} +"));
            pair.one.get(&format!("pwrite {writer} 0 first"));
            pair.daemon.running.signal(Signal::STOP); // So that it stays staged.
            pair.one.get(&format!("pwrite {writer} 0 older"));
            pair.other.begin(&format!("map {fd}"));
            let waits = pair.other.is_silent_for(Duration::from_millis(100));
            pair.daemon.running.signal(Signal::CONT);
            assert!(waits, "the mapping has not asked for what is staged");
            assert_eq!(pair.other.answer(), "0");
            assert_eq!(pair.other.ask("peek 5"), "[older]");
        } else {
            pair.other.get(&format!("map {fd}"));
            writer = pair.one.get(&format!("open {path} +"));
            pair.one.get(&format!("pwrite {writer} 0 first"));
        }
        pair.other.get(&format!("close {fd}"));
        pair.daemon.running.signal(Signal::STOP); // So that nothing it has is drained now.
        pair.one.get(&format!("pwrite {writer} 0 newer"));
        let seen = pair.other.ask("peek 5");
        pair.other.get("poke store");
        pair.daemon.running.signal(Signal::CONT);
        assert_eq!(seen, "[newer]", "staged before: {is_staged}");
        pair.one.get(&format!("close {writer}"));
        assert_eq!(&fs::read(&path).expect("the file")[..5], b"store", "{is_staged}");
    }
    pair.end(10);
}

#[test]
fn a_lock_is_free_once_its_file_is_closed() {
    let mut pair = Pair::new();
    let path = pair.path.clone();
    for round in 0..ROUNDS {
        let fd = pair.one.get(&format!("open {path} +c"));
        pair.one.get(&format!("lock {fd}"));
        pair.one.get(&format!("pwrite {fd} 0 round{round:02}"));
        let waiting = pair.other.get(&format!("open {path} +"));
        assert_eq!(pair.other.ask(&format!("trylock {waiting}")), "EAGAIN");
        pair.one.get(&format!("close {fd}"));
        pair.other.get(&format!("trylock {waiting}"));
        let found = pair.other.ask(&format!("pread {waiting} 0 99"));
        assert_eq!(found, format!("[round{round:02}]"));
        pair.other.get(&format!("close {waiting}"));
        // And its own next descriptor gets it too.
        let fd = pair.one.get(&format!("open {path} +"));
        pair.one.get(&format!("trylock {fd}"));
        pair.one.get(&format!("close {fd}"));
    }
    pair.end(0);
}

#[test]
fn a_program_that_was_just_written_can_be_run() {
    let mut pair = Pair::new();
    for round in 0..ROUNDS {
        let path = format!("{}.{round}", pair.path);
        pair.one.get(&format!("copy /bin/true {path}"));
        assert_eq!(pair.one.ask(&format!("run {path}")), "0");
        assert_eq!(pair.other.ask(&format!("run {path}")), "0");
    }
    pair.end(1000 * u64::from(ROUNDS));
}

#[test]
fn truncating_by_open_drops_what_was_staged_before() {
    let mut pair = Pair::new();
    for round in 0..ROUNDS {
        let path = format!("{}.{round}", pair.path);
        let fd = pair.one.get(&format!("open {path} wc"));
        pair.one.get(&format!("fill {fd} 1000"));
        let other = pair.other.get(&format!("open {path} wct"));
        pair.other.get(&format!("write {other} abc"));
        pair.other.get(&format!("close {other}"));
        pair.one.get(&format!("close {fd}"));
        assert_eq!(fs::read(&path).expect("the file"), b"abc");
    }
    pair.end(1000 * u64::from(ROUNDS));
}

#[test]
fn two_processes_that_append_lose_and_repeat_nothing() {
    let mut pair = Pair::new();
    let path = pair.path.clone();
    let one = pair.one.get(&format!("open {path} wca"));
    pair.one.get(&format!("write {one} alone,"));
    let other = pair.other.get(&format!("open {path} wca"));
    for round in 0..ROUNDS {
        pair.one.begin(&format!("write {one} one{round:02},"));
        pair.other.begin(&format!("write {other} two{round:02},"));
    }
    pair.one.end();
    pair.other.end();
    let text = fs::read_to_string(Path::new(&path)).expect("the file");
    for name in ["one", "two"] {
        let found: Vec<_> =
            text.split_terminator(',').filter(|word| word.starts_with(name)).collect();
        let wanted: Vec<_> = (0..ROUNDS).map(|round| format!("{name}{round:02}")).collect();
        assert_eq!(found, wanted);
    }
    assert_eq!(text.split_terminator(',').count(), 1 + 2 * ROUNDS as usize);
    pair.end(6);
}

/// A long write goes to the kernel past what others have staged. One of them closes the file and
/// opens it once more: what it stages then nobody has asked for yet.
#[test]
fn a_long_write_is_not_replaced_by_what_another_staged_before() {
    let mut pair = Pair::new();
    let path = pair.path.clone();
    let fd = pair.one.get(&format!("open {path} +c"));
    let other = pair.other.get(&format!("open {path} +"));
    pair.other.get(&format!("write {other} older"));
    pair.one.get(&format!("fill {fd} 300000"));
    pair.other.get(&format!("close {other}"));

    pair.daemon.running.signal(Signal::STOP); // So that it stays staged.
    let other = pair.other.get(&format!("open {path} +"));
    pair.other.get(&format!("write {other} older"));
    pair.one.get(&format!("seek {fd} -300000"));
    pair.one.begin(&format!("fill {fd} 300000"));
    let waits = pair.one.is_silent_for(Duration::from_millis(300));
    pair.daemon.running.signal(Signal::CONT);

    assert!(waits, "it has not asked for what is staged");
    assert_eq!(pair.one.answer(), "300000");
    pair.other.get(&format!("close {other}"));
    assert_eq!(pair.one.ask(&format!("pread {fd} 0 5")), "[xxxxx]");
    pair.end(10);
}

/// As above, where a call has the kernel write: whoever has staged has opened it later.
#[test]
fn what_the_kernel_writes_is_not_replaced_by_what_another_staged_before() {
    let mut pair = Pair::new();
    let source = pair.other.get(&format!("open {}.source +c", pair.path));
    pair.other.get(&format!("write {source} newer"));
    for call in ["copyrange {from} {to} 5", "pwritesync {to} newer", "pwriteasync {to} newer"] {
        let path = format!("{}.{}", pair.path, &call[..call.find(' ').expect("a call")]);
        let to = pair.other.get(&format!("open {path} +c"));
        let fd = pair.one.get(&format!("open {path} w"));
        pair.one.get(&format!("write {fd} older"));
        let call = call.replace("{from}", &source.to_string()).replace("{to}", &to.to_string());
        assert_eq!(pair.other.get(&call), 5, "{call}");
        pair.one.get(&format!("close {fd}"));
        assert_eq!(pair.other.ask(&format!("pread {to} 0 9")), "[newer]", "{call}");
    }
    pair.end(20);
}

/// A file system that shares blocks reads a file by itself; whether this one can is another matter.
#[test]
fn a_file_has_what_was_written_before_its_blocks_are_shared() {
    let mut pair = Pair::new();
    let source = pair.one.get(&format!("open {} +c", pair.path));
    let left = pair.one.get(&format!("open {}.left +c", pair.path));
    pair.one.get(&format!("write {source} hello"));
    pair.one.get(&format!("copyrange {source} {left} 5")); // From now on it is the kernel's.
    for call in ["clone", "clonerange", "dedupe"] {
        let path = format!("{}.{call}", pair.path);
        let staged = pair.one.get(&format!("open {path} +c"));
        pair.one.get(&format!("write {staged} hello"));
        let (from, to) = if call == "dedupe" { (left, staged) } else { (staged, left) };
        pair.daemon.running.signal(Signal::STOP); // So that nobody else drains it.
        pair.one.ask(&format!("{call} {from} {to} 5"));
        assert_eq!(fs::read(path).expect("the file"), b"hello", "{call}");
        pair.daemon.running.signal(Signal::CONT);
    }
    pair.end(20);
}

/// A log would be drained in parts, and what the other appends come between them.
#[test]
fn what_one_call_appends_stays_together() {
    const LEN: usize = 250_000;
    let mut pair = Pair::new();
    let path = pair.path.clone();
    let one = pair.one.get(&format!("open {path} wca"));
    pair.one.get(&format!("write {one} alone"));
    let other = pair.other.get(&format!("open {path} wca"));
    for _ in 0..ROUNDS {
        pair.one.begin(&format!("fill {one} {LEN}"));
        pair.other.begin(&format!("write {other} ,"));
    }
    for _ in 0..ROUNDS {
        assert_eq!(pair.one.answer(), LEN.to_string());
        assert_eq!(pair.other.answer(), "1");
    }
    let text = fs::read_to_string(Path::new(&path)).expect("the file");
    let lens: Vec<_> = text.split(',').map(|part| part.trim_start_matches("alone").len()).collect();
    assert!(lens.iter().all(|len| len % LEN == 0), "{lens:?}");
    assert_eq!(lens.iter().sum::<usize>(), LEN * ROUNDS as usize);
    pair.end(5);
}

#[test]
fn what_is_renamed_or_unlinked_takes_its_bytes_along() {
    let mut pair = Pair::new();
    for round in 0..ROUNDS {
        let path = format!("{}.{round}", pair.path);
        let fd = pair.one.get(&format!("open {path} +c"));
        pair.one.get(&format!("write {fd} hello"));
        pair.other.get(&format!("rename {path} {path}.new"));
        let reader = pair.other.get(&format!("open {path}.new r"));
        assert_eq!(pair.other.ask(&format!("read {reader} 99")), "[hello]");
        pair.other.get(&format!("unlink {path}.new"));
        pair.one.get(&format!("write {fd} world"));
        assert_eq!(pair.one.ask(&format!("pread {fd} 0 99")), "[helloworld]");
        assert_eq!(pair.other.ask(&format!("pread {reader} 0 99")), "[helloworld]");
        pair.one.get(&format!("close {fd}"));
        pair.other.get(&format!("close {reader}"));
    }
    pair.end(5 * u64::from(ROUNDS));
}

#[test]
fn a_file_that_had_no_name_shows_what_is_written_by_its_name() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, "job", &[]);
    let mut unnamed = daemon.wrap(program("unnamed"));
    let output = run(unnamed.current_dir(folder.path()).arg("file"), SOON);
    match text(&output.stdout).trim() {
        "Operation not supported" => skip("files without a name", "not on this file system"),
        said => assert_eq!(said, "hello"),
    }
    daemon.end();
}
