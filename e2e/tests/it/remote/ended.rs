//! Servers that end in order under programs that use them.

use std::{os::unix::fs::symlink, time::Duration};

use super::{LONG, local};
use crate::{
    harness::{Folder, Running, pause},
    remote::server::{Scheme, Server},
    rigs::Rig,
};

/// Requests that cannot be repeated are done, and their outcome known, before the server is gone.
#[test]
fn server_that_is_told_to_end_finishes_what_it_has_begun() {
    let folder = Folder::new();
    let Some(rig) = Rig::start(&folder, "slowfs", "--metadata 5ms") else { return };
    symlink(rig.mount(), folder.join("root")).expect("a link");
    let mut server = Server::start(&folder, Scheme::Tcp);
    let script = "cd \"$0\" && for n in $(seq 12); do mkdir d && rmdir d || exit 1; done";
    let mut command = server.run(&folder);
    command.args(["sh", "-c", script]).arg(local(&folder));
    let mut job = Running::start(&mut command);
    let mut ends = 0_u64;
    while job.child.try_wait().expect("a child").is_none() {
        pause(Duration::from_millis(ends % 50));
        server.end_and_restart();
        ends += 1;
    }
    assert!(job.wait(LONG).success() && ends > 3, "after {ends}: {}", server.said());
    server.end();
    rig.stop();
}
