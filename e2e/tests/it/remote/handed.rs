//! Files that children are handed, and what others find who have them open, too.

use std::process::Command;

use super::{LONG, local};
use crate::{
    harness::{Folder, program, python, succeed},
    remote::server::{Scheme, Server},
};

/// A child's writes are in the file when it has ended, as natively: they came through a pipe.
#[test]
fn whoever_goes_on_with_a_file_finds_what_a_child_wrote() {
    crate::views::needs_view!();
    let Some(program) = python("files of children", "handed") else { return };
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let [python, script] = &program;
    assert_eq!(succeed(Command::new(python).arg(script).arg(folder.path()), LONG), "");
    assert_eq!(succeed(server.run(&folder).args(&program).arg(local(&folder)), LONG), "");
    server.end();
}

/// HDF5 opens its files so, `fopen("r+")`, and `std::fstream`.
#[test]
fn whoever_has_made_children_goes_on_reading_and_writing_the_files_they_have() {
    crate::views::needs_view!();
    let native = tempfile::tempdir().expect("folder");
    let program = program("shared");
    let expected = succeed(Command::new(&program).arg(native.path()), LONG);
    for start in [Server::start, Server::start_coalescing] {
        let folder = Folder::new();
        let server = start(&folder, Scheme::Tcp);
        let script = "\"$0\" \"$1\" && diff -r \"$1\" \"$2\"";
        let mut command = server.run(&folder);
        command.args(["sh", "-c", script]).arg(&program).arg(local(&folder)).arg(native.path());
        assert_eq!(succeed(&mut command, LONG), expected);
        server.end();
    }
}
