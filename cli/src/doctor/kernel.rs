//! Probes of the kernel: each does once what the daemon or a client does all the time.

use std::{
    fs::{self, File},
    io::{self, IoSliceMut},
    os::unix::fs::FileExt as _,
    path::Path,
};

use io_uring::IoUring;
use rustix::{
    fs::{MemfdFlags, Mode, OFlags, SealFlags},
    io::{Errno, ReadWriteFlags},
    process::PidfdFlags,
};

use crate::finding::Finding;

const PROBE_LEN: usize = 4096;

pub(super) fn version() -> Finding {
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy().into_owned();
    Finding::ok("kernel", release, "the lines below try what Kakehi needs of it")
}

/// Sets a ring up as the daemon would, then as any kernel with io_uring could.
pub(super) fn io_uring() -> Finding {
    const NAME: &str = "io_uring";
    const THREADS: &str = "file I/O runs on threads instead (engine 'threads')";
    let best: io::Result<IoUring> =
        IoUring::builder().setup_single_issuer().setup_coop_taskrun().build(8);
    let Err(why) = best else {
        return Finding::ok(NAME, "available", "the daemon can use it for file I/O");
    };
    if IoUring::new(8).is_ok() {
        return Finding::note(
            NAME,
            "available, without cooperative task work",
            "the daemon can use it",
        )
        .advise("Linux 6.0 or later has cooperative task work, which is faster");
    }
    let sysctl = setting("/proc/sys/kernel/io_uring_disabled");
    let finding = Finding::note(NAME, &why, THREADS);
    match (sysctl.as_deref(), Errno::from_io_error(&why)) {
        (Some("1" | "2"), _) => {
            finding.advise("have the administrator set sysctl kernel.io_uring_disabled=0")
        }
        (_, Some(Errno::NOSYS)) => finding.advise("Linux 5.6 or later has io_uring"),
        (_, Some(Errno::PERM | Errno::ACCESS)) if filtered() => {
            finding.advise("a seccomp filter forbids it: allow io_uring_* in the container")
        }
        (_, Some(Errno::NOMEM)) => finding.advise("raise the memlock limit"),
        _ => finding,
    }
}

/// A sealed file in memory, as every segment between client and daemon is one.
pub(super) fn memfd() -> Finding {
    const NAME: &str = "memfd";
    const MEANING: &str = "program and daemon share memory by sealed memfds";
    let sealed = || {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("kakehi-doctor", flags)?;
        rustix::fs::ftruncate(&file, 4096)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        match rustix::fs::ftruncate(&file, 0) {
            Err(Errno::PERM) => Ok(()),
            _ => Err(Errno::NOTSUP),
        }
    };
    match sealed() {
        Ok(()) => Finding::ok(NAME, "sealed", MEANING),
        Err(why) => Finding::problem(NAME, why, MEANING)
            .advise("Linux 3.17 or later has them; in a container allow memfd_create and fcntl"),
    }
}

pub(super) fn pidfd() -> Finding {
    const NAME: &str = "pidfd";
    const MEANING: &str = "program and daemon notice each other's death by it";
    match rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()) {
        Ok(_) => Finding::ok(NAME, "available", MEANING),
        Err(why) => Finding::problem(NAME, why, MEANING)
            .advise("Linux 5.3 or later has it; in a container allow pidfd_open"),
    }
}

/// Reads a cached page without waiting, in a nameless file of `folder`.
pub(super) fn nowait(folder: Option<&Path>) -> Finding {
    const NAME: &str = "RWF_NOWAIT";
    const MEANING: &str = "cached reads in this folder need no request";
    let read = || -> io::Result<usize> {
        let folder = folder.ok_or(io::ErrorKind::NotFound)?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all_at(&[1; PROBE_LEN], 0)?;
        let mut page = [0; PROBE_LEN];
        let buffers = &mut [IoSliceMut::new(&mut page)];
        Ok(rustix::io::preadv2(&file, buffers, 0, ReadWriteFlags::NOWAIT)?)
    };
    match read() {
        Ok(PROBE_LEN) => Finding::ok(NAME, "available", MEANING),
        Ok(len) => Finding::note(NAME, format_args!("{len} of {PROBE_LEN} bytes"), MEANING),
        Err(why) if Errno::from_io_error(&why) == Some(Errno::OPNOTSUPP) => {
            Finding::note(NAME, "not available here", "the kernel serves all reads in this folder")
        }
        Err(why) => Finding::note(NAME, format_args!("not tried: {why}"), MEANING)
            .advise("start doctor in a folder where your programs write"),
    }
}

/// Only told: the daemon never reads another process's memory.
pub(super) fn ptrace_scope() -> Finding {
    const NAME: &str = "ptrace scope";
    const MEANING: &str = "Kakehi does not use ptrace";
    let scope = setting("/proc/sys/kernel/yama/ptrace_scope");
    Finding::ok(NAME, scope.as_deref().unwrap_or("no Yama"), MEANING)
}

/// True if a seccomp filter applies to us.
fn filtered() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
}

fn setting(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}
