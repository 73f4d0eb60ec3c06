//! Remote files between two network namespaces, which are two nodes to each other: a network that
//! goes, splits, and loses.

use std::{
    fs,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::Signal;

use crate::{
    harness::{Folder, Running, SOON, kakehi, pause, skip, succeed, text, wait_for},
    remote::{LONG, check_rounds, progress, server::Scheme, start_rounds},
};

/// Rounds of a program that a fault interrupts.
const ROUNDS: u32 = 200;
/// Packets lost on purpose, of about five times as many.
const PACKETS_LOST: u64 = 50;

/// A fault of the network while the program of the folder runs.
type Fault = fn(&Namespaces, &Folder) -> Result<(), String>;

#[test]
fn link_that_goes_down_and_up_costs_time_only() {
    crate::views::needs_view!();
    survives("a link that goes down", |namespaces, folder| {
        namespaces.link(false)?;
        assert_stands_still(folder, Duration::from_secs(3));
        namespaces.link(true)
    });
}

#[test]
fn partition_costs_time_only() {
    crate::views::needs_view!();
    survives("a partition", |namespaces, folder| {
        namespaces.drop_packets("-A", &[])?;
        // Longer than the client waits for a server that says nothing.
        assert_stands_still(folder, Duration::from_secs(6));
        assert!(namespaces.dropped() > 0, "nothing was dropped");
        namespaces.drop_packets("-D", &[])
    });
}

#[test]
fn packets_that_are_lost_cost_time_only() {
    crate::views::needs_view!();
    survives("packet loss", |namespaces, _| {
        let some = ["-m", "statistic", "--mode", "random", "--probability", "0.2"];
        namespaces.drop_packets("-A", &some)?;
        let lost = || namespaces.dropped() >= PACKETS_LOST;
        assert!(wait_for(LONG, lost), "{} packets were lost", namespaces.dropped());
        namespaces.drop_packets("-D", &some)
    });
}

/// The kernel would send it again for a minute or more, when others may have written the file.
#[test]
fn what_has_failed_in_a_partition_does_not_happen_after_it() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let nodes = match Nodes::start(&folder, Scheme::Tcp) {
        Ok(nodes) => nodes,
        Err(why) => return skip("what is left of a partition", why),
    };
    let (local, mut command) = (folder.join("local"), nodes.on_client());
    command.env("KAKEHI_REMOTE_TIMEOUT", "1s").arg(kakehi()).arg("run").args(nodes.flags(&local));
    let script = "echo one >\"$0\" && echo begun && read line && ! echo two >\"$0\" && exit 42";
    command.args(["--", "bash", "-c", script]).arg(local.join("a"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut program = Running::start(&mut command);
    let mut begun = [0; 6];
    program.child.stdout.take().expect("piped").read_exact(&mut begun).expect("begun");
    if let Err(why) = nodes.namespaces.drop_packets("-A", &[]) {
        return skip("what is left of a partition", why);
    }
    program.child.stdin.take().expect("piped").write_all(b"\n").expect("input");
    assert_eq!(program.wait(LONG).code(), Some(42));
    let sockets = succeed(nodes.on_client().args(["cat", "/proc/net/tcp"]), SOON);
    let to_server = format!(":{:04X} ", Nodes::PORT);
    assert!(!sockets.contains(&to_server), "the kernel still sends: {sockets}");
    nodes.namespaces.drop_packets("-D", &[]).expect("a rule");
    assert_eq!(fs::read(nodes.job().join("a")).expect("written"), b"one\n");
    nodes.end();
}

/// UCX looks at a node's devices but once.
#[test]
fn network_that_comes_up_after_the_server_is_used() {
    crate::views::needs_view!();
    for scheme in [Scheme::Tcp, Scheme::Ucx] {
        if !scheme.is_here("a network that comes up late") {
            return;
        }
        let folder = Folder::new();
        let start = || {
            let namespaces = Namespaces::create()?;
            namespaces.link(false)?;
            let nodes = Nodes::start_in(namespaces, &folder, scheme);
            nodes.namespaces.link(true).map(|()| nodes)
        };
        let nodes = match start() {
            Ok(nodes) => nodes,
            Err(why) => return skip("a network that comes up late", why),
        };
        let (local, mut command) = (folder.join("local"), nodes.on_client());
        command.arg(kakehi()).arg("run").args(nodes.flags(&local)).arg("--");
        succeed(command.args(["sh", "-c", "echo x >\"$0\"/a"]).arg(&local), LONG);
        assert_eq!(fs::read(nodes.job().join("a")).expect("written"), b"x\n");
        nodes.end();
    }
}

/// Runs a program over a network that fails once it has begun, by either transport.
#[track_caller]
fn survives(what: &str, fault: Fault) {
    for scheme in [Scheme::Tcp, Scheme::Ucx] {
        if !scheme.is_here(what) {
            return;
        }
        if let Err(why) = survives_over(scheme, fault) {
            return skip(what, why);
        }
    }
}

/// `Err`: why there can be no such fault here.
#[track_caller]
fn survives_over(scheme: Scheme, fault: Fault) -> Result<(), String> {
    let folder = Folder::new();
    let nodes = Nodes::start(&folder, scheme)?;
    let mut command = nodes.on_client();
    // No loss, however unlucky, is to be taken for a server that stays away.
    command.env("KAKEHI_REMOTE_TIMEOUT", "10min").arg(kakehi()).arg("run");
    command.args(nodes.flags(&folder.join("local"))).arg("--");
    let mut program = start_rounds(&folder, &mut command, ROUNDS);
    assert!(wait_for(SOON, || progress(&folder) > 2), "no progress");
    fault(&nodes.namespaces, &folder)?;
    assert_eq!(program.wait(LONG).code(), Some(0), "over {scheme}");
    let count = usize::try_from(ROUNDS).expect("a count");
    check_rounds(&nodes.job(), count);
    nodes.end();
    Ok(())
}

/// The program gets no further for so long than by what is on its way: nothing comes through.
#[track_caller]
fn assert_stands_still(folder: &Folder, time: Duration) {
    let done = progress(folder);
    pause(time);
    let gained = progress(folder) - done;
    assert!(gained <= 1 && done < i64::from(ROUNDS), "{gained} rounds after {done}");
}

/// A server on a node of its own, and a node for its client.
pub(crate) struct Nodes {
    namespaces: Namespaces,
    server: Running,
    url: String,
    folder: PathBuf,
}

impl Nodes {
    const PORT: u16 = 7777;

    /// Starts the server; `Err`: why there can be no nodes here.
    #[track_caller]
    pub(crate) fn start(folder: &Folder, scheme: Scheme) -> Result<Self, String> {
        Ok(Self::start_in(Namespaces::create()?, folder, scheme))
    }

    #[track_caller]
    fn start_in(namespaces: Namespaces, folder: &Folder, scheme: Scheme) -> Self {
        let folder = folder.path().to_owned();
        fs::create_dir_all(folder.join("root")).expect("folder");
        let url = scheme.url(Namespaces::SERVER, Self::PORT);
        let mut command = within(&namespaces.server, &folder);
        command.arg(kakehi()).args(["serve", "--listen", &url, "--root", "root", "--key", "key"]);
        let server = Running::start(command.args(["--address-file", "."]).stderr(Stdio::null()));
        let suffix = format!(".{}", server.child.id());
        let is_up = || {
            let entries = fs::read_dir(&folder).expect("folder").flatten();
            entries.into_iter().any(|e| e.file_name().to_string_lossy().ends_with(&suffix))
        };
        assert!(wait_for(SOON, is_up), "the server did not start");
        Self { namespaces, server, url, folder }
    }

    /// Returns a command that runs the program to be appended on the client's node.
    pub(crate) fn on_client(&self) -> Command {
        within(&self.namespaces.client, &self.folder)
    }

    /// Returns the flags that make `local` the server's `/job`.
    pub(crate) fn flags(&self, local: &Path) -> [String; 6] {
        let (key, map) = (self.folder.join("key"), format!("{}=/job", local.display()));
        ["--remote", &self.url, "--key", key.to_str().expect("UTF-8"), "--map", &map]
            .map(str::to_owned)
    }

    /// Returns the server's folder of the job.
    pub(crate) fn job(&self) -> PathBuf {
        self.folder.join("root/job")
    }

    #[track_caller]
    pub(crate) fn end(mut self) {
        self.server.signal(Signal::TERM);
        assert!(self.server.wait(SOON).success());
    }
}

/// Returns a command that runs a program in a namespace.
fn within(namespace: &str, folder: &Path) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).current_dir(folder);
    command.env("XDG_RUNTIME_DIR", folder).env_remove("KAKEHI_JOB");
    // They share this machine's memory, which two nodes do not.
    command.env("UCX_TLS", "tcp");
    command
}

/// Two namespaces joined by a pair of interfaces. They go with the test, rules and all.
struct Namespaces {
    server: String,
    client: String,
}

impl Namespaces {
    const SERVER: &str = "10.213.7.1";
    const CLIENT: &str = "10.213.7.2";

    fn create() -> Result<Self, String> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            return Err("not root".to_owned());
        }
        let id = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let this = Self { server: format!("kakehi-s{id}"), client: format!("kakehi-c{id}") };
        let (server, client) = (this.server.as_str(), this.client.as_str());
        execute("ip", &["netns", "add", server])?;
        execute("ip", &["netns", "add", client])?;
        let pair = ["link", "add", "kve0", "type", "veth", "peer", "name", "kve1"];
        execute("ip", &[&["-n", server], &pair[..]].concat())?;
        execute("ip", &["-n", server, "link", "set", "kve1", "netns", client])?;
        for (name, address, link) in
            [(server, Self::SERVER, "kve0"), (client, Self::CLIENT, "kve1")]
        {
            execute("ip", &["-n", name, "address", "add", &format!("{address}/24"), "dev", link])?;
            for link in [link, "lo"] {
                execute("ip", &["-n", name, "link", "set", link, "up"])?;
            }
        }
        Ok(this)
    }

    fn link(&self, is_up: bool) -> Result<(), String> {
        let state = if is_up { "up" } else { "down" };
        execute("ip", &["-n", &self.client, "link", "set", "kve1", state])
    }

    /// Adds (`-A`) or deletes (`-D`) a rule on both sides that drops what comes in.
    fn drop_packets(&self, change: &str, which: &[&str]) -> Result<(), String> {
        for name in [&self.server, &self.client] {
            let before = ["netns", "exec", name, "iptables", change, "INPUT"];
            execute("ip", &[&before[..], which, &["-j", "DROP"]].concat())?;
        }
        Ok(())
    }

    /// Packets that the rules have dropped.
    fn dropped(&self) -> u64 {
        let counted = |name: &String| {
            let list = ["netns", "exec", name, "iptables", "-L", "INPUT", "-nvx"];
            let list = succeed(Command::new("ip").args(list), SOON);
            let rules = list.lines().filter(|line| line.contains("DROP"));
            let count =
                |rule: &str| rule.split_whitespace().next().and_then(|word| word.parse().ok());
            rules.map(|rule| count(rule).unwrap_or(0)).sum::<u64>()
        };
        [&self.server, &self.client].into_iter().map(counted).sum()
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in [&self.server, &self.client] {
            execute("ip", &["netns", "delete", name]).ok(); // It may never have been made.
        }
    }
}

fn execute(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|why| format!("{program}: {why}"))?;
    if output.status.success() { Ok(()) } else { Err(text(&output.stderr)) }
}
