//! Many processes at once: right data, a fair share each, and memory within the credit.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
    time::Duration,
};

use crate::harness::{Daemon, Folder, Running, SOON, kakehi, kept_in_one_of, note, pause, program};

const PROCESSES: usize = 128;
const RECORD_LEN: usize = 4096;
/// Most that one process may write for 100 bytes that another writes: in a minute, and in seconds,
/// when the kernel's own unevenness counts for more.
const SHARE_MAX: [u64; 2] = [125, 150];
/// Staging memory of one process, and of all together.
const STAGING: [&str; 2] = ["2MiB", "256MiB"];
const MEMORY_LEN: u64 = 256 << 20;
/// The daemon's memory besides staging.
const RSS_BESIDES: u64 = 64 << 20;

#[test]
fn a_crowd_gets_right_data_fair_shares_and_bounded_memory() {
    serve_a_crowd(Duration::from_secs(10), SHARE_MAX[1], 3);
}

#[test]
#[ignore = "a minute: for `make soak`"]
fn a_crowd_is_served_for_a_minute() {
    serve_a_crowd(Duration::from_secs(60), SHARE_MAX[0], 1);
}

fn serve_a_crowd(time: Duration, share_max: u64, tries: u32) {
    kept_in_one_of(tries, || {
        let shares = shares_of_a_crowd(time);
        let (least, most) =
            (shares.iter().min().expect("some"), shares.iter().max().expect("some"));
        note(format_args!("shares of {least} to {most} bytes"));
        *most * 100 <= *least * share_max
    });
}

/// Bytes that each process has written, all of them right, in bounded memory.
fn shares_of_a_crowd(time: Duration) -> Vec<u64> {
    let folder = Folder::alone();
    let out = folder.join("out");
    fs::create_dir(&out).expect("a folder");
    let socket = folder.join("job");
    let mut command = Command::new(kakehi());
    command.args(["serve", "--socket"]).arg(&socket).env("KAKEHI_STAGING", STAGING[0]);
    command.env("KAKEHI_MEMORY", STAGING[1]);
    let daemon = Daemon::start_by(&folder, socket, &mut command);
    let mut members: Vec<_> = (0..PROCESSES)
        .map(|index| {
            let mut command = daemon.wrap(program("crowd"));
            command.arg(&out).arg(format!("p{index}")).arg(RECORD_LEN.to_string());
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut running = Running::start(&mut command);
            let stdin = running.child.stdin.take().expect("piped");
            let stdout = BufReader::new(running.child.stdout.take().expect("piped"));
            (running, Some(stdin), stdout)
        })
        .collect();
    for (_, _, stdout) in &mut members {
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
    }
    for (_, stdin, _) in &mut members {
        stdin.as_mut().expect("open").write_all(b"!").expect("start");
    }
    pause(time);
    members.iter_mut().for_each(|(_, stdin, _)| drop(stdin.take()));
    let shares: Vec<_> = members
        .iter_mut()
        .map(|(running, _, stdout)| {
            let status = running.wait(SOON * 3);
            assert!(status.success(), "{status}");
            let mut line = String::new();
            stdout.read_line(&mut line).expect("a line");
            let mut numbers = line.split_whitespace().map(|word| word.parse().expect("a number"));
            let [written, checked]: [u64; 2] =
                std::array::from_fn(|_| numbers.next().expect("two"));
            assert!(checked > 0, "nothing was read back");
            written
        })
        .collect();
    let status = daemon.status();
    daemon.end();

    let rss = status["peak_rss_bytes"].as_u64().expect("bytes");
    let summary = &status["summary"];
    note(format_args!(
        "{PROCESSES} processes, {time:?}: {} MiB written, {} MiB resident",
        shares.iter().sum::<u64>() >> 20,
        rss >> 20
    ));
    assert!(rss <= MEMORY_LEN + RSS_BESIDES, "{rss} bytes resident");
    assert_eq!(summary["bytes_undelegated"], serde_json::json!({}), "{summary:#}");
    assert_eq!(summary["bytes_delegated"], shares.iter().sum::<u64>(), "{summary:#}");
    shares
}
