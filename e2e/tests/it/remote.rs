//! Files that another node has: two daemons and a network between them, with everything that can
//! happen to any of the three.

mod allocate;
mod asked;
mod damaged;
mod ended;
mod exchanged;
mod fileset;
mod fuzzed;
mod handed;
mod killed;
mod leased;
mod links;
mod locks;
mod mapped;
mod moved_root;
mod patient;
mod quiet;
mod replaced;
mod same_user;
pub(crate) mod server;
mod ucx_only;
mod unreached;
mod unusual;

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use wire::{Frame, NONCE_LEN, SESSION_LEN};

use self::{
    killed::{
        a_hundred_killed_clients_leave_a_server_nothing,
        killed_client_is_let_go_of_and_others_are_served,
        server_killed_in_the_middle_of_transfers_is_noticed,
    },
    quiet::daemons_that_nobody_asks_sleep,
};
use crate::{
    harness::{
        Folder, Running, SOON, collect, kakehi_run, note, pause, processes_of, program, random,
        run, skip, succeed, text, wait_for,
    },
    proxy::Proxy,
    remote::server::{Scheme, Server},
};

/// Makes of each function two tests, one over each transport.
macro_rules! over_both {
    ($($(#[$attribute:meta])* $name:ident,)*) => {
        mod tcp {
            use super::server::Scheme;
            $($(#[$attribute])* #[test] fn $name() { super::$name(Scheme::Tcp) })*
        }

        mod ucx {
            use super::server::Scheme;
            $($(#[$attribute])* #[test] fn $name() {
                if Scheme::Ucx.is_here(stringify!($name)) { super::$name(Scheme::Ucx) }
            })*
        }
    };
}

over_both! {
    shell_works_in_a_remote_folder_as_in_its_own,
    nothing_outside_the_root_is_reached,
    key_file_of_others_and_wrong_keys_are_refused,
    garbage_on_the_port_hurts_nobody,
    nothing_is_lost_or_done_twice_when_the_server_is_killed,
    program_outlives_a_network_that_stalls_cuts_and_drops,
    server_that_stands_still_is_waited_for,
    server_that_stays_away_is_an_error_in_time_and_for_good,
    what_a_killed_program_had_accepted_arrives,
    daemons_that_nobody_asks_sleep,
    killed_client_is_let_go_of_and_others_are_served,
    server_killed_in_the_middle_of_transfers_is_noticed,
    #[ignore = "3 minutes: a hundred kills, and the time for which a server keeps files"]
    a_hundred_killed_clients_leave_a_server_nothing,
}

/// A program that changes remote files, on a machine that is busy and with a server that is away.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// Rounds of a program whose server is killed again and again, and kills that hit it at least.
const KILLED_ROUNDS: u32 = 400;
const KILLS_MIN: u32 = 5;

/// Where programs find the server's files.
pub(crate) fn local(folder: &Folder) -> PathBuf {
    folder.join("local")
}

// ---- what a program finds

fn shell_works_in_a_remote_folder_as_in_its_own(scheme: Scheme) {
    crate::views::needs_view!();
    let (folder, native) = (Folder::new(), tempfile::tempdir().expect("folder"));
    let server = Server::start(&folder, scheme);
    let script = "set -e; cd \"$0\"; echo hello >a; cat a; echo more >>a; wc -l <a; cp a b; \
        mkdir -p d/e; mv b d/e/; ln -s a link; readlink link; cat link; ln a hard; chmod 640 a; \
        touch -d @1000000000 a; stat -c '%s %a %Y %h %n' a; \
        find . -type f ! -name list | sort >list; cat list; \
        tar cf t.tar --sort=name --mtime=@0 d; tar tf t.tar; { echo 1; ls; echo 2; } >all; \
        cat all; while read line; do echo \"got $line\"; done <a; rm -r d; test -f a; \
        test -d .; [ -r a ]; test ! -e d; head -c 100000 /dev/zero | tee z | wc -c; cmp a link; \
        truncate -s 5 a; cat hard; echo; for f in *; do echo $f; done";
    let native = native.path().join("x");
    fs::create_dir(&native).expect("folder");
    let expected = succeed(Command::new("bash").arg("-c").arg(script).arg(&native), LONG);
    let mut command = server.run(&folder);
    let found = succeed(command.arg("bash").arg("-c").arg(script).arg(local(&folder)), LONG);
    assert_eq!(found, expected);
    assert_eq!(fs::read_dir(local(&folder)).expect("made").count(), 0, "the local folder is used");
    let compare = succeed(Command::new("diff").arg("-r").args([&native, &server.job()]), SOON);
    assert_eq!(compare, "");
    assert_eq!(fs::metadata(server.job().join("a")).expect("there").mode() & 0o777, 0o640);
    server.end();
}

fn nothing_outside_the_root_is_reached(scheme: Scheme) {
    let folder = Folder::new();
    let server = Server::start(&folder, scheme);
    fs::write(folder.join("secret"), "secret").expect("file");
    fs::create_dir(server.job()).expect("folder");
    let away = folder.join("secret");
    std::os::unix::fs::symlink(&away, server.job().join("away")).expect("link");
    std::os::unix::fs::symlink("../../secret", server.job().join("up")).expect("link");
    // With a view the kernel of this node follows them, to what this node has there.
    for name in ["away", "up"] {
        let mut command = server.run(&folder);
        command.env("KAKEHI_VIEW", "none");
        let output = run(command.arg("cat").arg(local(&folder).join(name)), SOON);
        assert!(!output.status.success(), "{name}: {}", text(&output.stdout));
    }
    server.end();
}

// ---- who may come in

/// A folder that is mounted again stands for one that a root knows by more names, as one that does
/// not tell case from case.
#[test]
fn the_servers_own_folder_has_no_other_name() {
    if !rustix::process::geteuid().is_root() {
        return skip("another name of the server's folder", "only root can mount");
    }
    let folder = Folder::new();
    let script = "cd root && mkdir -m 700 .kakehi .KAKEHI && mount --bind .kakehi .KAKEHI && \
        cd .. && exec \"$0\" \"$@\"";
    let wrapper = ["unshare", "--mount", "sh", "-c", script].map(Path::new);
    let server = Server::start_under(&wrapper, &folder, Scheme::Tcp);
    let mut flags = server.flags(&local(&folder));
    flags[5] = format!("{}=/", local(&folder).display());
    let mut command = kakehi_run(&folder, &flags.each_ref().map(String::as_str));
    let output = run(command.args(["chmod", "755"]).arg(local(&folder).join(".KAKEHI")), SOON);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("Permission denied"), "{said}");
    let own = fs::metadata(server.folder.join("root/.kakehi")).expect("there");
    assert_eq!(own.mode() & 0o777, 0o700);
    server.end();
}

fn key_file_of_others_and_wrong_keys_are_refused(scheme: Scheme) {
    let folder = Folder::new();
    let server = Server::start(&folder, scheme);
    let key = folder.join("key");
    assert_eq!(fs::metadata(&key).expect("made").mode() & 0o777, 0o600);
    let good = fs::read_to_string(&key).expect("key");

    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("mode");
    let refused = run(server.run(&folder).arg("true"), SOON);
    assert_eq!(refused.status.code(), Some(125), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("0600"), "{}", text(&refused.stderr));

    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("mode");
    fs::write(&key, "0".repeat(64)).expect("key");
    let refused = run(server.run(&folder).arg("true"), SOON);
    assert_eq!(refused.status.code(), Some(125), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("key"), "{}", text(&refused.stderr));

    fs::write(&key, good).expect("key");
    succeed(server.run(&folder).arg("true"), SOON);
    server.end();
}

fn garbage_on_the_port_hurts_nobody(scheme: Scheme) {
    let folder = Folder::new();
    let server = Server::start(&folder, scheme);
    let mut rng = random("garbage");
    succeed(server.run(&folder).arg("true"), SOON);
    let before = server.rss_bytes();
    for round in 0..200 {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("listens");
        let mut bytes = vec![0; rng.usize(1..20_000)];
        rng.fill(&mut bytes);
        if round % 2 == 0 {
            // A hello that is one, and then nonsense.
            let hello = Frame::hello([1; SESSION_LEN], [2; NONCE_LEN]).head();
            bytes.splice(..0, hello.bytes().iter().copied());
        }
        // The server may close before it has read everything.
        stream.write_all(&bytes).ok();
        stream.set_read_timeout(Some(Duration::from_millis(1))).expect("timeout");
        stream.read_exact(&mut [0; 256]).ok();
    }
    succeed(server.run(&folder).arg("true"), SOON);
    let grown = server.rss_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes more");
    server.end();
}

// ---- what goes wrong

fn nothing_is_lost_or_done_twice_when_the_server_is_killed(scheme: Scheme) {
    crate::views::needs_view!();
    let folder = Folder::new();
    let mut server = Server::start(&folder, scheme);
    let mut rng = random("server kills");
    let mut program = start_rounds(&folder, &mut server.run(&folder), KILLED_ROUNDS);
    let (mut kills, mut last) = (0, 0);
    while kills < 10 {
        let before = progress(&folder);
        // Whatever the machine does besides: not before it has got on.
        let gets_on = wait_for(SOON, || progress(&folder) > before + 5);
        pause(Duration::from_millis(rng.u64(0..25)));
        server.kill();
        // Nothing comes to an end without a server.
        let (done, ended) = (progress(&folder), program.child.try_wait().expect("own child"));
        server.restart();
        if ended.is_some() || done >= i64::from(KILLED_ROUNDS) {
            break;
        }
        assert!(gets_on, "no progress after {before} rounds and {kills} kills");
        (kills, last) = (kills + 1, done);
    }
    note(format_args!("{kills} kills, the last one after {last} of {KILLED_ROUNDS} rounds"));
    finish_rounds(&folder, &server, &mut program, KILLED_ROUNDS as usize);
    assert!(kills >= KILLS_MIN, "only {kills} kills hit the program");
    server.end();
}

fn program_outlives_a_network_that_stalls_cuts_and_drops(scheme: Scheme) {
    crate::views::needs_view!();
    let folder = Folder::new();
    let server = Server::start(&folder, scheme);
    let mut rng = random("network");
    let proxy = Proxy::start(server.port);
    let mut command = server.run_through(&folder, proxy.port(), scheme);
    let mut program = start_rounds(&folder, &mut command, 300);
    for _ in 0..12 {
        pause(Duration::from_millis(rng.u64(20..200)));
        proxy.cut();
    }
    // Longer than the client waits for a server that says nothing.
    proxy.stall();
    pause(Duration::from_secs(7));
    proxy.go_on();
    finish_rounds(&folder, &server, &mut program, 300);
    drop(proxy);
    server.end();
}

fn server_that_stands_still_is_waited_for(scheme: Scheme) {
    crate::views::needs_view!();
    let folder = Folder::new();
    let server = Server::start(&folder, scheme);
    let mut program = start_rounds(&folder, &mut server.run(&folder), 100);
    pause(Duration::from_millis(100));
    server.running.signal(Signal::STOP);
    pause(Duration::from_secs(6));
    server.running.signal(Signal::CONT);
    finish_rounds(&folder, &server, &mut program, 100);
    server.end();
}

fn server_that_stays_away_is_an_error_in_time_and_for_good(scheme: Scheme) {
    crate::views::needs_view!();
    let folder = Folder::new();
    let mut server = Server::start(&folder, scheme);
    let script = "cd \"$0\"; echo one >a || exit 1; echo begun; read line; \
        echo two >b && exit 2; echo ended; read line; \
        cat a && exit 3; ls . && exit 4; echo local >../c || exit 5; exit 42";
    let mut command = server.run(&folder);
    command.env("KAKEHI_REMOTE_TIMEOUT", "3s");
    command.args(["timeout", "300", "bash", "-c", script]);
    command.arg(local(&folder)).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = Running::start(&mut command);
    let mut output = program.child.stdout.take().expect("piped");
    let said = collect(program.child.stderr.take().expect("piped"));
    let mut input = program.child.stdin.take().expect("piped");
    let mut line = [0; 6];
    output.read_exact(&mut line).expect("begun");
    server.kill();
    input.write_all(b"\n").expect("input");
    output.read_exact(&mut line).expect("ended");
    // Back too late: what was given up stays given up.
    server.restart();
    input.write_all(b"\n").expect("input");
    let status = program.wait(SOON);
    let said = text(&said.join().expect("reader"));
    assert_eq!(status.code(), Some(42), "{said}");
    let is_programs = |line: &&str| !line.starts_with("kakehi: ");
    let errors = said.lines().filter(is_programs).filter(|l| l.ends_with("Input/output error"));
    assert_eq!(errors.count(), 3, "{said}");
    assert_eq!(fs::read(folder.join("c")).expect("local file"), b"local\n");
    server.end();
}

fn what_a_killed_program_had_accepted_arrives(scheme: Scheme) {
    crate::views::needs_view!();
    let folder = Folder::new();
    let server = Server::start(&folder, scheme);
    for round in 1..=5 {
        let mut program = start_rounds(&folder, &mut server.run(&folder), 100_000);
        let started = wait_for(SOON, || progress(&folder) >= 3 * round);
        assert!(started, "no progress");
        let done = progress(&folder);
        for (pid, arguments) in processes_of(folder.path()) {
            if arguments.split(' ').next().is_some_and(|name| name.ends_with("/remote")) {
                let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
                // It may have ended since.
                rustix::process::kill_process(pid, Signal::KILL).ok();
            }
        }
        assert_eq!(program.wait(LONG).code(), Some(128 + 9));
        let lines = fs::read_to_string(server.job().join("log")).expect("log");
        let arrived = i64::try_from(lines.lines().count()).expect("a count");
        assert!(arrived >= done, "{done} lines accepted, {arrived} arrived");
        assert!(lines.lines().enumerate().all(|(index, line)| line.parse() == Ok(index)));
        fs::remove_dir_all(server.job()).expect("what was made");
        fs::remove_file(folder.join("progress")).expect("progress");
    }
    server.end();
}

// ---- the program that counts

#[track_caller]
pub(crate) fn start_rounds(folder: &Folder, command: &mut Command, count: u32) -> Running {
    command.arg(program("remote")).arg(local(folder)).arg(count.to_string());
    let log = fs::File::create(folder.join("program.log")).expect("log");
    command.arg(folder.join("progress")).stdin(Stdio::null());
    Running::start(command.stdout(log.try_clone().expect("log")).stderr(log))
}

/// Rounds that the program has done.
pub(crate) fn progress(folder: &Folder) -> i64 {
    let bytes = fs::read(folder.join("progress")).unwrap_or_default();
    bytes.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes))
}

#[track_caller]
pub(crate) fn finish_rounds(folder: &Folder, server: &Server, program: &mut Running, count: usize) {
    let status = program.wait(LONG);
    let said = fs::read_to_string(folder.join("program.log")).expect("log");
    assert!(status.success(), "{status}: {said} {}", server.said());
    check_rounds(&server.job(), count);
}

/// Checks the program's results: every line once and in order, every other file and folder.
#[track_caller]
pub(crate) fn check_rounds(job: &Path, count: usize) {
    let lines = fs::read_to_string(job.join("log")).expect("log");
    let numbers: Vec<usize> = lines.lines().map(|line| line.parse().expect("number")).collect();
    assert!(numbers.iter().copied().eq(0..count), "{} lines: {numbers:?}", numbers.len());
    for round in 0..count {
        let is_kept = round % 2 == 0;
        let file = fs::read_to_string(job.join(format!("file{round}")));
        assert_eq!(file.ok(), is_kept.then(|| format!("{round:07}\n")));
        assert_eq!(job.join(format!("folder{round}")).is_dir(), is_kept, "folder {round}");
        assert!(!job.join(format!("new{round}")).exists());
    }
}
