//! Remote files whose names are exchanged while they are open.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::Stdio,
};

use super::{LONG, local};
use crate::{
    harness::{Folder, Running, python},
    remote::server::{Scheme, Server},
};

#[test]
fn open_files_whose_names_are_exchanged_outlive_their_server() {
    crate::views::needs_view!();
    let Some(program) = python("names that are exchanged", "exchanged") else { return };
    let folder = Folder::new();
    let mut server = Server::start(&folder, Scheme::Tcp);
    let mut command = server.run(&folder);
    command.args(program).arg(local(&folder));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = Running::start(&mut command);
    let mut output = BufReader::new(running.child.stdout.take().expect("piped"));
    let mut said = String::new();
    output.read_line(&mut said).expect("a pipe");
    assert_eq!(said, "exchanged\n");
    for (name, content) in [("one", "other"), ("other", "one")] {
        assert_eq!(fs::read_to_string(server.job().join(name)).expect("there"), content);
    }
    server.kill_and_restart();

    running.child.stdin.take().expect("piped").write_all(b"\n").expect("it waits");

    said.clear();
    output.read_to_string(&mut said).expect("a pipe");
    assert_eq!(said, "one\nother\n", "{}", server.said());
    assert!(running.wait(LONG).success());
    server.end();
}
