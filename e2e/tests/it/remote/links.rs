//! Links to remote folders.

use std::{fs, process::Command};

use super::local;
use crate::{
    harness::{Folder, SOON, succeed},
    remote::server::{Scheme, Server},
};

/// Whatever was listed before, and whatever a name meant then.
#[test]
fn folders_are_entered_through_links_as_on_a_local_file_system() {
    let (folder, native) = (Folder::new(), tempfile::tempdir().expect("folder"));
    let server = Server::start(&folder, Scheme::Tcp);
    let script = "cd \"$0\"; mkdir -p d/sub; echo hi >d/f; echo deep >d/sub/g; \
        ln -s d link; ln -s link/sub far; ls; ls link/ far/ link/sub; \
        (cd link; ls \"$0\"; cat f; ls; pwd -P | sed 's/.*local/at/'); \
        (cd far; echo new >../h; cd ..; ls); cp -r link/ copy; cat copy/sub/g; \
        rm d/f; mkdir d/f; ls d/f; rmdir d/f; ln -s sub d/f; ls d/f/; find . -type l | sort; \
        rm -r link; ls -R";
    let native = native.path().join("local");
    fs::create_dir(&native).expect("folder");
    let run =
        |mut command: Command, at| succeed(command.args(["bash", "-c", script]).arg(at), SOON);
    let expected = run(Command::new("env"), native);
    let command = server.run(&folder);
    assert_eq!(run(command, local(&folder)), expected);
    server.end();
}
