//! Files that children are handed, and what others find who have them open, too.

use std::process::Command;

use super::{LONG, local};
use crate::{
    harness::{Folder, python, succeed},
    remote::server::{Scheme, Server},
};

/// What a child has written is in the file when it has ended, as natively: it came by a pipe.
#[test]
fn whoever_goes_on_with_a_file_finds_what_a_child_wrote() {
    let Some(program) = python("files of children", "handed") else { return };
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let [python, script] = &program;
    assert_eq!(succeed(Command::new(python).arg(script).arg(folder.path()), LONG), "");
    assert_eq!(succeed(server.run(&folder).args(&program).arg(local(&folder)), LONG), "");
    server.end();
}
