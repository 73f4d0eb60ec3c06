//! Links to remote folders, and what no link leads to.

use std::{fs, process::Command};

use super::local;
use crate::{
    harness::{Folder, SOON, kakehi_run, succeed},
    remote::server::{Scheme, Server},
};

/// Whatever was listed before, and whatever a name meant then.
#[test]
fn folders_are_entered_through_links_as_on_a_local_file_system() {
    crate::views::needs_view!();
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

/// Neither links nor `..` lead to what makes a request happen once.
#[test]
fn records_of_the_server_are_in_nobodys_reach() {
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let script = "cd \"$0\"; mkdir sub; ln -s .kakehi records; ln -s .kakehi/spare-0 spare; \
        ln -s .kakehi/new new; echo mine >mine; \
        for own in .kakehi sub/../.kakehi records; do \
            ls $own/ && echo listed $own; mv $own/spare-1 . && echo moved $own; \
            cp mine $own/new && echo made $own; rm $own/spare-2 && echo removed $own; \
            ln $own/spare-3 hard && echo linked $own; \
        done; \
        mv sub/../.kakehi away && echo moved; cat spare && echo read; cp mine spare && echo cut; \
        cp mine new && echo made; for root in . sub/..; do ls -A $root | grep -x .kakehi; done; \
        echo done";
    let mut flags = server.flags(&local(&folder));
    flags[5] = format!("{}=/", local(&folder).display());
    let mut command = kakehi_run(&folder, &flags.each_ref().map(String::as_str));
    let found = succeed(command.args(["bash", "-c", script]).arg(local(&folder)), SOON);
    assert_eq!(found, "done\n");
    server.end();
}
