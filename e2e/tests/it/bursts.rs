//! Memory for bursts of writes: who gets how much, that it is given back, and that a full log is
//! drained in whole pieces.

use std::{fs, path::Path, process::Command, time::Duration};

use crate::{
    harness::{Daemon, Folder, kakehi, kakehi_run, program, run, skip, text, wait_for},
    rigs::Rig,
    strace::Trace,
};

const TIME_MAX: Duration = Duration::from_secs(60);
const MEGABYTES: u64 = 64;

/// A daemon with much memory, of which a session gets `staging` at first.
#[track_caller]
fn daemon(folder: &Folder, staging: &str) -> Daemon {
    let socket = folder.join("job");
    let mut command = Command::new(kakehi());
    command.env("KAKEHI_MEMORY", "4GiB").env("KAKEHI_STAGING", staging);
    command.args(["serve", "--socket"]).arg(&socket);
    Daemon::start_by(folder, socket, &mut command)
}

/// Numbers that a program prints.
#[track_caller]
fn numbers(command: &mut Command) -> Vec<u64> {
    let output = run(command, TIME_MAX);
    assert!(output.status.success(), "{command:?}: {output:?}");
    let said = text(&output.stdout);
    said.split_whitespace().map(|number| number.parse().expect("a number")).collect()
}

/// The kernel has larger folios for aligned pieces. The daemon's ticks may drain others in between.
#[test]
fn full_logs_are_drained_by_aligned_pieces_of_their_length() {
    if !Trace::is_possible() {
        return skip("aligned pieces", "no strace");
    }
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, "job", &[]);
    let trace = folder.join("trace");
    let mut command = daemon.wrap("strace");
    command.args(["-f", "-qq", "-s", "0", "-e", "trace=writev", "-o"]).arg(&trace);
    command.arg(program("skipped")).arg(folder.join("file"));
    assert!(run(&mut command, TIME_MAX).status.success());
    let calls = fs::read_to_string(trace).expect("a trace");
    let whole = calls.lines().filter(|call| call.ends_with("= 262144")).count();
    // Cut elsewhere, there are two others for each.
    let others = calls.lines().filter(|call| call.contains("writev(")).count() - whole;
    assert!(others <= whole + 8, "{whole} and {others}\n{calls}");
    daemon.end();
}

/// Each is compared with the one before, also where the kernel has that.
#[test]
fn direct_writes_of_some_length_are_staged_wherever_they_begin() {
    const WRITE: &str = "import mmap, os, sys
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
os.lseek(file, 4096, 0)
for _ in range(400): os.write(file, mmap.mmap(-1, 32768))";
    let folder = Folder::new();
    let mut command = kakehi_run(&folder, &[]);
    command.args(["python3", "-c", WRITE]).arg(folder.join("file"));
    let output = run(&mut command, TIME_MAX);
    let said = text(&output.stderr);
    if said.contains("Invalid argument") {
        return skip("direct writes", "no O_DIRECT in the folder for temporary files");
    }
    assert!(output.status.success(), "{said}");
    assert_eq!(fs::metadata(folder.join("file")).expect("there").len(), 4096 + 400 * 32_768);
    assert!(!said.contains("(0B staged)"), "{said}");
}

#[track_caller]
fn check_burst(file: &Path) {
    let found = fs::read(file).expect("a file");
    assert_eq!(found.len() as u64, MEGABYTES << 20);
    let is_right = |(at, byte): (usize, &u8)| usize::from(*byte) == (at >> 20) % 251;
    assert!(found.iter().enumerate().all(is_right));
}

#[test]
fn memory_of_a_burst_is_given_back_when_the_daemon_is_killed() {
    let folder = Folder::new();
    let Some(rig) = Rig::start(&folder, "slowfs", "--bandwidth 50") else { return };
    let file = rig.mount().join("file");
    let mut daemon = daemon(&folder, "32MiB");
    let mut command = daemon.wrap(program("burst"));
    command.arg(&file).arg(MEGABYTES.to_string());
    let found = std::thread::scope(|scope| {
        let burst = scope.spawn(|| numbers(&mut command));
        let has_begun = || fs::metadata(&file).is_ok_and(|file| file.len() > 12 << 20);
        assert!(wait_for(TIME_MAX, has_begun), "it does not begin");
        daemon.kill();
        burst.join().expect("it ends")
    });
    let [_, before_kb, after_kb] = found[..] else { panic!("{found:?}") };
    assert!(before_kb > MEGABYTES << 8 && after_kb < 33 << 10, "{found:?}");
    check_burst(&file);
    rig.stop();
}

/// A control group that limits memory; removed when this goes.
struct Group(std::path::PathBuf);

impl Group {
    /// `None`, loudly, where this machine cannot have it.
    fn new(limit: u64) -> Option<Self> {
        let name = format!("kakehi-{}", std::process::id());
        let roots =
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        for (root, file) in roots {
            let group = Self(Path::new(root).join(&name));
            let is_made = fs::create_dir(&group.0).is_ok();
            if is_made && fs::write(group.0.join(file), limit.to_string()).is_ok() {
                return Some(group);
            }
        }
        skip("a small control group", "none can be made");
        None
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its last process may be on its way out.
        wait_for(TIME_MAX, || !self.0.exists() || fs::remove_dir(&self.0).is_ok());
    }
}

/// It would be killed for memory that only the daemon's group has.
#[test]
fn no_more_is_granted_than_the_programs_own_control_group_has() {
    let folder = Folder::new();
    let Some(rig) = Rig::start(&folder, "slowfs", "--bandwidth 100") else { return };
    let Some(group) = Group::new(48 << 20) else { return };
    let file = rig.mount().join("file");
    let daemon = daemon(&folder, "16MiB");
    let mut command = daemon.wrap("sh");
    command.arg("-c").arg("echo $$ >\"$0/cgroup.procs\" && exec \"$@\"").arg(&group.0);
    let found = numbers(command.arg(program("burst")).arg(&file).arg(MEGABYTES.to_string()));
    assert!(found[1] < 17 << 10, "{found:?}");
    check_burst(&file);
    daemon.end();
    rig.stop();
}

/// Where it may grow to a gigabyte, it is neither address space nor memory of the program's before.
#[test]
fn memory_for_a_burst_is_nothing_before_one() {
    let folder = Folder::new();
    let mut command = kakehi_run(&folder, &[]);
    command.env("KAKEHI_MEMORY", "20GiB");
    let found = numbers(command.arg(program("reserved")).arg(folder.join("file")).arg("600"));
    let [has_room, is_locked, shared_kb] = found[..] else { panic!("{found:?}") };
    assert_eq!(has_room, 1, "{found:?}");
    assert!(is_locked == 0 || shared_kb < 64 << 10, "{found:?}");
}
