//! Long streams into a server on a local disk, which it writes past the page cache once the device
//! is waited for.

use std::{
    fs,
    io::{ErrorKind, Read as _},
    os::unix::fs::{MetadataExt as _, symlink},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::fs::{OFlags, major, minor};

use crate::{
    harness::{Folder, Running, note, program, skip, wait_for},
    remote::{
        local,
        server::{Scheme, Server},
    },
    rigs::Rig,
};

const TIME_MAX: Duration = Duration::from_secs(300);
const STREAMS: usize = 2;
const MIB: u64 = 320;
const LEN: u64 = MIB << 20;

#[test]
fn long_streams_pass_by_the_page_cache_and_survive_a_killed_server() {
    let folder = Folder::alone();
    let Some(rig) = Rig::start(&folder, "loop", "ext4") else { return };
    let _limits = match Limits::few_dirty_pages(&rig.mount()) {
        Ok(limits) => limits,
        Err(why) => {
            let why = format!("the kernel takes no limit of a device: {why}");
            return skip("long streams", why);
        }
    };
    fs::create_dir_all(rig.mount().join("root/job")).expect("folders");
    symlink(rig.mount().join("root"), folder.join("root")).expect("a link");
    let mut server = Server::start(&folder, Scheme::Tcp);
    let mut streams: Vec<_> = (0..STREAMS).map(|index| stream(&folder, &server, index)).collect();
    let files: Vec<_> = (0..STREAMS).map(|index| server.job().join(name(index))).collect();
    for round in 0..2 {
        // The second time, what is left of the streams may be too short.
        let is_over = |stream: &mut Running| stream.child.try_wait().is_ok_and(|end| end.is_some());
        let mut ended = || round > 0 && streams.iter_mut().all(is_over);
        let found = wait_for(TIME_MAX, || has_direct(&server) || ended());
        assert!(found, "round {round}: no stream passes by the page cache: {}", server.said());
        let lens = files.iter().map(|file| right_len(file, false)).collect::<Vec<_>>();
        note(format_args!("direct in round {round}, with {lens:?} bytes written"));
        server.kill_and_restart();
    }
    for stream in &mut streams {
        assert_eq!(stream.wait(TIME_MAX).code(), Some(0));
    }
    for file in &files {
        assert_eq!(right_len(file, true), LEN, "{}", file.display());
    }
    server.end();
    rig.stop();
}

fn name(index: usize) -> String {
    format!("stream{index}")
}

/// A node that streams into a file.
fn stream(folder: &Folder, server: &Server, index: usize) -> Running {
    let own = folder.join(format!("node{index}"));
    fs::create_dir(&own).expect("folder");
    let mut command = server.run(folder);
    command.env("XDG_RUNTIME_DIR", own).env("KAKEHI_REMOTE_TIMEOUT", "60s");
    command.arg(program("stream")).arg(local(folder).join(name(index))).arg(MIB.to_string());
    Running::start(command.stdin(Stdio::null()))
}

/// Dirty page limits of a device, restored on drop: they would outlive the file system on it.
struct Limits {
    folder: PathBuf,
    before: Vec<(&'static str, String)>,
}

impl Limits {
    /// Makes the kernel throttle writers early, as on a node with little memory.
    fn few_dirty_pages(mount: &Path) -> std::io::Result<Self> {
        let device = fs::metadata(mount)?.dev();
        let name = format!("{}:{}", major(device), minor(device));
        let folder = PathBuf::from("/sys/class/bdi").join(name);
        let before = ["max_ratio", "strict_limit"].into_iter();
        let before = before.map(|name| Ok((name, fs::read_to_string(folder.join(name))?)));
        let limits = Self { before: before.collect::<std::io::Result<_>>()?, folder };
        fs::write(limits.folder.join("strict_limit"), "1")?;
        fs::write(limits.folder.join("max_bytes"), (16 << 20).to_string())?;
        Ok(limits)
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        for (name, value) in &self.before {
            if let Err(why) = fs::write(self.folder.join(name), value) {
                note(format_args!("{} keeps its limits: {why}", self.folder.display()));
            }
        }
    }
}

/// True if the server has a file open past the page cache.
fn has_direct(server: &Server) -> bool {
    let fds = fs::read_dir(format!("/proc/{}/fdinfo", server.running.child.id()));
    fds.expect("descriptors").flatten().any(|fd| {
        let text = fs::read_to_string(fd.path()).unwrap_or_default(); // It may be closed by now.
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.map(|flags| u32::from_str_radix(flags.trim(), 8).expect("octal"));
        flags.is_some_and(|flags| OFlags::from_bits_retain(flags).contains(OFlags::DIRECT))
    })
}

/// Reads a file whose words are right, and returns its length. Unless it `is_whole`, bytes that are
/// under way read as zeros.
#[track_caller]
fn right_len(file: &Path, is_whole: bool) -> u64 {
    let (mut reader, mut piece) = (fs::File::open(file).expect("there"), vec![0; 1 << 20]);
    let mut word = 0_u64;
    loop {
        let len = reader.by_ref().take(piece.len() as u64).read(&mut piece);
        let len = match len {
            Err(why) if why.kind() == ErrorKind::Interrupted => continue,
            len => len.expect("readable"),
        };
        if len == 0 {
            return word * 8;
        }
        for found in piece[..len].chunks_exact(8) {
            word += 1;
            let found = u64::from_le_bytes(found.try_into().expect("8 bytes"));
            assert!(found == word || !is_whole && found == 0, "{found} at word {word}");
        }
    }
}
