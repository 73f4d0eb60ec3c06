//! Packages of `make packages`: each is installed and runs a program. The wheel has its own test.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::getuid;

use crate::harness::{Folder, SOON, run, skip, succeed, text};

const LONG: std::time::Duration = SOON.saturating_mul(10);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository")
}

/// Makes one package of what is built, in a folder of its own; `None` where its tool is missing.
pub(crate) fn made(folder: &Folder, format: &str) -> Option<PathBuf> {
    let mut command = Command::new("sh");
    let python = root().join("target/venv/bin/python");
    if python.exists() {
        command.env("PY", python);
    }
    command.arg(root().join("packaging/packages.sh")).arg(format).env("DIST", folder.path());
    for variable in ["MAKEFLAGS", "MAKELEVEL", "CARGO_TARGET_DIR"] {
        command.env_remove(variable);
    }
    let output = run(&mut command, LONG);
    assert!(output.status.success(), "{}", text(&output.stderr));
    if let Some(why) = text(&output.stderr).split("SKIPPED ").nth(1) {
        skip("a package", why.trim());
        return None;
    }
    Some(PathBuf::from(text(&output.stdout).trim()))
}

/// Runs a program by the `kakehi` that is installed in `prefix`.
#[track_caller]
fn runs_a_program(folder: &Folder, prefix: &Path) {
    let file = folder.join("written");
    let stats = folder.join("stats");
    let mut command = Command::new(prefix.join("bin/kakehi"));
    command.env("XDG_RUNTIME_DIR", folder.path()).env_remove("KAKEHI_JOB");
    command.env("KAKEHI_STAGE_AFTER", "0ms").args(["run", "--stats"]).arg(&stats);
    let write = "import sys; open(sys.argv[1], 'w').write('y')";
    succeed(command.args(["--", "python3", "-c", write]).arg(&file), SOON);
    assert_eq!(fs::read_to_string(&file).expect("written"), "y");
    let stats = fs::read_to_string(stats).expect("statistics");
    assert!(stats.contains("\"bytes_staged\":1,"), "{stats}");
    fs::remove_file(file).expect("there");
}

#[test]
fn tarball_installs_and_leaves_nothing_when_removed() {
    let folder = Folder::new();
    let tarball = made(&folder, "tarball").expect("tar is everywhere");
    succeed(Command::new("tar").arg("-xzf").arg(&tarball).arg("-C").arg(folder.path()), SOON);
    let name = tarball.file_name().and_then(|name| name.to_str()).expect("a name");
    let script = folder.join(name.trim_end_matches(".tar.gz")).join("install.sh");
    let prefix = folder.join("opt");
    for _ in 0..2 {
        succeed(Command::new(&script).arg(&prefix), SOON);
    }
    runs_a_program(&folder, &prefix);
    let mut left = Command::new("grep");
    let left = run(left.args(["-rlI", "/@PREFIX@"]).arg(&prefix), SOON);
    assert_eq!(text(&left.stdout), "", "a file does not know where it is");
    let unit = prefix.join("lib/systemd/system/kakehi-serve@.service");
    let unit = fs::read_to_string(unit).expect("installed");
    assert!(unit.contains(&format!("ExecStart={}/bin/kakehi ", prefix.display())), "{unit}");
    succeed(Command::new(&script).arg("--remove").arg(&prefix), SOON);
    let left = succeed(Command::new("find").arg(&prefix).args(["!", "-type", "d"]), SOON);
    assert_eq!(left, "");
    let refused = run(Command::new(&script).arg("relative"), SOON);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn debian_package_runs_a_program_once_unpacked() {
    let folder = Folder::new();
    let Some(package) = made(&folder, "deb") else { return };
    let fields = succeed(Command::new("dpkg-deb").arg("-f").arg(&package), SOON);
    assert!(fields.contains("Depends: libc6 (>= 2."), "{fields}");
    let root = folder.join("root");
    succeed(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&root), SOON);
    runs_a_program(&folder, &root.join("usr"));
    assert!(root.join("usr/share/man/man1/kakehi-run.1.gz").exists());
    let lists = succeed(Command::new("dpkg-deb").arg("-c").arg(&package), SOON);
    assert!(lists.lines().all(|line| line.contains(" root/root ")), "{lists}");
}

#[test]
fn rpm_runs_a_program_once_installed_into_a_root() {
    if getuid().as_raw() != 0 {
        return skip("the RPM", "rpm --root needs root");
    }
    let folder = Folder::new();
    let Some(package) = made(&folder, "rpm") else { return };
    let needs = succeed(Command::new("rpm").args(["-qp", "--requires"]).arg(&package), SOON);
    assert!(needs.contains("glibc >= 2."), "{needs}");
    let root = folder.join("root");
    fs::create_dir(&root).expect("a folder");
    let mut install = Command::new("rpm");
    // The root has nothing else, least of all what the package needs.
    install.args(["-i", "--nodeps", "--noscripts", "--root"]).arg(&root).arg(&package);
    succeed(&mut install, SOON);
    runs_a_program(&folder, &root.join("usr"));
}
