//! Batch jobs under a real Slurm: a cluster of one node, whose daemons live as long as the test.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::{fd::OwnedFd, system::uname};

use crate::{
    harness::{Folder, Running, SOON, kakehi, run, skip, stats, succeed, sum, text, wait_for},
    remote::{LONG, server::reserve_port},
};

struct Cluster<'f> {
    folder: &'f Folder,
    /// In the order of their end: who authenticates, comes last.
    _daemons: Vec<Running>,
    _ports: [OwnedFd; 2],
}

impl<'f> Cluster<'f> {
    /// `None`, said, where Slurm is not installed or does not start.
    fn start(folder: &'f Folder) -> Option<Self> {
        Self::start_with(folder, "")
    }

    /// As [`start`](Self::start), with more lines in `slurm.conf`.
    fn start_with(folder: &'f Folder, more: &str) -> Option<Self> {
        const WHAT: &str = "jobs under Slurm";
        for name in ["munged", "slurmctld", "slurmd"] {
            let version = if name == "munged" { "--version" } else { "-V" };
            if Command::new(name).arg(version).output().is_err() {
                skip(WHAT, format_args!("no {name}"));
                return None;
            }
        }
        let [(controller, first), (node, second)] = [reserve_port(), reserve_port()];
        let configuration = configuration(folder, controller, node) + more;
        fs::write(folder.join("slurm.conf"), configuration).expect("written");
        fs::write(folder.join("munge.key"), [7; 1024]).expect("written");
        succeed(Command::new("chmod").arg("600").arg(folder.join("munge.key")), SOON);
        for name in ["controller", "node"] {
            fs::create_dir(folder.join(name)).expect("folder");
        }
        let path = |name: &str| folder.join(name).display().to_string();
        let munge = ["key", "socket", "pid", "log", "seed"].map(|name| match name {
            "socket" => format!("--socket={}", path("munge.socket")),
            _ => format!("--{name}-file={}", path(&format!("munge.{name}"))),
        });
        let mut munged = Command::new("munged");
        munged.args(["--foreground", "--force"]).args(munge);
        let daemon = |name: &str| {
            let mut command = Command::new(name);
            command.args(["-D", "-f", &path("slurm.conf")]);
            command
        };
        // Each has a log of its own.
        let start = |mut command: Command| {
            Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
        };
        let authenticator = start(munged);
        wait_for(SOON, || folder.join("munge.socket").exists());
        let _daemons = vec![start(daemon("slurmd")), start(daemon("slurmctld")), authenticator];
        let cluster = Self { folder, _daemons, _ports: [first, second] };
        let is_ready = wait_for(SOON, || {
            let output = run(cluster.command("sinfo").args(["-h", "-o", "%t"]), SOON);
            text(&output.stdout).trim() == "idle"
        });
        if !is_ready {
            let said = ["munge.log", "controller.log", "node.log"]
                .map(|name| fs::read_to_string(folder.join(name)).unwrap_or_default());
            skip(WHAT, format_args!("it does not start here: {}", said.concat()));
            return None;
        }
        Some(cluster)
    }

    /// A command of Slurm, or one that it gives its environment to.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.current_dir(self.folder.path()).env("SLURM_CONF", self.folder.join("slurm.conf"));
        command.env("KAKEHI", kakehi()).env("XDG_RUNTIME_DIR", self.folder.path());
        command.env_remove("KAKEHI_JOB");
        command
    }

    /// Submits a batch script for two tasks, which the test's folder is the working folder of.
    fn submit(&self, script: &str, flags: &[&str]) -> Command {
        fs::write(self.folder.join("job.sh"), format!("#!/bin/sh\nset -eu\n{script}\n"))
            .expect("written");
        let mut command = self.command("sbatch");
        command.args(["--parsable", "--ntasks=2", "--output=said"]).args(flags).arg("job.sh");
        command
    }

    /// Runs such a script to its end; returns the job's number and what it said.
    #[track_caller]
    fn run(&self, script: &str) -> (String, String) {
        let output = run(&mut self.submit(script, &["--wait"]), LONG);
        let said = fs::read_to_string(self.folder.join("said")).unwrap_or_default();
        assert!(output.status.success(), "{}{said}", text(&output.stderr));
        (text(&output.stdout).trim().to_owned(), said)
    }
}

fn configuration(folder: &Folder, controller: u16, node: u16) -> String {
    let (place, uname) = (folder.path().display(), uname());
    let host = uname.nodename().to_string_lossy();
    let host = host.split('.').next().unwrap_or_default();
    let user = succeed(Command::new("id").arg("-un"), SOON);
    let user = user.trim();
    format!(
        "ClusterName=test\n\
         SlurmctldHost={host}(127.0.0.1)\n\
         SlurmctldPort={controller}\n\
         SlurmdPort={node}\n\
         SlurmUser={user}\n\
         SlurmdUser={user}\n\
         AuthType=auth/munge\n\
         AuthInfo=socket={place}/munge.socket\n\
         StateSaveLocation={place}/controller\n\
         SlurmdSpoolDir={place}/node\n\
         SlurmctldPidFile={place}/controller.pid\n\
         SlurmdPidFile={place}/node.pid\n\
         SlurmctldLogFile={place}/controller.log\n\
         SlurmdLogFile={place}/node.log\n\
         ProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\n\
         SlurmdParameters=config_overrides\n\
         NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN\n\
         PartitionName=all Nodes={host} Default=YES State=UP\n"
    )
}

/// `PATH`, with the folder of the command first: the samples look for it there.
fn with_kakehi() -> String {
    #[expect(clippy::disallowed_methods, reason = "a test has no configuration but this")]
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{}:{path}", kakehi().parent().expect("in a folder").display())
}

/// A sample in `packaging/slurm`.
fn sample(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize();
    root.expect("the repository").join("packaging/slurm").join(name)
}

/// Lines of the numbers up to `count`.
fn numbers(count: usize) -> String {
    (0..count).map(|number| format!("{number}\n")).collect()
}

/// A command that writes `numbers(2000)` to a file; a shell's own `>` is a standard stream, which
/// is not delegated.
const WRITE: &str = "awk 'BEGIN { for (i = 0; i < 2000; i++) print i >ARGV[1] }'";

#[test]
fn ranks_of_a_slurm_job_share_a_daemon_named_after_it() {
    let folder = Folder::new();
    let Some(cluster) = Cluster::start(&folder) else { return };
    // The first waits for the last, as ranks do in `MPI_Init`: else it may have a daemon by itself.
    fs::write(
        folder.join("rank.sh"),
        format!(
            ">here.$SLURM_PROCID
             until [ -e here.0 ] && [ -e here.1 ]; do sleep 0.01; done
             {WRITE} out.$SLURM_PROCID"
        ),
    )
    .expect("written");
    let (job, said) = cluster.run(
        "export KAKEHI_STAGE_AFTER=0ms
         srun \"$KAKEHI\" run --stats stats.$SLURM_JOB_ID -- sh rank.sh",
    );
    for rank in 0..2 {
        let out = fs::read_to_string(folder.join(format!("out.{rank}"))).expect("written");
        assert!(out == numbers(2000), "rank {rank}: {} bytes", out.len());
    }
    let documents = stats(&folder.join(format!("stats.{job}")));
    assert_eq!(documents.len(), 1, "{documents:?}");
    assert_eq!(documents[0].pointer("/job"), Some(&job.into()), "{documents:?}");
    let bytes = 2 * numbers(2000).len() as u64;
    assert_eq!(sum(&documents, "/bytes_delegated"), bytes, "{documents:?} {said}");
}

#[test]
fn servers_of_a_slurm_step_serve_the_ranks_of_another() {
    let folder = Folder::new();
    let Some(cluster) = Cluster::start(&folder) else { return };
    fs::write(folder.join("rank.sh"), format!("{WRITE} out/out.$SLURM_PROCID")).expect("written");
    let (_, said) = cluster.run(
        "mkdir servers root0 root1
         srun --overlap sh -c 'exec \"$KAKEHI\" serve --listen tcp://127.0.0.1:0 \
             --root root$SLURM_PROCID --key key --address-file servers' &
         until [ \"$(ls servers | wc -l)\" = 2 ]; do sleep 0.1; done
         srun --overlap \"$KAKEHI\" run --spread rank --remote servers --key key --map out=/ -- \
             sh rank.sh",
    );
    let names = [0, 1].map(|rank| format!("out.{rank}"));
    let files = ["root0", "root1"].map(|root| {
        let places = names.iter().map(|name| folder.join(root).join(name));
        places.filter(|place| place.exists()).collect::<Vec<PathBuf>>()
    });
    assert_eq!(files.each_ref().map(Vec::len), [1, 1], "{files:?} {said}");
    for place in files.concat() {
        let out = fs::read_to_string(&place).expect("written");
        assert!(out == numbers(2000), "{}: {} bytes", place.display(), out.len());
    }
}

#[test]
fn a_cancelled_slurm_job_has_every_line_that_was_written() {
    let folder = Folder::new();
    let Some(cluster) = Cluster::start(&folder) else { return };
    // What has been written is counted where nothing is staged: on a standard stream.
    let script = "exec awk 'BEGIN {
        for (i = 0; ; i++) {
            print i >ARGV[1]; fflush(ARGV[1])
            print i >\"/dev/stderr\"; fflush(\"/dev/stderr\")
        }
    }' out.$SLURM_PROCID 2>count.$SLURM_PROCID";
    fs::write(folder.join("rank.sh"), script).expect("written");
    let submit = "srun \"$KAKEHI\" run --stats stats -- sh rank.sh";
    let job = succeed(&mut cluster.submit(submit, &[]), SOON);
    let read = |name: &str, rank| fs::read_to_string(folder.join(format!("{name}.{rank}")));
    let said = || fs::read_to_string(folder.join("said")).unwrap_or_default();
    let is_under_way = wait_for(LONG, || {
        (0..2).all(|rank| read("out", rank).is_ok_and(|out| out.len() > 100_000))
    });
    assert!(is_under_way, "{}", said());
    succeed(cluster.command("scancel").arg(job.trim()), SOON);
    let is_over = wait_for(LONG, || {
        let left = run(cluster.command("squeue").args(["-h", "-j", job.trim()]), SOON);
        text(&left.stdout).trim().is_empty() && folder.join("stats").exists()
    });
    assert!(is_over, "{}", said());
    for rank in 0..2 {
        let out = read("out", rank).expect("written");
        let count = read("count", rank).expect("written").lines().count();
        let lines = out.lines().count();
        assert!(out == numbers(lines), "rank {rank}: not the first {lines}");
        assert!(lines == count || lines == count + 1, "rank {rank}: {lines} lines of {count}");
    }
    let documents = stats(&folder.join("stats"));
    assert!(sum(&documents, "/bytes_delegated") > 200_000, "{documents:?}");
}

#[test]
fn samples_start_a_daemon_before_a_job_and_end_it_after() {
    if !rustix::process::geteuid().is_root() {
        return skip("the prolog for Slurm", "only root becomes the job's user");
    }
    let folder = Folder::new();
    let samples =
        [("Prolog", "prolog.sh"), ("Epilog", "epilog.sh"), ("TaskProlog", "task_prolog.sh")];
    let lines = samples.map(|(key, name)| {
        // As a site does, with the folder of its installation.
        let script = fs::read_to_string(sample(name)).expect("readable");
        assert!(script.contains("PATH=/usr/local/bin:"), "{script}");
        let bin = kakehi().parent().expect("in a folder").display().to_string();
        let path = folder.join(name);
        fs::write(&path, script.replace("/usr/local/bin", &bin)).expect("written");
        succeed(Command::new("chmod").arg("755").arg(&path), SOON);
        format!("{key}={}\n", path.display())
    });
    let lines = lines.concat();
    let Some(cluster) = Cluster::start_with(&folder, &lines) else { return };
    fs::write(folder.join("rank.sh"), format!("{WRITE} out.$SLURM_PROCID")).expect("written");
    let script = "unset XDG_RUNTIME_DIR
         KAKEHI_STAGE_AFTER=0ms srun sh rank.sh
         \"$KAKEHI\" status --job $SLURM_JOB_ID --json >status || true";
    let run_with = |flags: &[&str]| {
        let output = run(&mut cluster.submit(script, &[&["--wait"], flags].concat()), LONG);
        assert!(output.status.success(), "{}", text(&output.stderr));
        for rank in 0..2 {
            let out = fs::read_to_string(folder.join(format!("out.{rank}"))).expect("written");
            assert!(out == numbers(2000), "rank {rank}: {} bytes", out.len());
        }
        let status = fs::read_to_string(folder.join("status")).expect("written");
        serde_json::from_str::<serde_json::Value>(&status).unwrap_or_default()
    };
    let status = run_with(&["--comment=kakehi"]);
    let bytes = 2 * numbers(2000).len() as u64;
    assert_eq!(status.pointer("/summary/bytes_staged"), Some(&bytes.into()), "{status}");
    let pid = status["pid"].to_string();
    let is_gone = || !Path::new("/proc").join(&pid).exists();
    assert!(wait_for(SOON, is_gone), "the epilog left the daemon {pid}");
    assert_eq!(run_with(&[]).pointer("/summary"), None, "a job that asked for no daemon");
}

#[test]
fn stage_out_copies_multifiles_and_other_files() {
    if Command::new("lua5.4").arg("-v").output().is_err() {
        return skip("the stage-out for Slurm", "no lua5.4");
    }
    let folder = Folder::new();
    let mut made = crate::harness::kakehi_run(&folder, &["--coalesce", "local=kept.sion"]);
    fs::create_dir(folder.join("local")).expect("a folder");
    made.current_dir(folder.path()).args(["sh", "-c", &format!("{WRITE} local/out")]);
    succeed(&mut made, SOON);
    fs::write(folder.join("it's"), "plain").expect("written");
    let stage_out = |lines: &str| {
        fs::write(folder.join("job.sh"), lines).expect("written");
        let call = "dofile(arg[1]); local code, said = slurm_bb_job_process('job.sh', 0, 0)
            if code == 0 then code, said = slurm_bb_data_out(1, 'job.sh', 0, 0) end
            print(code, said)";
        fs::write(folder.join("call.lua"), call).expect("written");
        let mut lua = Command::new("lua5.4");
        lua.arg("call.lua").arg(sample("stage_out.lua")).current_dir(folder.path());
        succeed(lua.env("PATH", with_kakehi()), SOON)
    };
    let said =
        stage_out("#!/bin/sh\n#BB_LUA stage_out kept.sion copy.sion\n#BB_LUA stage_out it's to\n");
    assert_eq!(said.trim(), "0");
    assert_eq!(fs::read_to_string(folder.join("to")).expect("copied"), "plain");
    let mut extract = Command::new(kakehi());
    extract.args(["multifile", "extract", "copy.sion", "files"]).current_dir(folder.path());
    succeed(&mut extract, SOON);
    assert!(fs::read_to_string(folder.join("files/out")).expect("extracted") == numbers(2000));
    assert!(stage_out("#BB_LUA stage_out nothing there\n").starts_with("-1\tcannot copy nothing"));
    assert!(stage_out("#BB_LUA stage_out one\n").starts_with("-1\twrite"));
}
