//! Folders whose files are kept in a multifile, by the daemon of a job and by a server.

mod bundles;
mod damaged;
mod edges;
mod read_only;
mod rest;
mod told;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    harness::{
        Folder, Running, SOON, kakehi, kakehi_run, pause, processes_of, program, python, random,
        run, skip, stats, succeed, text, wait_for,
    },
    remote::{
        LONG, check_rounds, progress,
        server::{Scheme, Server},
        start_rounds,
    },
};

/// `kakehi run` with the folder `local` in `kept.sion`.
fn coalescing(folder: &Folder) -> Command {
    let flag = format!("{}={}", local(folder).display(), kept(folder).display());
    kakehi_run(folder, &["--coalesce", &flag])
}

fn local(folder: &Folder) -> PathBuf {
    folder.join("local")
}

fn kept(folder: &Folder) -> PathBuf {
    folder.join("kept.sion")
}

fn multifile(arguments: &[&str], file: &Path) -> Command {
    let mut command = Command::new(kakehi());
    let (name, rest) = arguments.split_first().expect("a command");
    command.args(["multifile", name]).arg(file).args(rest);
    command
}

/// Has the files of a multifile in a folder.
fn extracted(folder: &Folder, file: &Path, name: &str) -> PathBuf {
    let to = folder.join(name);
    succeed(multifile(&["extract"], file).arg(&to), SOON);
    to
}

#[track_caller]
fn is_closed(file: &Path) {
    succeed(&mut multifile(&["verify"], file), SOON);
    let journal = PathBuf::from(format!("{}.journal", file.display()));
    assert!(!journal.exists(), "{} is left behind", journal.display());
}

/// Kills all of a job at once, and the daemon first: it would end in order without the others. As
/// often as there is one that has just been started.
#[track_caller]
pub(crate) fn kill_all(folder: &Folder) {
    let kill = || {
        let mut all = processes_of(folder.path());
        all.sort_by_key(|(_, arguments)| !arguments.contains(" serve "));
        for (pid, _) in &all {
            let pid = rustix::process::Pid::from_raw(*pid).expect("a process");
            rustix::process::kill_process(pid, Signal::KILL).ok(); // It may be gone.
        }
        all.is_empty()
    };
    assert!(wait_for(SOON, kill), "{:?}", processes_of(folder.path()));
}

#[test]
fn shell_works_in_a_coalesced_folder_as_in_its_own_and_another_run_goes_on() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let script = "set -e; cd \"$0\"; echo hello >a; cat a; echo more >>a; wc -l <a; cp a b; \
        mkdir -p d/e; mv b d/e/; ln -s a link; readlink link; cat link; ln a hard; chmod 640 a; \
        touch -d @1000000000 a; stat -c '%s %a %Y %h %n' a; : >empty; \
        find . -type f ! -name list | sort >list; cat list; \
        tar cf t.tar --sort=name --mtime=@0 d; tar tf t.tar; { echo 1; ls; echo 2; } >all; \
        cat all; while read line; do echo \"got $line\"; done <a; cp -r d f; rm -r d; test -f a; \
        test -d .; [ -r a ]; test ! -e d; head -c 3000000 /dev/zero | tee z | wc -c; cmp a link; \
        truncate -s 5 a; cat hard; echo; truncate -s 9 a; od -c a; for f in *; do echo $f; done; \
        dd if=/dev/zero of=z bs=1000 count=3 seek=500 conv=notrunc status=none; \
        head -c 10 /dev/zero | dd of=far bs=1 seek=1000000 status=none; sha256sum far z";
    let again = "set -e; cd \"$0\"; cat hard; echo; \
        ls -l | sed 's/  */ /g' | cut -d' ' -f1,2,5,9-; \
        sha256sum far z t.tar; ls f/e; echo on >>a; cat link; mv f g; rm z";
    let native = folder.join("native");
    fs::create_dir(&native).expect("folder");
    for script in [script, again] {
        let expected = succeed(Command::new("bash").arg("-c").arg(script).arg(&native), LONG);
        let mut command = coalescing(&folder);
        let found = succeed(command.arg("bash").arg("-c").arg(script).arg(local(&folder)), LONG);
        // How much of a folder's names take is its file system's own affair.
        let known = |said: &str| -> Vec<String> {
            let lines = said.lines().filter(|line| !line.starts_with("total "));
            lines.map(|line| line.replace(" 4096 ", " ")).collect()
        };
        assert_eq!(known(&found), known(&expected));
        is_closed(&kept(&folder));
    }
    assert_eq!(fs::read_dir(local(&folder)).expect("made").count(), 0, "the folder is used");
    let out = extracted(&folder, &kept(&folder), "out");
    let compare = succeed(Command::new("diff").arg("-r").args([&native, &out]), SOON);
    assert_eq!(compare, "");
    for name in ["a", "g/e/b", "empty"] {
        let [native, out] = [&native, &out].map(|at| fs::metadata(at.join(name)).expect(name));
        let of = |found: &fs::Metadata| (found.mode(), found.size(), found.nlink());
        assert_eq!(of(&out), of(&native), "{name}");
    }
}

/// Expected differences are those of a server, and operations that only a kernel's file system has.
#[test]
fn calls_come_to_what_they_do_natively_but_for_what_is_documented() {
    crate::views::needs_view!();
    let Some(program) = python("coalesced file calls", "fileset") else { return };
    let folder = Folder::new();
    let [python, script] = &program;
    let native = succeed(Command::new(python).arg(script).arg(folder.join("native")), SOON);
    let mut command = coalescing(&folder);
    let found = succeed(command.args(&program).arg(local(&folder).join("kept")), SOON);
    let by_name = |said: &str| -> BTreeMap<String, String> {
        let pairs = said.lines().filter_map(|line| line.split_once(": "));
        pairs.map(|(name, result)| (name.to_owned(), result.to_owned())).collect()
    };
    let (native, found) = (by_name(&native), by_name(&found));
    assert!(native.len() > 60 && native.keys().eq(found.keys()), "{native:?} {found:?}");
    let refused = ["ENOTSUP", "EINVAL", "ENOSYS", "EXDEV", "ENODEV"];
    let differ = found.iter().filter(|(name, result)| native[*name] != **result);
    let differ: BTreeMap<_, _> = differ.collect();
    let is_other = |(name, result): &(&&String, &&String)| {
        !refused.contains(&result.as_str()) && !name.starts_with("mmap")
    };
    // Those show what is in the file, after bytes were moved in it natively.
    let others: Vec<_> = differ.iter().filter(is_other).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(differ.len() < 30, "{differ:?}");
    is_closed(&kept(&folder));
}

#[test]
fn reads_are_right_whatever_is_done() {
    if Command::new("fsx").arg("--version").output().is_err() {
        return skip("fsx on a coalesced file", "not found; 'cargo install fsx' installs it");
    }
    let folder = Folder::new();
    let config = folder.join("fsx.toml");
    let weights = "nosizechecks = true\n[weights]\nclose_open = 1\nread = 10\nwrite = 10\n\
        mapread = 0\nmapwrite = 0\ntruncate = 4\nfsync = 0.02\nfdatasync = 0.02\n\
        posix_fallocate = 1\npunch_hole = 1\nposix_fadvise = 0\n[opsize]\nmin = 1\n";
    fs::write(&config, weights).expect("a file");
    let seed = random("fsx in a multifile").u32(..).to_string();
    let mut command = coalescing(&folder);
    command.arg("fsx").arg("-f").arg(&config).args(["-N", "20000", "-S", &seed]);
    succeed(command.arg(local(&folder).join("file")), LONG);
    is_closed(&kept(&folder));
}

#[test]
fn locks_hold_between_processes() {
    let folder = Folder::new();
    // Four processes count together under each kind of lock.
    let counter = "import fcntl, os, sys\n\
        fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)\n\
        for _ in range(100):\n \
        getattr(fcntl, sys.argv[2])(fd, fcntl.LOCK_EX)\n \
        n = int(os.pread(fd, 20, 0) or b'0')\n \
        os.pwrite(fd, b'%020d' % (n + 1), 0)\n \
        getattr(fcntl, sys.argv[2])(fd, fcntl.LOCK_UN)\n";
    if python("locks in a multifile", "fileset").is_none() {
        return;
    }
    let script = "for kind in flock lockf; do for i in 1 2 3 4; do \
        python3 -c \"$1\" \"$0/$kind\" $kind & done; wait; cat \"$0/$kind\"; echo; done";
    let mut command = coalescing(&folder);
    let found =
        succeed(command.args(["bash", "-c", script]).arg(local(&folder)).arg(counter), LONG);
    assert_eq!(found, format!("{:020}\n{:020}\n", 400, 400));
}

/// More files than a physical file has tasks for.
#[test]
fn thousands_of_files_of_many_processes_are_a_few_physical_files() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let script = "mkdir \"$0/d\"; for p in 0 1 2 3 4 5 6 7; do ( for i in $(seq 300); do \
        echo \"rank $p file $i\" >\"$0/d/$p.$i\"; done ) & done; wait; ls \"$0/d\" | wc -l";
    let mut command = coalescing(&folder);
    let found = succeed(command.args(["bash", "-c", script]).arg(local(&folder)), LONG);
    assert_eq!(found.trim(), "2400");
    let listed = succeed(&mut multifile(&["ls", "--json"], &kept(&folder)), SOON);
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    // The names, and files for 1,980 and 4,028 tasks.
    assert_eq!(listed["physical_files"], 3);
    assert_eq!(listed["tasks"].as_array().expect("tasks").len(), 2401);
    let out = extracted(&folder, &kept(&folder), "out");
    for (p, i) in (0..8).flat_map(|p| (1..=300).map(move |i| (p, i))) {
        let text = fs::read_to_string(out.join(format!("d/{p}.{i}"))).expect("extracted");
        assert_eq!(text, format!("rank {p} file {i}\n"));
    }
    // Names that go make room.
    let script = "rm -r \"$0/d\"; for i in $(seq 2000); do echo $i >\"$0/$i\"; done";
    succeed(coalescing(&folder).args(["bash", "-c", script]).arg(local(&folder)), LONG);
    let listed = succeed(&mut multifile(&["ls", "--json"], &kept(&folder)), SOON);
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(listed["physical_files"], 3);
    is_closed(&kept(&folder));
}

/// Nothing is left to make dense: `ls -l` says what there is.
#[test]
fn small_files_take_little_more_than_their_bytes() {
    let Some(program) = python("a coalesced run", "small_files") else { return };
    for (count, len, files) in [(4000, 4096, 3), (300, 65_536, 2)] {
        let folder = Folder::new();
        let mut command = coalescing(&folder);
        command.args(&program).arg(local(&folder));
        succeed(command.args([count, len].map(|number: u64| number.to_string())), LONG);
        is_closed(&kept(&folder));
        let found = fs::read_dir(folder.path()).expect("a folder").flatten();
        let found = found.filter(|file| file.file_name().to_string_lossy().starts_with("kept"));
        let sizes: Vec<u64> = found.map(|file| file.metadata().expect("a file").len()).collect();
        assert_eq!(sizes.len(), files, "{sizes:?}");
        let most = count * len * 105 / 100 + 300 * count;
        assert!(sizes.iter().sum::<u64>() <= most, "{sizes:?}");
        let out = extracted(&folder, &kept(&folder), "out");
        for number in 0..count {
            let bytes = fs::read(out.join(number.to_string())).expect("extracted");
            let byte = u8::try_from(number % 251).expect("a byte");
            assert!(bytes.len() as u64 == len && bytes.iter().all(|one| *one == byte), "{number}");
        }
    }
}

/// The command comes with the library there, whose folders are not its own.
#[test]
fn shell_that_has_what_env_prints_starts_runs_and_daemons() {
    crate::views::needs_view!();
    let script = "set -e; eval \"$(\"$0\" env --coalesce local=kept.sion)\"\n\
        work='mkdir local/d; echo hello >local/d/a; ls local local/d; cat local/d/a; \
        rm -r local/d'\n\
        \"$0\" run -- sh -ec \"$work\" 2>log\n\
        \"$0\" serve 2>log & until \"$0\" status >status 2>&1; do sleep 0.1; done\n\
        sh -ec \"$work\"; kill $!; wait $!";
    let folder = Folder::new();
    let mut shell = Command::new("bash");
    shell.args(["-c", script]).arg(kakehi()).current_dir(folder.path());
    shell.env("KAKEHI_JOB", "job").env("XDG_RUNTIME_DIR", folder.path());
    let found = succeed(&mut shell, SOON);
    let once = "local:\nd\n\nlocal/d:\na\nhello\n";
    assert_eq!(found, once.repeat(2));
    is_closed(&kept(&folder));
}

// ---- what goes wrong

/// The job is killed as a whole: what its programs had completed is there for the next one.
#[test]
fn what_was_closed_survives_the_death_of_everything() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let mut rng = random("a killed job that coalesces");
    let mut count = 0;
    for round in 0..5 {
        let script = "i=$1; while :; do seq $i >\"$0/new\" && mv \"$0/new\" \"$0/$i\" || exit; \
            echo $i; i=$((i+1)); done";
        let mut command = coalescing(&folder);
        command.args(["bash", "-c", script]).arg(local(&folder)).arg(count.to_string());
        let log = folder.join("log");
        command.stdin(Stdio::null()).stdout(fs::File::create(&log).expect("log"));
        let program = Running::start(&mut command);
        let lines = || fs::read_to_string(&log).expect("log").lines().count();
        assert!(wait_for(LONG, || lines() > 3), "it does not begin");
        pause(Duration::from_millis(rng.u64(1..200)));
        kill_all(&folder);
        drop(program);
        count += lines();
        let is_ours = |line: &str| line.starts_with("kakehi: ");
        let is_taken_on =
            |line: &str| line.ends_with("was never closed: what was completed is there");
        let check =
            "cd \"$0\" && for i in $(seq 0 $(($1 - 1))); do seq $i | cmp - $i || exit 1; done";
        let mut command = coalescing(&folder);
        let output = run(
            command.args(["bash", "-c", check]).arg(local(&folder)).arg(count.to_string()),
            LONG,
        );
        let said = text(&output.stderr);
        assert!(output.status.success(), "round {round}, {count} files: {said}");
        assert!(said.lines().any(is_taken_on) && said.lines().all(is_ours), "{said}");
    }
    is_closed(&kept(&folder));
}

#[test]
fn nothing_is_lost_or_done_twice_when_a_server_that_coalesces_is_killed() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let mut server = Server::start_coalescing(&folder, Scheme::Tcp);
    let mut rng = random("kills of a server that coalesces");
    let mut program = start_rounds(&folder, &mut server.run(&folder), 300);
    for _ in 0..10 {
        pause(Duration::from_millis(rng.u64(20..250)));
        server.kill_and_restart();
    }
    let status = program.wait(LONG);
    let said = fs::read_to_string(folder.join("program.log")).expect("log");
    assert!(status.success(), "{status} after {} rounds: {said}", progress(&folder));
    server.end();
    let file = folder.join("job.sion");
    is_closed(&file);
    assert_eq!(fs::read_dir(folder.join("root/job")).expect("made").count(), 0);
    check_rounds(&extracted(&folder, &file, "out"), 300);
}

/// A server that ends in order is waited for as one that was killed, and nothing is lost.
#[test]
fn programs_go_on_when_a_server_that_coalesces_is_started_anew() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let mut server = Server::start_coalescing(&folder, Scheme::Tcp);
    let mut program = start_rounds(&folder, &mut server.run(&folder), 200);
    for _ in 0..5 {
        pause(Duration::from_millis(100));
        server.running.signal(Signal::TERM);
        assert!(server.running.wait(SOON).success());
        is_closed(&folder.join("job.sion"));
        server.restart();
    }
    let status = program.wait(LONG);
    let said = fs::read_to_string(folder.join("program.log")).expect("log");
    assert!(status.success(), "{status}: {said}");
    server.end();
    check_rounds(&extracted(&folder, &folder.join("job.sion"), "out"), 200);
}

/// Two nodes write through one server into one multifile.
#[test]
fn nodes_share_a_multifile_of_a_server() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let server = Server::start_coalescing(&folder, Scheme::Tcp);
    let write = "for i in $(seq 50); do seq $i >\"$0/$1.$i\" || exit 1; done";
    let runs = ["one", "two"].map(|node| {
        let mut command = server.run(&folder);
        command.env("KAKEHI_JOB", node).args(["bash", "-c", write]);
        Running::start(command.arg(local(&folder)).arg(node).stdin(Stdio::null()))
    });
    for mut run in runs {
        assert!(run.wait(LONG).success());
    }
    let found = succeed(server.run(&folder).arg("ls").arg(local(&folder)), SOON);
    assert_eq!(found.lines().count(), 100);
    server.end();
    let out = extracted(&folder, &folder.join("job.sion"), "out");
    for node in ["one", "two"] {
        for i in 1..=50 {
            let lines = fs::read_to_string(out.join(format!("{node}.{i}"))).expect("extracted");
            assert_eq!(lines.lines().count(), i);
        }
    }
}

/// Tries to replace a multifile that a job has by what makes one.
fn replaced_by_force(folder: &Folder) {
    let (kept, other) = (kept(folder), folder.join("other.sion"));
    let plain = folder.join("in");
    fs::write(&plain, "data").expect("file");
    succeed(multifile(&["join"], &other).arg(&plain), SOON);
    let forced: [(&[&str], [&Path; 2]); 4] = [
        (&["join", "--force"], [&kept, &plain]),
        (&["defrag", "--force"], [&other, &kept]),
        (&["cat", "--force", "--task", "0", "--output"], [&other, &kept]),
        (&["repair", "--force", "--output"], [&other, &kept]),
    ];
    for (arguments, paths) in forced {
        let mut command = multifile(arguments, paths[0]);
        command.arg(paths[1]).env("XDG_RUNTIME_DIR", folder.path());
        let output = run(&mut command, SOON);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("in use by job "), "{arguments:?}: {said}");
    }
}

#[test]
fn a_multifile_has_one_writer_and_bad_ones_are_named() {
    let folder = Folder::new();
    let mut command = coalescing(&folder);
    command
        .args(["sh", "-c", "echo one >\"$0/a\"; echo begun; exec sleep 100"])
        .arg(local(&folder));
    let mut first = Running::start(command.stdin(Stdio::null()).stdout(Stdio::piped()));
    let output = first.child.stdout.take().expect("piped");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("begun");
    let refused = |command: &mut Command, why: &str| {
        let output = run(command.arg("true"), SOON);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    };
    refused(coalescing(&folder).env("KAKEHI_JOB", "other"), "another daemon");
    for command in ["repair", "ls"] {
        let mut look = multifile(&[command], &kept(&folder));
        let output = run(look.env("XDG_RUNTIME_DIR", folder.path()), SOON);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains("in use by job "), "{said}");
        // The command that it names reads them.
        let named = said.split_once("files now: ").and_then(|(_, rest)| rest.split_once("; or"));
        let line = named.expect("a command").0.replace("kakehi ", "\"$0\" ");
        let mut joined = Command::new("sh");
        joined.args(["-c", &line]).arg(kakehi()).env("XDG_RUNTIME_DIR", folder.path());
        assert_eq!(succeed(&mut joined, SOON), "a\n", "{line}");
    }
    replaced_by_force(&folder);
    first.signal(Signal::TERM);
    drop(first);
    assert!(wait_for(SOON, || processes_of(folder.path()).is_empty()));
    let left = extracted(&folder, &kept(&folder), "left").join("a");
    assert_eq!(fs::read(left).expect("it is not lost"), b"one\n");

    fs::write(folder.join("no.sion"), "something else").expect("file");
    let at = |file: &str| format!("{}={}", local(&folder).display(), folder.join(file).display());
    refused(&mut kakehi_run(&folder, &["--coalesce", &at("no.sion")]), "no.sion");
    refused(&mut kakehi_run(&folder, &["--coalesce", &at("no/x.sion")]), "x.sion");
    refused(&mut kakehi_run(&folder, &["--coalesce", &at("local/x.sion")]), "cannot be in");
    refused(&mut kakehi_run(&folder, &["--coalesce", "local"]), "LOCAL=FILE");
    // SIONlib's have tasks without names.
    fs::write(folder.join("plain"), "data").expect("file");
    let mut join = Command::new(kakehi());
    join.args(["multifile", "join"]).arg(folder.join("sion.sion")).arg(folder.join("plain"));
    succeed(&mut join, SOON);
    refused(&mut kakehi_run(&folder, &["--coalesce", &at("sion.sion")]), "no names");
    // One that somebody else may be writing is left as it is.
    let golden = "../multifile/rust/tests/golden/mpi_n3_unclosed.sion";
    let golden = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(golden)).expect("a fixture");
    fs::write(folder.join("open.sion"), &golden).expect("file");
    refused(&mut kakehi_run(&folder, &["--coalesce", &at("open.sion")]), "no names");
    assert!(fs::read(folder.join("open.sion")).expect("there") == golden);
    let mut extract = multifile(&["extract"], &folder.join("sion.sion"));
    let output = run(extract.arg(folder.join("out")), SOON);
    assert!(!output.status.success() && text(&output.stderr).contains("no names"));
}

#[test]
fn a_writer_of_one_file_is_served_by_the_program_it_is() {
    crate::views::needs_view!();
    // The same program, as it is and in a multifile.
    for name in ["corners", "chosen", "real", "points", "own_names"] {
        let folder = Folder::new();
        let native = folder.join("native");
        fs::create_dir(&native).expect("folder");
        let native = succeed(Command::new(program(name)).arg(&native), SOON);
        let found = succeed(coalescing(&folder).arg(program(name)).arg(local(&folder)), SOON);
        assert_eq!(found, native, "{name}");
    }
}
