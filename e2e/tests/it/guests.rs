//! Plants of one user for another: links beside a multifile, folders with their names, and modes in
//! a multifile.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    bad_input::{NOBODY, as_nobody, install},
    harness::{Folder, SOON, kakehi_run, run, succeed, text},
    remote::server::{Scheme, Server},
    views::{can_mount, with_device},
};

/// Beyond the users of any machine that tests run on.
const STRANGER: u32 = 64_123;

/// Files with links to them where a multifile will have its second physical file and its journals.
fn plant_links(folder: &Folder, set: &Path) -> Vec<PathBuf> {
    let suffixes = [".journal", ".000001", ".000001.journal"];
    let planted = suffixes.iter().enumerate().map(|(index, suffix)| {
        let precious = folder.join(format!("precious.{index}"));
        fs::write(&precious, "precious").expect("a file");
        symlink(&precious, format!("{}{suffix}", set.display())).expect("a link");
        precious
    });
    planted.collect()
}

#[track_caller]
fn are_kept(files: &[PathBuf]) {
    for file in files {
        assert_eq!(fs::read_to_string(file).expect("there"), "precious", "{}", file.display());
    }
}

/// Script that fills a second physical file.
const MANY: &str = "cd \"$0\" && for i in $(seq 1 70); do echo $i >f$i; done && cat f70";

#[test]
fn links_planted_beside_a_multifile_are_replaced_and_not_followed() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let (local, kept) = (folder.join("local"), folder.join("kept.sion"));
    let flag = format!("{}={}", local.display(), kept.display());
    let shell = |script: &str| {
        let mut command = kakehi_run(&folder, &["--coalesce", &flag]);
        command.args(["sh", "-c", script]).arg(&local);
        command
    };
    succeed(&mut shell(": >\"$0\"/first"), SOON);
    let precious = plant_links(&folder, &kept);
    assert_eq!(succeed(&mut shell(MANY), SOON).trim(), "70");
    are_kept(&precious);
    let second = fs::symlink_metadata(folder.join("kept.sion.000001")).expect("a second file");
    assert!(second.is_file());
    assert_eq!(succeed(&mut shell("cat \"$0\"/first \"$0\"/f1"), SOON), "1\n");
}

/// To open one would wait for somebody at its other end, for ever.
#[test]
fn pipes_planted_beside_a_multifile_are_replaced_and_not_waited_for() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let flag = format!("local={}", folder.join("kept.sion").display());
    let shell = |script: &str| {
        let mut command = kakehi_run(&folder, &["--coalesce", &flag]);
        command.args(["sh", "-c", script, "local"]).current_dir(folder.path());
        command
    };
    succeed(&mut shell(": >\"$0\"/first"), SOON);
    let pipes = ["kept.sion.journal", "kept.sion.000001"].map(|name| folder.join(name));
    succeed(Command::new("mkfifo").args(&pipes), SOON);
    assert_eq!(succeed(&mut shell(MANY), SOON).trim(), "70");
    assert!(fs::symlink_metadata(&pipes[1]).expect("a second file").is_file());
    assert_eq!(succeed(&mut shell("cat \"$0\"/first \"$0\"/f1"), SOON), "1\n");
}

#[test]
fn multifile_below_a_servers_root_is_out_of_its_clients_reach() {
    crate::views::needs_view!();
    let folder = Folder::new();
    fs::create_dir_all(folder.join("root/job")).expect("folders");
    let precious = plant_links(&folder, &folder.join("root/job/kept.sion"));
    let server = Server::start_keeping_below(&folder, Scheme::Tcp);
    let script = "cd \"$0\"; for name in kept.sion kept.sion.000001 kept.sion.journal; do \
        ln -sf /etc/passwd $name; rm -f $name; cat $name; echo x >$name; mv $name other; done; \
        mkdir ../job/d; mv kept.sion d; cat d/../kept.sion; ls d";
    let mut command = server.run(&folder);
    let output = run(command.args(["sh", "-c", script]).arg(folder.join("local")), SOON);
    assert_eq!(text(&output.stdout), "");
    let said = text(&output.stderr);
    assert!(said.matches("Permission denied").count() >= 16, "{said}");
    // Its files are where the coalesced folder is.
    let map = format!("{}=/packed", folder.join("packed").display());
    let [remote, url, key, path, ..] = server.flags(&folder.join("local"));
    let mut command = kakehi_run(&folder, &[&remote, &url, &key, &path, "--map", &map]);
    command.args(["sh", "-c", MANY]).arg(folder.join("packed"));
    assert_eq!(succeed(&mut command, SOON).trim(), "70");
    server.end();
    are_kept(&precious);
    assert!(fs::symlink_metadata(folder.join("root/job/kept.sion.000001")).expect("it").is_file());
}

/// `program` as a user of this number.
fn as_user(user: u32, program: &Path) -> Option<Command> {
    let nobody = as_nobody(program)?;
    let mut command = Command::new(nobody.get_program());
    let known = NOBODY.to_string();
    command.args(nobody.get_args().map(|word| match word.to_str() {
        Some(word) if word == known => user.to_string().into(),
        _ => word.to_owned(),
    }));
    command.env("HOME", "/").env_remove("XDG_CONFIG_HOME").env_remove("XDG_RUNTIME_DIR");
    command.env_remove("KAKEHI_JOB").current_dir("/");
    Some(command)
}

#[test]
fn jobs_run_where_a_stranger_has_made_their_folder() {
    let folder = Folder::new();
    let bin = install(&folder);
    let Some(mut command) = as_user(STRANGER, &bin.join("kakehi")) else { return };
    let taken = PathBuf::from(format!("/tmp/kakehi-{STRANGER}"));
    fs::create_dir(&taken).expect("nobody has this number");
    // The job finds its daemon by the environment: the inner run joins it.
    let inner = "\"$0\" run -- sh -c 'echo $KAKEHI_SOCKET'; echo $KAKEHI_SOCKET";
    let output = run(command.args(["run", "--", "sh", "-c", inner]).arg(bin.join("kakehi")), SOON);
    fs::remove_dir(&taken).expect("nothing is in it");
    let (said, found) = (text(&output.stderr), text(&output.stdout));
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("not a folder of this user").count(), 1, "{said}");
    let sockets: Vec<_> = found.lines().collect();
    assert!(sockets.len() == 2 && sockets[0] == sockets[1], "{found}");
    assert!(sockets[0].starts_with(&format!("{}.", taken.display())), "{found}");
    assert!(!Path::new(sockets[0]).parent().expect("a base").exists(), "it is left behind");
}

/// A folder of this user.
fn folder_of(folder: &Folder, user: u32) -> PathBuf {
    let path = folder.join(format!("of-{user}"));
    fs::create_dir(&path).expect("a folder");
    chown(&path, Some(user), Some(user)).expect("owner");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("mode");
    path
}

#[test]
fn set_id_bits_in_a_multifile_go_with_a_write_and_not_to_who_extracts_it() {
    let folder = Folder::new();
    let bin = install(&folder);
    if !can_mount("set-user-id bits of another user's files") {
        return;
    }
    let Some(mut command) = as_user(NOBODY, &bin.join("kakehi")) else { return };
    let (theirs, mine) = (folder_of(&folder, NOBODY), folder_of(&folder, STRANGER));
    let script = "cd c; echo a >f; chmod 6755 f; echo b >>f; stat -c %a f; chmod 4711 f; \
        truncate -s 1 f; stat -c %a f; cp /bin/true tool; chmod 6755 tool; mkdir d; chmod 3777 d";
    command.current_dir(&theirs).args(["run", "--coalesce", "c=c.sion", "--", "sh", "-c", script]);
    assert_eq!(succeed(&mut with_device(&folder, command), SOON), "755\n711\n");

    let file = theirs.join("c.sion");
    let modes = |out: &Path| {
        let mode = |name: &str| fs::metadata(out.join(name)).expect("extracted").mode() & 0o7777;
        [mode("tool"), mode("d")]
    };
    let extract = |user: u32, flags: &[&str], out: &Path| {
        let mut command = as_user(user, &bin.join("kakehi")).expect("root");
        command.args(["multifile", "extract"]).args(flags).arg(&file).arg(out);
        let mut shell = Command::new("sh");
        shell.args(["-c", "umask 027; exec \"$@\"", "sh"]).arg(command.get_program());
        succeed(shell.args(command.get_args()).current_dir("/"), SOON);
        modes(out)
    };
    assert_eq!(extract(STRANGER, &[], &mine.join("a")), [0o750, 0o750]);
    assert_eq!(extract(STRANGER, &["-p"], &mine.join("b")), [0o755, 0o1777]);
    assert_eq!(extract(NOBODY, &[], &theirs.join("a")), [0o750, 0o750]);
    assert_eq!(extract(NOBODY, &["--preserve-permissions"], &theirs.join("b")), [0o6755, 0o3777]);
    // To root it says only whose program it is.
    assert_eq!(extract(0, &[], &folder.join("root")), [0o4755, 0o1777]);
}
