//! Remote files that a program on the server's node has a lease on, as a file server may.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use super::local;
use crate::{
    harness::{Folder, Running, SOON, python, succeed},
    remote::server::{Scheme, Server},
};

/// As natively: the kernel asks for it, and the open waits.
#[test]
fn who_opens_a_file_waits_until_a_lease_on_it_is_given_up() {
    crate::views::needs_view!();
    let Some([python, holder]) = python("leases", "leased") else { return };
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    fs::create_dir(server.job()).expect("folder");
    let file = server.job().join("file");
    for (script, content) in [("echo a >\"$0\"", "a\n"), ("echo b >>\"$0\"", "old\nb\n")] {
        fs::write(&file, "old\n").expect("file");
        let mut command = Command::new(&python);
        let mut holder = Running::start(command.arg(&holder).arg(&file).stdout(Stdio::piped()));
        let mut said = String::new();
        let output = holder.child.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut said).expect("a pipe");
        assert_eq!(said, "leased\n");
        let mut command = server.run(&folder);
        succeed(command.args(["sh", "-c", script]).arg(local(&folder).join("file")), SOON);
        assert_eq!(fs::read_to_string(&file).expect("there"), content);
        assert!(holder.wait(SOON).success());
    }
    server.end();
}
