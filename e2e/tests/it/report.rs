//! `kakehi run --report`: one page that says what a job did, and needs nothing from elsewhere.

use std::{fs, path::Path, process::Command};

use crate::{
    harness::{Folder, SOON, kakehi, kakehi_run, run, skip, succeed, text},
    strace::Trace,
};

/// Writes 20,000 pieces of 100 bytes to each of two files and reads one of them.
const PROGRAM: &str = "
import os, sys
for name in ('one', 'two'):
    fd = os.open(os.path.join(sys.argv[1], name), os.O_RDWR | os.O_CREAT)
    for i in range(20000):
        os.write(fd, b'x' * 100)
    os.close(fd)
with open(os.path.join(sys.argv[1], 'one'), 'rb', buffering=0) as file:
    while file.read(65536):
        pass
";

/// The page of a job with rules.
fn page(folder: &Folder, arguments: &[&str]) -> String {
    let path = folder.join("report.html");
    let mut command = kakehi_run(folder, &[arguments, &["--report", "report.html"]].concat());
    command.current_dir(folder.path());
    succeed(command.args(["python3", "-c", PROGRAM]).arg(folder.path()), SOON);
    fs::read_to_string(path).expect("a page")
}

/// The row of a table whose first cell ends so, as its cells.
fn row(page: &str, end: &str) -> Vec<String> {
    let rows = page.split("<tr>").filter_map(|row| row.split("</tr>").next());
    let cells = |row: &str| {
        let cells = row.split("<td").skip(1).filter_map(|cell| cell.split_once('>'));
        cells.map(|(_, cell)| cell.trim_end_matches("</td>").to_owned()).collect::<Vec<_>>()
    };
    let mut found = rows.map(cells).filter(|row| row.first().is_some_and(|it| it.ends_with(end)));
    found.next().unwrap_or_else(|| panic!("no row {end}: {page}"))
}

#[test]
fn page_lists_files_with_their_bytes_and_calls() {
    let folder = Folder::new();
    let page = page(&folder, &[]);
    let one = row(&page, "/one");
    assert_eq!(one[1..5], ["1.9MiB", "1.9MiB", "20000", "32"].map(str::to_owned), "{one:?}");
    let two = row(&page, "/two");
    assert_eq!(two[1..5], ["1.9MiB", "0B", "20000", "0"].map(str::to_owned), "{two:?}");
    assert!(page.contains("Writes: 40000 calls, 100B on average"), "{page}");
    assert!(page.contains("100 % of write calls were under 1 KiB"), "{page}");
    for part in ["<svg", "In plain words", "Ranks and processes", "(estimate)"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(page.len() < 300_000, "{}", page.len());
    assert!(!page.contains("http:") && !page.contains("https:"), "it asks the network");
}

#[test]
fn page_names_files_of_a_coalesced_folder() {
    let folder = Folder::new();
    let (local, kept) = (folder.join("local"), folder.join("kept.sion"));
    fs::create_dir(&local).expect("a folder");
    let flag = format!("{}={}", local.display(), kept.display());
    let path = folder.join("report.html");
    let path_flag = path.to_string_lossy();
    let mut command = kakehi_run(&folder, &["--coalesce", &flag, "--report", &path_flag]);
    succeed(command.args(["python3", "-c", PROGRAM]).arg(&local), SOON);
    let page = fs::read_to_string(path).expect("a page");
    let one = row(&page, "/one");
    assert_eq!(one[1..3], ["1.9MiB", "1.9MiB"].map(str::to_owned), "{one:?}");
    assert!(one[0].starts_with(&*local.to_string_lossy()), "{one:?}");
    // Nothing is there to compare it with, least of all the folder that is covered.
    assert!(page.contains("time saved: unknown of mapped folders"), "{page}");
    assert!(!page.contains("=pass"), "{page}");
}

/// Staged writes make no system call with a report either.
#[test]
fn report_costs_a_program_the_same_system_calls_however_much_it_writes() {
    if !Trace::is_possible() {
        return skip("system calls of a run with a report", "no strace");
    }
    let folder = Folder::new();
    let script = "import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
for i in range(int(sys.argv[2])):
    os.write(fd, b'x' * 10)
os.close(fd)";
    let calls = |count: &str| {
        let trace = folder.join(count);
        let page = folder.join("report.html");
        let mut command = kakehi_run(&folder, &["--report", &page.to_string_lossy()]);
        command.args(["strace", "-qq", "-e", "signal=none", "-o"]).arg(&trace);
        command.args(["python3", "-c", script]).arg(folder.join("file")).arg(count);
        succeed(&mut command, SOON);
        assert!(fs::read_to_string(page).expect("a page").contains("class=\"tiles\""));
        fs::read_to_string(trace).expect("a trace").lines().count()
    };
    let more = calls("20000").saturating_sub(calls("2000"));
    assert!(more < 100, "{more} system calls more for 18,000 writes more");
}

#[test]
fn page_gives_the_reason_where_files_are_passed() {
    let folder = Folder::new();
    let rule = format!("{}/**=pass", folder.path().display());
    let page = page(&folder, &["--rule", &rule]);
    let reason = row(&page, "rule");
    assert_eq!(reason[1], "3.8MiB", "{reason:?}");
    assert!(reason[3].contains("policy &#39;pass&#39;"), "{reason:?}");
}

#[test]
fn run_fails_before_the_program_if_the_report_cannot_be_written() {
    let folder = Folder::new();
    let mut command = kakehi_run(&folder, &["--report", "/nowhere/report.html"]);
    let output = run(command.arg("touch").arg(folder.join("ran")), SOON);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("--report"));
    assert!(!folder.join("ran").exists());
}

/// Of several runs of a job the first writes the report; the processes of all are in it.
#[test]
fn report_of_the_first_run_has_the_processes_of_those_that_joined() {
    let folder = Folder::new();
    let each =
        format!("{} run --report $1.html -- sh -c 'echo x >$1.out' x $1", kakehi().display());
    let all = "for name in one two; do sh -c \"$0\" x $name; done";
    let mut command = kakehi_run(&folder, &["--report", "first.html"]);
    command.env("KAKEHI_JOB", "several").current_dir(folder.path());
    succeed(command.args(["sh", "-c", all, &each]), SOON);
    let page = fs::read_to_string(folder.join("first.html")).expect("a page");
    for name in ["one", "two"] {
        assert_eq!(row(&page, &format!("/{name}.out"))[1], "2B");
        assert!(!folder.join(format!("{name}.html")).exists(), "{name}: left empty");
    }
}

/// As a browser shows it: the tables are there without scripts, and nothing was fetched.
#[test]
fn browser_shows_tables_and_pictures_of_the_page() {
    let Some(browser) = ["/usr/bin/chromium", "/usr/bin/chromium-browser"]
        .into_iter()
        .find(|path| Path::new(path).exists())
    else {
        return skip("the page in a browser", "no chromium");
    };
    let folder = Folder::new();
    page(&folder, &[]);
    let mut shown = Command::new(browser);
    shown.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
    shown.arg(format!("--user-data-dir={}", folder.join("profile").display()));
    shown.args(["--virtual-time-budget=2000", "--dump-dom"]).env("HOME", folder.path());
    shown.arg(format!("file://{}", folder.join("report.html").display()));
    let dom = text(&run(&mut shown, 4 * SOON).stdout);
    // The page's script has run, and found the tables.
    assert!(dom.contains("<th title=\"sort\"") || dom.contains("cursor: pointer"), "{dom}");
    assert!(dom.matches("<svg").count() >= 4, "{dom}");
}
