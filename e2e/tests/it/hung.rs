//! A file system that hangs, and a daemon that is killed while it waits for it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::{
    calls::Calls,
    harness::{Daemon, Folder, pause, skip},
};

/// An ext4 file system in a file, thawed and unmounted when this goes.
struct Frozen(PathBuf);

impl Frozen {
    /// `None`, loudly, where none can be mounted.
    fn mount(folder: &Folder) -> Option<Self> {
        let (image, path) = (folder.join("image"), folder.join("hung"));
        fs::create_dir(&path).expect("a folder");
        fs::File::create(&image).and_then(|file| file.set_len(64 << 20)).expect("a file");
        let succeeds = |command: &mut Command| command.output().is_ok_and(|o| o.status.success());
        if succeeds(Command::new("mkfs.ext4").arg("-q").arg(&image))
            && succeeds(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&path))
        {
            return Some(Self(path));
        }
        skip("a file system that hangs", "this user cannot mount an ext4 file system");
        None
    }

    fn tell(&self, what: &str) -> bool {
        Command::new("fsfreeze")
            .arg(what)
            .arg(&self.0)
            .status()
            .is_ok_and(|status| status.success())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.tell("-u");
        Command::new("umount").arg("-l").arg(&self.0).status().ok();
    }
}

/// The killed daemon ends with the file system only; whoever has no file there does not wait.
#[test]
fn writers_of_other_files_go_on_while_a_killed_daemon_hangs() {
    let folder = Folder::new();
    let Some(hung) = Frozen::mount(&folder) else { return };
    let mut daemon = Daemon::start(&folder, "job", &[]);
    daemon.set("KAKEHI_FENCE_TIMEOUT", "1s");
    let [there, here] = [hung.0.join("file"), folder.join("file")];
    let [mut stuck, mut free] = [Calls::wrapped(&daemon), Calls::wrapped(&daemon)];
    let open = |calls: &mut Calls, path: &Path| calls.get(&format!("open {} wct", path.display()));
    let (stuck_fd, free_fd) = (open(&mut stuck, &there), open(&mut free, &here));
    free.get(&format!("write {free_fd} before"));
    assert!(hung.tell("-f"), "not frozen");
    // Small enough to be staged; the daemon begins to drain it within a few milliseconds.
    stuck.get(&format!("write {stuck_fd} staged"));
    pause(Duration::from_millis(100));
    daemon.running.signal(Signal::KILL);
    free.get(&format!("write {free_fd} behind"));
    let asked = Instant::now();
    free.get(&format!("close {free_fd}"));
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
    assert_eq!(fs::read(&here).expect("the file"), b"beforebehind");
    assert!(hung.tell("-u"), "not thawed");
    stuck.get(&format!("close {stuck_fd}"));
    assert_eq!(fs::read(&there).expect("the file"), b"staged");
    stuck.end();
    free.end();
    daemon.kill();
    fs::remove_dir_all(&daemon.socket).expect("what a killed daemon leaves");
}
