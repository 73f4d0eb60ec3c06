//! Where a coalesced folder borders on what is around it.

use std::os::unix::fs::symlink;

use super::*;

/// A link beside the folder, one to a file in it, and one to where a file is to be.
#[test]
fn links_from_outside_lead_into_the_multifile() {
    let folder = Folder::new();
    let server = Server::start_coalescing(&folder, Scheme::Tcp);
    let root = folder.join("root");
    for (text, name) in [("job", "l"), ("l/d/f", "file"), ("job/new", "to")] {
        symlink(text, root.join(name)).expect("link");
    }
    let mut flags = server.flags(&local(&folder));
    flags[5] = format!("{}=/", local(&folder).display());
    let mut command = kakehi_run(&folder, &flags.each_ref().map(String::as_str));
    let script = "set -e; cd \"$0\"; mkdir l/d; echo one >l/d/f; cat job/d/f file; echo two >to; \
        cat job/new; ls l/ l/d; mv l/d/f job/f; cat l/f; stat -c %F l job; \
        rm l/f; ls job; echo out >plain; cat plain; \
        ln -s job l2; echo three >l2/three; cat l/three; truncate -s 1 l2/three; wc -c <job/three; \
        cd l/d; pwd -P >/dev/null; : >here; ls ../../job/d";
    let found = succeed(command.args(["bash", "-c", script]).arg(local(&folder)), SOON);
    let expected = "one\none\ntwo\nl/:\nd\nnew\n\nl/d:\nf\none\nsymbolic link\ndirectory\nd\nnew\n\
        out\nthree\n1\nhere\n";
    assert_eq!(found, expected);
    server.end();
    assert_eq!(fs::read_dir(root.join("job")).expect("made").count(), 0, "the folder is used");
    let out = extracted(&folder, &folder.join("job.sion"), "out");
    assert!(out.join("d/here").exists() && out.join("new").exists());
}

#[test]
fn a_coalesced_folder_in_another_one_is_listed_there() {
    let folder = Folder::new();
    let flag = |at: &str, file: &str| {
        format!("{}={}", local(&folder).join(at).display(), folder.join(file).display())
    };
    let flags = [flag("", "kept.sion"), flag("b/c", "inner.sion")];
    let run = || kakehi_run(&folder, &["--coalesce", &flags[0], "--coalesce", &flags[1]]);
    let script = "set -e; cd \"$0\"; ls; ls b; echo in >b/c/f; echo out >b/f; ls b b/c; \
        if mv b d 2>err; then exit 1; fi; if rmdir b/c 2>err; then exit 1; fi; rm err; \
        ln -s b/c l; if cat l/f 2>/dev/null; then exit 1; fi; find . | sort";
    let found = succeed(run().args(["bash", "-c", script]).arg(local(&folder)), SOON);
    let expected = "b\nc\nb:\nc\nf\n\nb/c:\nf\n.\n./b\n./b/c\n./b/c/f\n./b/f\n./l\n";
    assert_eq!(found, expected);
    is_closed(&kept(&folder));
    let out = extracted(&folder, &folder.join("inner.sion"), "out");
    assert_eq!(fs::read_to_string(out.join("f")).expect("extracted"), "in\n");
    // Files that the other one would hide.
    let mut other = kakehi_run(&folder, &["--coalesce", &flags[0], "--coalesce", &flag("b", "x")]);
    let output = crate::harness::run(other.arg("true"), SOON);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("would hide"), "{said}");
}
