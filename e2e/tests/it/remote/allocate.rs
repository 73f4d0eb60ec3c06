//! Space for a remote file where the server's file system cannot reserve any.

use std::{fs, process::Command};

use rustix::io::Errno;

use super::local;
use crate::{
    harness::{Folder, SOON, program, succeed},
    remote::server::{Scheme, Server},
};

/// Error that `forbid` gives on every file system.
const NO_FALLOCATE: &str = "EOPNOTSUPP";

#[test]
fn space_is_written_where_the_servers_file_system_has_no_fallocate() {
    let folder = Folder::new();
    let (forbid, allocate) = (program("forbid"), program("allocate"));
    let mut native = Command::new(&forbid);
    native.arg(NO_FALLOCATE).arg(&allocate).arg(folder.path());
    let native = succeed(&mut native, SOON);
    let refused = format!("fallocate: {}", Errno::OPNOTSUPP.raw_os_error());
    assert!(native.starts_with(&refused), "{native}");

    let server = Server::start_under(&[&forbid, NO_FALLOCATE.as_ref()], &folder, Scheme::Tcp);
    let remote = succeed(server.run(&folder).arg(&allocate).arg(local(&folder)), SOON);
    assert_eq!(remote, native);
    let (ours, theirs) = (folder.join("file"), server.job().join("file"));
    assert!(fs::read(ours).expect("made") == fs::read(theirs).expect("made"), "other bytes");
    server.end();
}
