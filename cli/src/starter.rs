//! The process that started this daemon, messages to it, and starting a daemon in the background.

use std::{
    env,
    ffi::OsStr,
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Write as _},
    os::{fd::OwnedFd, unix::fs::FileExt as _},
    path::Path,
    process::{Command, ExitCode, Stdio},
    sync::Arc,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FileType, Mode, OFlags, fstat, open},
    process::{setpgid, setsid},
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stderr},
};

use crate::{
    failure::{Code, Failure},
    library,
};

/// The daemon's message once it listens.
pub(crate) const READY: &str = "ready";
/// The byte that ends what it says about what it did. Its end itself takes longer: the kernel has
/// memory and rings to take apart.
pub(crate) const END: u8 = 0;
/// Before [`END`]: the daemon stays for programs that go on, and says no more.
pub(crate) const STAYS: u8 = 1;
/// Asks for a daemon that goes on by itself, and marks the one that was started for that.
const BACKGROUND: &str = "--background";
const IN_BACKGROUND: &str = "--in-background";

/// The process that started this daemon.
pub(crate) enum Starter {
    /// A shell, that has it in the foreground.
    Shell,
    /// A `kakehi serve --background`, that waits until this one serves.
    Background(Arc<OwnedFd>),
    /// A `kakehi run`, that waits for its end and reads what it did.
    Run(Arc<OwnedFd>),
}

impl Starter {
    /// A `kakehi run` at the other end of `output`, which has forked this process: it gets what a
    /// daemon has. A Ctrl-C at the terminal is for the program, the daemon has to drain.
    pub(crate) fn run(output: OwnedFd, folder: &Path) -> Self {
        // What of this fails changes nothing that is served.
        setpgid(None, None).ok();
        env::set_current_dir("/").ok();
        if let Ok(null) = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            dup2_stdin(&null).ok();
        }
        // What libraries print, as UCX its errors, nobody takes for the program's output.
        dup2_stdout(stderr()).ok();
        rename(&["kakehi", "serve", "--socket"].map(OsStr::new), folder.as_os_str());
        Self::Run(Arc::new(output))
    }

    /// A `kakehi serve --background` at the other end of standard output. No terminal's end, and no
    /// end of a script's process group, is this daemon's from now on.
    pub(crate) fn background() -> Result<Self, Failure> {
        setsid().map_err(|why| {
            Failure::new(Code::Failure, IN_BACKGROUND, why, "start it by --background")
        })?;
        take_over_output().map(Self::Background)
    }

    /// The end of `kakehi run`'s pipe: with it ends a daemon that nobody has attached to.
    pub(crate) fn pipe(&self) -> Option<Arc<OwnedFd>> {
        match self {
            Self::Run(output) => Some(Arc::clone(output)),
            Self::Shell | Self::Background(_) => None,
        }
    }

    /// True if nobody reads any more what this daemon says to a `kakehi run`.
    pub(crate) fn is_gone(&self) -> bool {
        let Self::Run(output) = self else { return false };
        let mut output = [PollFd::new(output, PollFlags::empty())];
        poll(&mut output, Some(&Timespec::default())).is_ok_and(|gone| gone > 0)
    }

    /// Says that the daemon listens.
    pub(crate) fn tell_ready(&self) {
        if let Self::Background(_) = self {
            let_go_of_output();
        }
        self.tell(&format!("{READY}\n"));
    }

    /// Says what it did, or why it failed.
    pub(crate) fn tell_end(&self, text: &str) {
        self.tell(&format!("{text}{}", char::from(END)));
    }

    /// If nobody is left to hear it, the daemon may go on.
    fn tell(&self, text: &str) {
        let (Self::Background(output) | Self::Run(output)) = self else { return };
        output.try_clone().and_then(|fd| File::from(fd).write_all(text.as_bytes())).ok();
    }
}

/// Tells the `kakehi run` at the other end of `output` not to wait: this daemon stays. Others may
/// wait for the end of what that had as standard error.
pub(crate) fn stay(output: &OwnedFd) {
    let_go_of_output();
    rustix::io::write(output, &[STAYS, END]).ok(); // The run may have been killed.
}

/// Takes what was standard output. What libraries print there, as UCX its errors, goes to standard
/// error from now on: nobody takes it for what the daemon says.
fn take_over_output() -> Result<Arc<OwnedFd>, Failure> {
    let taken = rustix::io::fcntl_dupfd_cloexec(io::stdout(), 0).and_then(|output| {
        dup2_stdout(stderr())?;
        Ok(Arc::new(output))
    });
    taken.map_err(|why| {
        Failure::new(Code::Failure, "standard output", why, "raise the descriptor limit")
    })
}

/// Has this process's command line be other words, as far as there is room: whoever ends programs
/// by theirs (`pkill -f`) does not mean the daemon.
fn rename(words: &[&OsStr], last: &OsStr) {
    // After the name, which may have anything in it, the 46th and 47th field.
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_ascii_whitespace();
    let mut range = fields.skip(45).map_while(|field| field.parse::<u64>().ok());
    let Some((start, end)) = range.next().zip(range.next()) else { return };
    let mut line = [words, &[last]].concat().join(OsStr::new("\0")).into_encoded_bytes();
    line.resize(usize::try_from(end.saturating_sub(start)).unwrap_or(0), 0);
    // The end that is there stays: without it, the kernel looks for one behind.
    line.pop();
    let memory = File::options().write(true).open("/proc/self/mem");
    memory.and_then(|memory| memory.write_all_at(&line, start)).ok();
}

/// Closes output that somebody may read to its end, as `ssh` and prologs do; a file may be kept.
fn let_go_of_output() {
    let is_file = fstat(stderr())
        .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::RegularFile);
    if is_file {
        return;
    }
    // Without it whoever started this daemon waits longer, and it serves all the same.
    if let Ok(null) = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        dup2_stdout(&null).and_then(|()| dup2_stderr(&null)).ok();
    }
}

/// Starts this command again, in the background, and returns once that daemon serves, or with what
/// it exits with: why, it has said itself.
pub(crate) fn start_in_background() -> Result<ExitCode, Failure> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::new(
            Code::Failure,
            "the daemon did not start",
            why,
            "start it without --background",
        )
    };
    let program = library::own_program()?;
    let words = env::args_os().skip(1);
    let words = words.map(|word| if word == BACKGROUND { IN_BACKGROUND.into() } else { word });
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|why| failed(&why))?;
    let output = child.stdout.take().ok_or_else(|| failed(&"it has no output"))?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).map_err(|why| failed(&why))?;
    if line.trim_end() == READY {
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait().map_err(|why| failed(&why))?;
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) if code != 0 => Ok(code.into()),
        _ => Err(failed(&status)),
    }
}
