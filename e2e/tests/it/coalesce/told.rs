//! What people are told of multifiles.

use std::{path::Path, process::Command};

use super::{coalescing, kept, local};
use crate::{
    harness::{Folder, SOON, kakehi, succeed},
    remote::server::{Scheme, Server},
};

#[test]
fn status_names_the_multifiles_of_a_run_and_of_a_server() {
    let folder = Folder::new();
    let line = |folder: &Path, file: &Path| {
        format!("keeps {} in the multifile {}\n", folder.display(), file.display())
    };
    let status = format!("env -u LD_PRELOAD {} status", kakehi().display());
    let said = succeed(coalescing(&folder).args(["sh", "-c", &status]), SOON);
    assert!(said.contains(&line(&local(&folder), &kept(&folder))), "{said}");

    let server = Server::start_coalescing(&folder, Scheme::Tcp);
    let socket = folder.join("kakehi").join(server.running.child.id().to_string());
    let mut command = Command::new(kakehi());
    let said = succeed(command.args(["status", "--socket"]).arg(socket), SOON);
    let [root, file] = ["root/job", "job.sion"].map(|name| folder.join(name));
    assert!(said.contains(&line(&root, &file)), "{said}");
    server.end();
}
