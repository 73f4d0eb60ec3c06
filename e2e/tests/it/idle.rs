//! Share of a core that Kakehi takes for a job that does little.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::Stdio,
    time::{Duration, Instant},
};

use crate::harness::{Daemon, Folder, Running, SOON, kept_in_one_of, note, pause, program};

/// After what came before, the daemon may poll for a second (`KAKEHI_QUIET`).
const SETTLED: Duration = Duration::from_millis(1500);
const WATCHED: Duration = Duration::from_secs(4);

#[test]
fn job_that_logs_ten_lines_a_second_takes_less_than_a_fiftieth_of_a_core() {
    let folder = Folder::alone();
    kept_in_one_of(3, || {
        let share = share_while_logging(&folder);
        note(format_args!("ten lines a second: {:.2} % of a core", 100.0 * share));
        share < 0.02
    });
}

/// The share of a core that the daemon and the program take together.
fn share_while_logging(folder: &Folder) -> f64 {
    let daemon = Daemon::start(folder, "job", &[]);
    let lines = (SETTLED + WATCHED).as_millis() / 100 + 10;
    let mut command = daemon.wrap(program("logger"));
    command.arg(folder.join("log")).args(["2000", &lines.to_string()]);
    let mut logger = Running::start(command.stdout(Stdio::piped()));
    let mut said = String::new();
    let output = logger.child.stdout.take().expect("piped");
    BufReader::new(output).read_line(&mut said).expect("pipe");
    assert_eq!(said, "written\n");
    pause(SETTLED);

    let pids = [daemon.running.child.id(), logger.child.id()];
    let time = || pids.into_iter().map(run_time).sum::<Duration>();
    let (before, start) = (time(), Instant::now());
    pause(WATCHED);
    let share = (time() - before).div_duration_f64(start.elapsed());

    assert!(logger.wait(SOON).success());
    daemon.end();
    share
}

/// For how long the threads of a process have run that it has now.
pub(crate) fn run_time(pid: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let times = threads.filter_map(|entry| fs::read_to_string(entry.path().join("schedstat")).ok());
    let first = |words: String| words.split(' ').next().and_then(|word| word.parse::<u64>().ok());
    Duration::from_nanos(times.map(|words| first(words).expect("a number")).sum())
}
