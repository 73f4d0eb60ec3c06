//! A multifile that may not be written is read, by any number of runs.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// Makes a multifile with three files that nobody may write.
fn made(folder: &Folder) -> Vec<u8> {
    let script =
        "set -e; cd \"$0\"; mkdir d; echo one >a; head -c 3000000 /dev/zero >d/z; ln -s a l";
    succeed(coalescing(folder).args(["bash", "-c", script]).arg(local(folder)), SOON);
    may_be_written(folder, false);
    fs::read(kept(folder)).expect("made")
}

fn may_be_written(folder: &Folder, may: bool) {
    let mode = if may { 0o644 } else { 0o444 };
    fs::set_permissions(kept(folder), fs::Permissions::from_mode(mode)).expect("ours");
}

#[test]
fn any_number_of_runs_read_it_and_none_writes_it() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let before = made(&folder);
    let mut command = coalescing(&folder);
    let wait = "exec 3<\"$0/a\"; echo begun; read line; cat <&3";
    command.args(["bash", "-c", wait]).arg(local(&folder));
    let mut first = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let output = first.child.stdout.take().expect("piped");
    let mut output = std::io::BufReader::new(output);
    let mut line = || {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut output, &mut line).expect("a line");
        line
    };
    assert_eq!(line(), "begun\n");

    let mut second = coalescing(&folder);
    let script = "cd \"$0\"; find . | sort; cat l; wc -c <d/z; [ -r a ] && echo r; \
        [ -w a ] || echo w; \
        for call in 'echo >a' 'echo >new' 'rm a' 'mkdir n' 'mv a b' 'ln a h' 'ln -s a s' \
        'chmod 600 a' 'touch a' 'truncate -s 1 a' 'mkdir d'; do (eval \"$call\") 2>&1 \
        | sed 's/.*: //'; done";
    second.env("KAKEHI_JOB", "second").args(["bash", "-c", script]).arg(local(&folder));
    let output = run(&mut second, SOON);
    let refused = "Read-only file system\n".repeat(10);
    let expected = format!(".\n./a\n./d\n./d/z\n./l\none\n3000000\nr\nw\n{refused}File exists\n");
    assert_eq!(text(&output.stdout), expected);
    let told = format!("{} may not be written", kept(&folder).display());
    assert!(text(&output.stderr).contains(&told), "{}", text(&output.stderr));

    may_be_written(&folder, true);
    let mut writer = coalescing(&folder);
    let output = run(writer.env("KAKEHI_JOB", "writer").arg("true"), SOON);
    assert!(text(&output.stderr).contains("another daemon or server has it"));
    drop(first.child.stdin.take());
    assert_eq!(line(), "one\n");
    assert!(first.wait(SOON).success());
    assert!(fs::read(kept(&folder)).expect("there") == before, "it was changed");
    succeed(coalescing(&folder).arg("touch").arg(local(&folder).join("new")), SOON);
}

#[test]
fn a_folder_in_it_may_be_written_elsewhere() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let before = made(&folder);
    let inner = format!("{}={}", local(&folder).join("o/p").display(), folder.join("o").display());
    for said in ["", "1\n"] {
        let flag = format!("{}={}", local(&folder).display(), kept(&folder).display());
        let mut command = kakehi_run(&folder, &["--coalesce", &flag, "--coalesce", &inner]);
        let script = "cd \"$0\"; ls o; cat a; cat o/p/f 2>/dev/null; echo 1 >o/p/f; echo 2 >o/f";
        let output = run(command.args(["bash", "-c", script]).arg(local(&folder)), SOON);
        assert_eq!(text(&output.stdout), format!("p\none\n{said}"));
        assert!(text(&output.stderr).contains("o/f: Read-only file system"));
    }
    assert!(fs::read(kept(&folder)).expect("there") == before, "it was changed");
}

#[test]
fn one_that_was_not_closed_or_holds_nothing_is_refused() {
    crate::views::needs_view!();
    let folder = Folder::new();
    made(&folder);
    may_be_written(&folder, true);
    let mut command = coalescing(&folder);
    command.args(["sh", "-c", "echo 1 >\"$0/b\"; sync \"$0/b\"; echo 1 >\"$1\"; exec sleep 100"]);
    let begun = folder.join("begun");
    let running = Running::start(command.arg(local(&folder)).arg(&begun).stdin(Stdio::null()));
    assert!(wait_for(SOON, || begun.exists()));
    kill_all(&folder);
    drop(running);
    may_be_written(&folder, false);
    let refused = |why: &str| {
        let output = run(coalescing(&folder).arg("true"), SOON);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    };
    refused("kakehi multifile repair");
    fs::remove_file(kept(&folder)).expect("there");
    refused("bring the first one back");
    fs::remove_file(kept(&folder).with_extension("sion.000001")).expect("there");
    fs::write(kept(&folder), "").expect("made");
    may_be_written(&folder, false);
    refused("name a file that you may write");
}
