//! Progress of a long command on a terminal, and only there.

use std::{
    fs,
    io::Read,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use tempfile::tempdir;

const DEADLINE: Duration = Duration::from_secs(120);

/// `script` runs the command on a terminal of its own and passes on what it shows.
#[test]
fn a_terminal_is_shown_the_share_the_rate_and_the_time_left() {
    let folder = tempdir().expect("a folder");
    let big = fs::File::create(folder.path().join("big")).expect("a file");
    // Longer than any test takes.
    big.set_len(1 << 40).expect("a file system with holes");
    // `nohup make test` has this process ignore what the end of a terminal tells.
    let mut terminal = Command::new("env")
        .args([
            "--default-signal=HUP",
            "script",
            "-qefc",
            "exec \"$KAKEHI\" multifile join made big",
            "/dev/null",
        ])
        .env("KAKEHI", env!("CARGO_BIN_EXE_kakehi"))
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script starts");
    let mut shown = terminal.stdout.take().expect("piped");
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = [0; 1 << 10];
        while let Ok(len @ 1..) = shown.read(&mut bytes) {
            // Nobody listens any more when the test has seen enough.
            sender.send(String::from_utf8_lossy(&bytes[..len]).into_owned()).ok();
        }
    });
    let mut text = String::new();
    let complete = |text: &str| {
        text.split('\r').any(|line| {
            line.contains("join   0% [") && line.contains("/s, ") && line.contains(" left")
        })
    };
    while !complete(&text) {
        text += &receiver.recv_timeout(DEADLINE).unwrap_or_else(|why| panic!("{why}: {text:?}"));
    }
    // The terminal goes away: the command stops and leaves nothing.
    terminal.kill().expect("script is there");
    terminal.wait().expect("script ends");
    let waited = std::time::Instant::now();
    let left = || fs::read_dir(folder.path()).expect("readable").count();
    while left() > 1 {
        assert!(waited.elapsed() < DEADLINE, "half an output is left");
        thread::yield_now();
    }
}
