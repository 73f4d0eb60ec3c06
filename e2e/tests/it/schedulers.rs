//! Jobs of schedulers that no test can start: programs with the variables that PBS, Flux, LSF, PJM,
//! Slurm, and PMIx set are told apart as those schedulers tell them apart.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::harness::{Folder, Running, SOON, kakehi, kakehi_run, python, stats, succeed};

type Variables<'a> = &'a [(&'a str, &'a str)];

/// A job of a scheduler: what all its steps have, what its first two ranks have, and how it is
/// called here.
struct Scheduled<'a> {
    name: &'a str,
    job: Variables<'a>,
    ranks: [Variables<'a>; 2],
    numbers: [&'a str; 2],
}

/// Elements of arrays, where a scheduler has them: their names are the most difficult.
const SCHEDULED: [Scheduled<'_>; 9] = [
    Scheduled {
        name: "4242",
        job: &[("SLURM_JOB_ID", "4242"), ("SLURM_JOBID", "4242"), ("SLURM_ARRAY_JOB_ID", "4240")],
        ranks: [
            &[("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "0")],
            &[("SLURM_STEP_ID", "1"), ("SLURM_PROCID", "1")],
        ],
        numbers: ["0", "1"],
    },
    // OpenPBS; its `pbsdsh` numbers no ranks, MPICH's launcher does.
    Scheduled {
        name: "1234_7_.pbs-01",
        job: &[("PBS_JOBID", "1234[7].pbs-01"), ("PBS_ARRAY_INDEX", "7"), ("PBS_TASKNUM", "1")],
        ranks: [&[("PMI_RANK", "0")], &[("PMI_RANK", "1")]],
        numbers: ["0", "1"],
    },
    // PBS on HPE's machines, and a program without MPI.
    Scheduled {
        name: "88.adm",
        job: &[("PBS_JOBID", "88.adm"), ("PALS_APID", "6f1c")],
        ranks: [&[("PALS_RANKID", "0")], &[("PALS_RANKID", "1")]],
        numbers: ["0", "1"],
    },
    Scheduled {
        name: "f2Wkv1cs",
        job: &[("FLUX_JOB_ID", "\u{192}2Wkv1cs"), ("FLUX_JOB_SIZE", "2"), ("SLURM_PROCID", "9")],
        ranks: [&[("FLUX_TASK_RANK", "0")], &[("FLUX_TASK_RANK", "1")]],
        numbers: ["0", "1"],
    },
    // `jsrun`, which numbers an array's element 3 of job 55.
    Scheduled {
        name: "55.3",
        job: &[("LSB_JOBID", "55"), ("LSB_JOBINDEX", "3"), ("LSB_BATCH_JID", "55[3]")],
        ranks: [&[("JSM_NAMESPACE_RANK", "0")], &[("JSM_NAMESPACE_RANK", "1")]],
        numbers: ["0", "1"],
    },
    // `blaunch` counts from 1.
    Scheduled {
        name: "56",
        job: &[("LSB_JOBID", "56"), ("LSB_JOBINDEX", "0")],
        ranks: [&[("LSF_PM_TASKID", "1")], &[("LSF_PM_TASKID", "2")]],
        numbers: ["1", "2"],
    },
    // Fugaku: a bulk job, whose launcher speaks PMIx.
    Scheduled {
        name: "9901.2",
        job: &[("PJM_JOBID", "9901"), ("PJM_BULKNUM", "2"), ("PJM_SUBJOBID", "9901[2]")],
        ranks: [
            &[("PMIX_NAMESPACE", "1"), ("PMIX_RANK", "0"), ("PLE_RANK_ON_NODE", "0")],
            &[("PMIX_NAMESPACE", "2"), ("PMIX_RANK", "1"), ("PLE_RANK_ON_NODE", "1")],
        ],
        numbers: ["0", "1"],
    },
    // Fugaku: one job by itself.
    Scheduled {
        name: "9902",
        job: &[("PJM_JOBID", "9902"), ("PJM_JOBNAME", "run.sh")],
        ranks: [&[("PMIX_RANK", "0")], &[("PMIX_RANK", "1")]],
        numbers: ["0", "1"],
    },
    Scheduled {
        name: "prterun-n1-7@1",
        job: &[("PMIX_NAMESPACE", "prterun-n1-7@1")],
        ranks: [&[("PMIX_RANK", "0")], &[("PMIX_RANK", "1")]],
        numbers: ["0", "1"],
    },
];

/// Writes a file, says so, and waits for the end of its input.
const PROGRAM: &str = "
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
for i in range(1000):
    os.write(fd, b'x' * 100)
os.close(fd)
print('written', flush=True)
sys.stdin.read()
";

/// A command that is of no job and has no rank, whoever runs these tests.
fn of_no_job(mut command: Command) -> Command {
    for scheduled in &SCHEDULED {
        let variables = [&[scheduled.job], &scheduled.ranks[..]].concat().concat();
        for (name, _) in variables {
            command.env_remove(name);
        }
    }
    command.env_remove("OMPI_COMM_WORLD_RANK");
    command
}

/// A step of the job, which has written its file.
fn step(folder: &Folder, python: &Path, scheduled: &Scheduled<'_>, rank: usize) -> Running {
    let flags = ["--stats", "stats", "--report", "report.html"];
    let mut command = of_no_job(kakehi_run(folder, &flags));
    command.current_dir(folder.path());
    command.envs(scheduled.job.iter().copied()).envs(scheduled.ranks[rank].iter().copied());
    command.arg(python).args(["-c", PROGRAM]).arg(format!("out.{rank}"));
    let mut running = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut line = String::new();
    let stdout = running.child.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    assert_eq!(line, "written\n", "{}", scheduled.name);
    running
}

/// The jobs of this folder that are served; those below `/tmp` are listed, too.
fn jobs(folder: &Folder) -> Vec<Value> {
    let mut list = of_no_job(Command::new(kakehi()));
    list.args(["jobs", "--json"]).env("XDG_RUNTIME_DIR", folder.path());
    let listed: Value = succeed(&mut list, SOON).parse().expect("JSON");
    let mut jobs = listed["jobs"].as_array().cloned().expect("a list");
    let is_here =
        |job: &Value| job["folder"].as_str().map(|it| Path::new(it).starts_with(folder.path()));
    jobs.retain(|job| is_here(job) == Some(true));
    jobs
}

/// Rank and bytes of each process that a report lists.
fn ranks(page: &str) -> Vec<(String, String)> {
    let (_, processes) = page.split_once("<h2>Ranks and processes</h2>").expect("processes");
    let (table, _) = processes.split_once("</table>").expect("a table");
    let rows = table.split("<tr><td>").skip(1).map(|row| {
        let cells: Vec<_> = row.split("</td>").collect();
        let shown = |cell: &str| cell.rsplit('>').next().unwrap_or_default().to_owned();
        (shown(cells[0]), shown(cells[3]))
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort();
    rows
}

#[test]
fn steps_of_a_job_share_one_daemon_that_has_the_schedulers_name_and_ranks() {
    let Some([python, _]) = python("jobs of schedulers", "signals") else { return };
    for scheduled in &SCHEDULED {
        let (folder, name) = (Folder::new(), scheduled.name);
        let mut steps = [0, 1].map(|rank| step(&folder, &python, scheduled, rank));
        let served = jobs(&folder);
        let names: Vec<_> = served.iter().map(|job| &job["name"]).collect();
        assert_eq!(names, [name], "{served:?}");
        assert_eq!(served[0]["status"]["sessions"], 2, "{served:?}");
        let socket = folder.join("kakehi").join(name).join("socket");
        assert!(socket.exists(), "{}", socket.display());
        // The first has the daemon, and waits for the other's end.
        for step in steps.iter_mut().rev() {
            drop(step.child.stdin.take());
        }
        steps.iter_mut().for_each(|step| assert!(step.wait(SOON).success(), "{name}"));
        let documents = stats(&folder.join("stats"));
        assert_eq!(documents.len(), 1, "{name}: {documents:?}");
        assert_eq!(documents[0]["job"], name);
        assert_eq!(documents[0]["sessions"], 2, "{name}: {documents:?}");
        let page = fs::read_to_string(folder.join("report.html")).expect("a report");
        assert!(page.contains(&format!("Job {name}, on ")), "{name}");
        let bytes = |rank: &str| (rank.to_owned(), "97.6KiB".to_owned());
        assert_eq!(ranks(&page), scheduled.numbers.map(bytes), "{name}");
    }
}

#[test]
fn elements_of_an_array_have_daemons_of_their_own() {
    let Some([python, _]) = python("elements of arrays", "signals") else { return };
    let of_element = |number: &'static str, other: &'static str| {
        [
            [("PBS_JOBID", number), ("PBS_ARRAY_INDEX", other)],
            [("LSB_JOBID", "55"), ("LSB_JOBINDEX", other)],
            [("PJM_JOBID", "55"), ("PJM_BULKNUM", other)],
        ]
    };
    let (first, second) = (of_element("12[1].server", "1"), of_element("12[2].server", "2"));
    for (first, second) in first.iter().zip(&second) {
        let folder = Folder::new();
        let mut steps = [first, second].map(|job| {
            let scheduled =
                Scheduled { name: "element", job, ranks: [&[], &[]], numbers: ["-", "-"] };
            step(&folder, &python, &scheduled, 0)
        });
        assert_eq!(jobs(&folder).len(), 2, "{first:?}");
        for step in &mut steps {
            drop(step.child.stdin.take());
            assert!(step.wait(SOON).success());
        }
    }
}
