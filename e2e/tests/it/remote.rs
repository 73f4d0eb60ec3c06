//! Files that another node has: two daemons and a network between them, with everything that can
//! happen to any of the three.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddrV4, TcpStream},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use rustix::{
    fd::OwnedFd,
    net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt},
    process::Signal,
};

use crate::{
    harness::{
        Folder, Running, SOON, collect, kakehi, kakehi_run, pause, processes_of, program, random,
        run, skip, succeed, text, wait_for,
    },
    proxy::Proxy,
};

/// A program that changes remote files, on a machine that is busy and with a server that is away.
const LONG: Duration = Duration::from_secs(600);

/// A server, and where it is.
struct Server {
    running: Running,
    folder: PathBuf,
    port: u16,
    /// Bound, so that nobody else gets the port while the server is away.
    _reserved: OwnedFd,
}

impl Server {
    #[track_caller]
    fn start(folder: &Folder) -> Self {
        let folder = folder.path().to_owned();
        let (port, _reserved) = reserve_port();
        fs::create_dir_all(folder.join("root")).expect("folder");
        let server = Self { running: Self::launch(&folder, port), folder, port, _reserved };
        assert_eq!(server.published(), port);
        server
    }

    #[track_caller]
    fn launch(folder: &Path, port: u16) -> Running {
        let mut command = Command::new(kakehi());
        command.env("XDG_RUNTIME_DIR", folder).env_remove("KAKEHI_JOB").current_dir(folder);
        command.args(["serve", "--listen", &format!("tcp://127.0.0.1:{port}"), "--root", "root"]);
        command.args(["--key", "key", "--address-file", "."]).stdin(Stdio::null());
        command.stderr(fs::File::create(folder.join("server.log")).expect("log"));
        Running::start(&mut command)
    }

    /// The port that the address file says.
    #[track_caller]
    fn published(&self) -> u16 {
        let mut port = None;
        let suffix = format!(".{}", self.running.child.id());
        let found = wait_for(SOON, || {
            let entries = fs::read_dir(&self.folder).expect("folder").flatten();
            let names = entries.filter(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                name.ends_with(&suffix) && !name.starts_with('.')
            });
            let texts = names.filter_map(|entry| fs::read_to_string(entry.path()).ok());
            port = texts.filter_map(|url| url.trim().rsplit(':').next()?.parse().ok()).next();
            port.is_some()
        });
        assert!(found, "the server did not start: {}", self.said());
        port.expect("found")
    }

    #[track_caller]
    fn kill_and_restart(&mut self) {
        self.running.signal(Signal::KILL);
        self.running.wait(SOON);
        self.running = Self::launch(&self.folder, self.port);
        self.published();
    }

    /// `kakehi run` with this server's `/job` at `local`, reached through `port`.
    fn run_through(&self, folder: &Folder, port: u16, flags: &[&str]) -> Command {
        let url = format!("tcp://127.0.0.1:{port}");
        let key = self.folder.join("key");
        let map = format!("{}=/job", folder.join("local").display());
        let remote = ["--remote", &url, "--key", key.to_str().expect("UTF-8"), "--map", &map];
        kakehi_run(folder, &[&remote[..], flags].concat())
    }

    fn run(&self, folder: &Folder) -> Command {
        self.run_through(folder, self.port, &[])
    }

    /// What the server has of the job.
    fn job(&self) -> PathBuf {
        self.folder.join("root/job")
    }

    fn rss_bytes(&self) -> u64 {
        let statm = fs::read_to_string(format!("/proc/{}/statm", self.running.child.id()));
        let pages = statm.expect("statm").split(' ').nth(1).map(|word| word.parse::<u64>());
        pages.expect("a second word").expect("a number") * 4096
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.join("server.log")).unwrap_or_default()
    }

    #[track_caller]
    fn end(mut self) {
        self.running.signal(Signal::TERM);
        let status = self.running.wait(SOON);
        let said = self.said();
        assert!(status.success() && !said.contains("panicked"), "{status}: {said}");
    }
}

/// A port of this machine, which a server may listen at as long as the socket is not closed.
fn reserve_port() -> (u16, OwnedFd) {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    sockopt::set_socket_reuseaddr(&socket, true).expect("a socket");
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = SocketAddrV4::try_from(getsockname(&socket).expect("bound")).expect("of IPv4");
    (address.port(), socket)
}

/// Where programs find the server's files.
fn local(folder: &Folder) -> PathBuf {
    folder.join("local")
}

// ---- what a program finds

#[test]
fn shell_works_in_a_remote_folder_as_in_its_own() {
    let (folder, native) = (Folder::new(), tempfile::tempdir().expect("folder"));
    let server = Server::start(&folder);
    let script = "set -e; cd \"$0\"; echo hello >a; cat a; echo more >>a; wc -l <a; cp a b; \
        mkdir -p d/e; mv b d/e/; ln -s a link; readlink link; cat link; ln a hard; chmod 640 a; \
        touch -d @1000000000 a; stat -c '%s %a %Y %h %n' a; find . -type f | sort >list; cat list; \
        tar cf t.tar --sort=name d; tar tf t.tar; { echo 1; ls; echo 2; } >all; cat all; \
        while read line; do echo \"got $line\"; done <a; rm -r d; test -f a; test -d .; \
        [ -r a ]; test ! -e d; head -c 100000 /dev/zero | tee z | wc -c; cmp a link; \
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

#[test]
fn nothing_outside_the_root_is_reached() {
    let folder = Folder::new();
    let server = Server::start(&folder);
    fs::write(folder.join("secret"), "secret").expect("file");
    fs::create_dir(server.job()).expect("folder");
    let away = folder.join("secret");
    std::os::unix::fs::symlink(&away, server.job().join("away")).expect("link");
    std::os::unix::fs::symlink("../../secret", server.job().join("up")).expect("link");
    for name in ["away", "up", "../.kakehi"] {
        let mut command = server.run(&folder);
        let output = run(command.arg("cat").arg(local(&folder).join(name)), SOON);
        assert!(!output.status.success(), "{name}: {}", text(&output.stdout));
    }
    server.end();
}

// ---- who may come in

#[test]
fn key_file_of_others_and_wrong_keys_are_refused() {
    let folder = Folder::new();
    let server = Server::start(&folder);
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

#[test]
fn garbage_on_the_port_hurts_nobody() {
    let folder = Folder::new();
    let server = Server::start(&folder);
    let mut rng = random("garbage");
    succeed(server.run(&folder).arg("true"), SOON);
    let before = server.rss_bytes();
    for round in 0..200 {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("listens");
        let mut bytes = vec![0; rng.usize(1..20_000)];
        rng.fill(&mut bytes);
        if round % 2 == 0 {
            // A hello that is one, and then nonsense.
            let header = [80_u32, 1, 0, 0].map(u32::to_le_bytes).concat();
            bytes.splice(..0, [&header[..], b"kakehi\0\x02", &[1, 0, 0, 0, 0, 0, 0, 0]].concat());
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

#[test]
fn nothing_is_lost_or_done_twice_when_the_server_is_killed() {
    let folder = Folder::new();
    let mut server = Server::start(&folder);
    let mut rng = random("server kills");
    let mut program = start_rounds(&folder, &mut server.run(&folder), 400);
    for _ in 0..10 {
        pause(Duration::from_millis(rng.u64(20..250)));
        server.kill_and_restart();
    }
    finish_rounds(&folder, &server, &mut program, 400);
    server.end();
}

#[test]
fn program_outlives_a_network_that_stalls_cuts_and_drops() {
    let folder = Folder::new();
    let server = Server::start(&folder);
    let mut rng = random("network");
    let proxy = Proxy::start(server.port);
    let mut command = server.run_through(&folder, proxy.port(), &[]);
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

#[test]
fn server_that_stands_still_is_waited_for() {
    let folder = Folder::new();
    let server = Server::start(&folder);
    let mut program = start_rounds(&folder, &mut server.run(&folder), 100);
    pause(Duration::from_millis(100));
    server.running.signal(Signal::STOP);
    pause(Duration::from_secs(6));
    server.running.signal(Signal::CONT);
    finish_rounds(&folder, &server, &mut program, 100);
    server.end();
}

#[test]
fn server_that_stays_away_is_an_error_in_time_and_for_good() {
    let folder = Folder::new();
    let mut server = Server::start(&folder);
    let script = "cd \"$0\"; echo one >a || exit 1; echo begun; read line; \
        echo two >b && exit 2; echo ended; read line; \
        cat a && exit 3; ls . && exit 4; echo local >../c || exit 5; exit 42";
    let mut command = server.run(&folder);
    command.env("KAKEHI_REMOTE_TIMEOUT", "3s").args(["timeout", "300", "bash", "-c", script]);
    command.arg(local(&folder)).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = Running::start(&mut command);
    let mut output = program.child.stdout.take().expect("piped");
    let said = collect(program.child.stderr.take().expect("piped"));
    let mut input = program.child.stdin.take().expect("piped");
    let mut line = [0; 6];
    output.read_exact(&mut line).expect("begun");
    server.running.signal(Signal::KILL);
    server.running.wait(SOON);
    input.write_all(b"\n").expect("input");
    output.read_exact(&mut line).expect("ended");
    // Back too late: what was given up stays given up.
    server.running = Server::launch(&server.folder, server.port);
    server.published();
    input.write_all(b"\n").expect("input");
    let status = program.wait(SOON);
    let said = text(&said.join().expect("reader"));
    assert_eq!(status.code(), Some(42), "{said}");
    let is_programs = |line: &&str| !line.contains("daemon::");
    let errors = said.lines().filter(is_programs).filter(|l| l.ends_with("Input/output error"));
    assert_eq!(errors.count(), 3, "{said}");
    assert_eq!(fs::read(folder.join("c")).expect("local file"), b"local\n");
    server.end();
}

#[test]
fn what_a_killed_program_had_accepted_arrives() {
    let folder = Folder::new();
    let server = Server::start(&folder);
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

#[test]
fn two_network_namespaces_are_two_nodes() {
    let folder = Folder::new();
    let namespaces = match Namespaces::create() {
        Ok(namespaces) => namespaces,
        Err(why) => return skip("remote files between network namespaces", why),
    };
    fs::create_dir(folder.join("root")).expect("folder");
    let within = |name: &str| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", name]).arg(kakehi()).current_dir(folder.path());
        command.env("XDG_RUNTIME_DIR", folder.path()).env_remove("KAKEHI_JOB");
        command
    };
    let url = format!("tcp://{}:7777", Namespaces::SERVER);
    let mut command = within(&namespaces.server);
    command.args(["serve", "--listen", &url, "--root", "root", "--key", "key"]);
    let mut server = Running::start(command.args(["--address-file", "."]).stderr(Stdio::null()));
    let suffix = format!(".{}", server.child.id());
    let is_up = || {
        let entries = fs::read_dir(folder.path()).expect("folder").flatten();
        entries.into_iter().any(|e| e.file_name().to_string_lossy().ends_with(&suffix))
    };
    assert!(wait_for(SOON, is_up), "the server did not start");
    let mut command = within(&namespaces.client);
    command.args(["run", "--remote", &url, "--key", "key", "--map", "local=/job", "--"]);
    let mut program = start_rounds(&folder, &mut command, 200);
    assert!(wait_for(SOON, || progress(&folder) > 5), "no progress");
    namespaces.link(false);
    pause(Duration::from_secs(3));
    namespaces.link(true);
    assert_eq!(program.wait(LONG).code(), Some(0));
    check_rounds(&folder.join("root/job"), 200);
    server.signal(Signal::TERM);
    server.wait(SOON);
}

/// Two namespaces joined by a pair of interfaces.
struct Namespaces {
    server: String,
    client: String,
}

impl Namespaces {
    const SERVER: &str = "10.213.7.1";
    const CLIENT: &str = "10.213.7.2";

    fn create() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("not root".to_owned());
        }
        let id = std::process::id();
        let this = Self { server: format!("kakehi-s{id}"), client: format!("kakehi-c{id}") };
        let (server, client) = (this.server.as_str(), this.client.as_str());
        ip(&["netns", "add", server])?;
        ip(&["netns", "add", client])?;
        ip(&["-n", server, "link", "add", "kve0", "type", "veth", "peer", "name", "kve1"])?;
        ip(&["-n", server, "link", "set", "kve1", "netns", client])?;
        for (name, address, link) in
            [(server, Self::SERVER, "kve0"), (client, Self::CLIENT, "kve1")]
        {
            ip(&["-n", name, "address", "add", &format!("{address}/24"), "dev", link])?;
            ip(&["-n", name, "link", "set", link, "up"])?;
        }
        Ok(this)
    }

    fn link(&self, is_up: bool) {
        let state = if is_up { "up" } else { "down" };
        ip(&["-n", &self.client, "link", "set", "kve1", state]).expect("link");
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in [&self.server, &self.client] {
            ip(&["netns", "delete", name]).ok(); // It may never have been made.
        }
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|why| format!("ip: {why}"))?;
    if output.status.success() { Ok(()) } else { Err(text(&output.stderr)) }
}

// ---- the program that counts

#[track_caller]
fn start_rounds(folder: &Folder, command: &mut Command, count: u32) -> Running {
    command.arg(program("remote")).arg(local(folder)).arg(count.to_string());
    let log = fs::File::create(folder.join("program.log")).expect("log");
    command.arg(folder.join("progress")).stdin(Stdio::null());
    Running::start(command.stdout(log.try_clone().expect("log")).stderr(log))
}

/// Rounds that the program has done.
fn progress(folder: &Folder) -> i64 {
    let bytes = fs::read(folder.join("progress")).unwrap_or_default();
    bytes.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes))
}

#[track_caller]
fn finish_rounds(folder: &Folder, server: &Server, program: &mut Running, count: usize) {
    let status = program.wait(LONG);
    let said = fs::read_to_string(folder.join("program.log")).expect("log");
    assert!(status.success(), "{status}: {said} {}", server.said());
    check_rounds(&server.job(), count);
}

/// What the program leaves: every line once and in order, every other file and folder.
#[track_caller]
fn check_rounds(job: &Path, count: usize) {
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
