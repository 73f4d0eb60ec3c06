//! Packages in Debian as it is when new: no Rust, no compiler. Each is installed by one command and
//! runs a program.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{
    harness::{Folder, SOON, run, skip, stats, succeed, text},
    packages::made,
};

const LONG: Duration = Duration::from_secs(1800);
/// The releases, and the glibc of each.
const RELEASES: [(&str, u32); 2] = [("bookworm", 36), ("trixie", 41)];

/// A release with Python in a folder that stays between runs of the tests; `None` where it cannot
/// be had.
fn release(name: &str) -> Option<PathBuf> {
    let what = format!("packages in a clean {name}");
    if Command::new("debootstrap").arg("--version").output().is_err() {
        skip(&what, "no debootstrap");
        return None;
    }
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debian").join(name);
    let is_complete = root.join("complete");
    if is_complete.exists() {
        return Some(root);
    }
    fs::create_dir_all(&root).expect("a folder");
    let mut make = Command::new("debootstrap");
    make.args(["--variant=minbase", "--include=python3,python3-venv", name]);
    let output = run(make.arg(&root), LONG);
    if !output.status.success() {
        let said = text(&output.stdout) + &text(&output.stderr);
        skip(&what, said.lines().last().unwrap_or("debootstrap failed"));
        return None;
    }
    fs::write(is_complete, "").expect("written");
    Some(root)
}

/// A root that is thrown away: a copy of a release.
struct Root<'f> {
    folder: &'f Folder,
    path: PathBuf,
}

impl<'f> Root<'f> {
    fn copy(folder: &'f Folder, release: &Path) -> Self {
        let path = folder.join("root");
        fs::remove_dir_all(&path).ok();
        let mut copy = Command::new("cp");
        succeed(copy.args(["-a", "--reflink=auto"]).arg(release).arg(&path), LONG);
        Self { folder, path }
    }

    /// Runs a line of shell in the root, with processes, devices, and a `/tmp` of its own.
    #[track_caller]
    fn shell(&self, line: &str) -> String {
        let inside = format!(
            "mount -t proc proc {0}/proc && mount -t tmpfs tmpfs {0}/tmp && \
             exec chroot {0} env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root \
             DEBIAN_FRONTEND=noninteractive KAKEHI_STAGE_AFTER=0ms sh -euc \"$0\"",
            self.path.display()
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "sh", "-c", &inside, line]);
        succeed(command.current_dir(self.folder.path()), LONG)
    }

    /// Takes a package in.
    fn has(&self, package: &Path) -> String {
        let name = package.file_name().and_then(|name| name.to_str()).expect("a name");
        fs::copy(package, self.path.join("root").join(name)).expect("copied");
        format!("/root/{name}")
    }

    /// Runs a program by the command that was installed.
    #[track_caller]
    fn runs_a_program(&self, kakehi: &str) {
        let written = self.shell(&format!(
            "! command -v cargo && ! command -v cc && mkdir /root/work && cd /root/work && \
             {kakehi} run -q --stats stats -- python3 -c 'open(\"x\",\"w\").write(\"y\")' && cat x"
        ));
        assert_eq!(written, "y");
        let document = stats(&self.path.join("root/work/stats"));
        assert_eq!(document[0]["bytes_staged"], 1, "{document:?}");
    }
}

/// The least minor release of glibc 2 that a package of this machine needs.
fn glibc(deb: &Path) -> u32 {
    let depends = succeed(Command::new("dpkg-deb").arg("-f").arg(deb).arg("Depends"), SOON);
    let minor = depends.split("libc6 (>= 2.").nth(1).and_then(|rest| rest.split(')').next());
    minor.and_then(|minor| minor.parse().ok()).expect("a release of glibc")
}

#[test]
#[ignore = "two Debian roots are downloaded: for `make soak`"]
fn each_package_installs_by_one_command_in_a_clean_debian_and_runs_a_program() {
    if !rustix::process::geteuid().is_root() {
        return skip("packages in a clean Debian", "debootstrap needs root");
    }
    let folder = Folder::new();
    let [Some(deb), Some(tarball), wheel] = ["deb", "tarball", "wheel"].map(|it| made(&folder, it))
    else {
        return;
    };
    for (name, minor) in RELEASES {
        if glibc(&deb) > minor {
            skip("packages in a clean Debian", format_args!("built for a later one than {name}"));
            continue;
        }
        let Some(release) = release(name) else { continue };
        let fresh = || Root::copy(&folder, &release);

        let root = fresh();
        root.shell(&format!("apt-get install -qqy {}", root.has(&deb)));
        root.runs_a_program("kakehi");

        let root = fresh();
        let file = root.has(&tarball);
        root.shell(&format!(
            "cd /root && tar -xzf {file} && {}/install.sh",
            file.trim_end_matches(".tar.gz")
        ));
        root.runs_a_program("kakehi");

        let Some(wheel) = &wheel else { continue };
        let root = fresh();
        let file = root.has(wheel);
        root.shell(&format!(
            "cd /root && python3 -m venv venv && venv/bin/pip install -q --no-index {file}"
        ));
        root.runs_a_program("/root/venv/bin/kakehi");
        let imported =
            root.shell("/root/venv/bin/python -c 'import kakehi; print(kakehi.command())'");
        assert_eq!(imported.trim(), "/root/venv/bin/kakehi");
    }
}
