//! A server of remote files, and what carries the requests to it.

use std::{
    fmt, fs,
    net::{Ipv4Addr, SocketAddrV4},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::{
    fd::OwnedFd,
    net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt},
    process::Signal,
};

use crate::harness::{Folder, Running, SOON, kakehi, kakehi_run, skip, wait_for};

/// Transport of requests and replies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scheme {
    Tcp,
    Ucx,
}

impl Scheme {
    /// True if this machine has it; says loudly that `what` was not tested where it has not.
    pub(crate) fn is_here(self, what: &str) -> bool {
        let Self::Ucx = self else { return true };
        const LIBRARY: &[u8] = b"libucp.so.0";
        // What the dynamic linker knows of.
        let libraries = fs::read("/etc/ld.so.cache").unwrap_or_default();
        let is_here = libraries.windows(LIBRARY.len()).any(|name| name == LIBRARY);
        if !is_here {
            skip(what, "no libucp.so.0: install libucx0");
        }
        is_here
    }

    pub(crate) fn url(self, host: &str, port: u16) -> String {
        format!("{self}://{host}:{port}")
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Ucx => "ucx",
        })
    }
}

const HOST: &str = "127.0.0.1";

/// A server, and where it is.
pub(crate) struct Server {
    pub(crate) running: Running,
    pub(crate) folder: PathBuf,
    pub(crate) port: u16,
    scheme: Scheme,
    /// Of `serve`, besides those of all servers.
    more: &'static [&'static str],
    /// Bound, so that nobody else gets the port while the server is away.
    _reserved: OwnedFd,
}

impl Server {
    #[track_caller]
    pub(crate) fn start(folder: &Folder, scheme: Scheme) -> Self {
        Self::start_with(&[], folder, scheme, &[])
    }

    /// A server that keeps `/job` in the multifile `job.sion`, beside its root.
    #[track_caller]
    pub(crate) fn start_coalescing(folder: &Folder, scheme: Scheme) -> Self {
        Self::start_with(&[], folder, scheme, &["--coalesce", "root/job=job.sion"])
    }

    /// A server that keeps `/packed` in the multifile `kept.sion` of `/job`.
    #[track_caller]
    pub(crate) fn start_keeping_below(folder: &Folder, scheme: Scheme) -> Self {
        Self::start_with(&[], folder, scheme, &["--coalesce", "root/packed=root/job/kept.sion"])
    }

    /// As [`start`](Self::start), executed by the program that the first word names.
    #[track_caller]
    pub(crate) fn start_under(wrapper: &[&Path], folder: &Folder, scheme: Scheme) -> Self {
        Self::start_with(wrapper, folder, scheme, &[])
    }

    #[track_caller]
    fn start_with(
        wrapper: &[&Path],
        folder: &Folder,
        scheme: Scheme,
        more: &'static [&'static str],
    ) -> Self {
        let folder = folder.path().to_owned();
        let (port, _reserved) = reserve_port();
        fs::create_dir_all(folder.join("root")).expect("folder");
        let running = Self::launch(wrapper, &folder, &scheme.url(HOST, port), more);
        let server = Self { running, folder, port, scheme, more, _reserved };
        assert_eq!(server.published(), port);
        server
    }

    #[track_caller]
    fn launch(wrapper: &[&Path], folder: &Path, url: &str, more: &[&str]) -> Running {
        let kakehi = kakehi();
        let words = [wrapper, &[&kakehi]].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        command.env("XDG_RUNTIME_DIR", folder).env_remove("KAKEHI_JOB").current_dir(folder);
        command.args(["serve", "--listen", url, "--root", "root"]);
        command.args(["--key", "key", "--address-file", "."]).args(more).stdin(Stdio::null());
        command.stderr(fs::File::create(folder.join("server.log")).expect("log"));
        Running::start(&mut command)
    }

    /// A server of another folder, with a key of its own, at the port of this one.
    pub(crate) fn another_at_its_port(&self, folder: &Folder) -> Running {
        fs::create_dir(folder.join("root")).expect("folder");
        Self::launch(&[], folder.path(), &self.scheme.url(HOST, self.port), &[])
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
    pub(crate) fn kill_and_restart(&mut self) {
        self.kill();
        self.restart();
    }

    #[track_caller]
    pub(crate) fn kill(&mut self) {
        self.running.signal(Signal::KILL);
        self.running.wait(SOON);
    }

    /// In order.
    #[track_caller]
    pub(crate) fn end_and_restart(&mut self) {
        self.running.signal(Signal::TERM);
        assert!(self.running.wait(SOON).success(), "{}", self.said());
        self.restart();
    }

    #[track_caller]
    pub(crate) fn restart(&mut self) {
        let url = self.scheme.url(HOST, self.port);
        self.running = Self::launch(&[], &self.folder, &url, self.more);
        self.published();
    }

    /// `kakehi run` with this server's `/job` at `local`, reached through `port`.
    pub(crate) fn run_through(&self, folder: &Folder, port: u16, scheme: Scheme) -> Command {
        let flags = self.flags_at(&scheme.url(HOST, port), &folder.join("local"));
        kakehi_run(folder, &flags.each_ref().map(String::as_str))
    }

    /// Returns the flags that make `local` this server's `/job`.
    pub(crate) fn flags(&self, local: &Path) -> [String; 6] {
        self.flags_at(&self.scheme.url(HOST, self.port), local)
    }

    fn flags_at(&self, url: &str, local: &Path) -> [String; 6] {
        let (key, map) = (self.folder.join("key"), format!("{}=/job", local.display()));
        let key = key.to_str().expect("UTF-8");
        ["--remote", url, "--key", key, "--map", &map].map(str::to_owned)
    }

    pub(crate) fn run(&self, folder: &Folder) -> Command {
        self.run_through(folder, self.port, self.scheme)
    }

    /// Returns the server's folder of the job.
    pub(crate) fn job(&self) -> PathBuf {
        self.folder.join("root/job")
    }

    pub(crate) fn rss_bytes(&self) -> u64 {
        let statm = fs::read_to_string(format!("/proc/{}/statm", self.running.child.id()));
        let pages = statm.expect("statm").split(' ').nth(1).map(|word| word.parse::<u64>());
        pages.expect("a second word").expect("a number") * 4096
    }

    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.folder.join("server.log")).unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn end(mut self) {
        self.running.signal(Signal::TERM);
        let status = self.running.wait(SOON);
        let said = self.said();
        assert!(status.success() && !said.contains("panicked"), "{status}: {said}");
    }
}

/// A port of this machine, which a server may listen at as long as the socket is not closed.
pub(crate) fn reserve_port() -> (u16, OwnedFd) {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    sockopt::set_socket_reuseaddr(&socket, true).expect("a socket");
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = SocketAddrV4::try_from(getsockname(&socket).expect("bound")).expect("of IPv4");
    (address.port(), socket)
}
