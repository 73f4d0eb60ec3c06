//! Remote files between two network namespaces, which are two nodes to each other: a network that
//! goes, splits, and loses.

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::Signal;

use crate::{
    harness::{Folder, Running, SOON, kakehi, pause, skip, text, wait_for},
    remote::{LONG, check_rounds, progress, server::Scheme, start_rounds},
};

/// What happens to the network while the program runs.
type Fault = fn(&Namespaces) -> Result<(), String>;

#[test]
fn link_that_goes_down_and_up_costs_time_only() {
    for scheme in [Scheme::Tcp, Scheme::Ucx] {
        if scheme.is_here("a link that goes down") {
            survives("a link that goes down", scheme, 200, |namespaces| {
                namespaces.link(false)?;
                pause(Duration::from_secs(3));
                namespaces.link(true)
            });
        }
    }
}

#[test]
fn partition_costs_time_only() {
    survives("a partition", Scheme::Tcp, 200, |namespaces| {
        namespaces.drop_packets("-A", &[])?;
        // Longer than the client waits for a server that says nothing.
        pause(Duration::from_secs(6));
        namespaces.drop_packets("-D", &[])
    });
}

#[test]
fn packets_that_are_lost_cost_time_only() {
    survives("packet loss", Scheme::Tcp, 12, |namespaces| {
        namespaces
            .drop_packets("-A", &["-m", "statistic", "--mode", "random", "--probability", "0.2"])
    });
}

/// Runs a program of so many rounds over a network that fails once it has begun.
#[track_caller]
fn survives(what: &str, scheme: Scheme, rounds: u32, fault: Fault) {
    let folder = Folder::new();
    let namespaces = match Namespaces::create() {
        Ok(namespaces) => namespaces,
        Err(why) => return skip(what, why),
    };
    fs::create_dir(folder.join("root")).expect("folder");
    let within = |name: &str| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", name]).arg(kakehi()).current_dir(folder.path());
        command.env("XDG_RUNTIME_DIR", folder.path()).env_remove("KAKEHI_JOB");
        // They share this machine's memory, which two nodes do not.
        command.env("UCX_TLS", "tcp");
        command
    };
    let url = scheme.url(Namespaces::SERVER, 7777);
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
    // No loss, however unlucky, is to be taken for a server that stays away.
    command.env("KAKEHI_REMOTE_TIMEOUT", "10min");
    command.args(["run", "--remote", &url, "--key", "key", "--map", "local=/job", "--"]);
    let mut program = start_rounds(&folder, &mut command, rounds);
    assert!(wait_for(SOON, || progress(&folder) > 2), "no progress");
    if let Err(why) = fault(&namespaces) {
        return skip(what, why);
    }
    assert_eq!(program.wait(LONG).code(), Some(0));
    let count = usize::try_from(rounds).expect("a count");
    check_rounds(&folder.join("root/job"), count);
    server.signal(Signal::TERM);
    server.wait(SOON);
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
            execute("ip", &["-n", name, "link", "set", link, "up"])?;
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
