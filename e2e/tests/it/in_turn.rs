//! Processes of a job that make calls on shared files in turn: each sees what all did before,
//! whoever stages, and whichever descriptor was open first.

use std::fs;

use fastrand::Rng;

use crate::{
    calls::Calls,
    harness::{Daemon, Folder, random},
};

const PROCESSES: usize = 3;
const FILES: usize = 2;
const STEPS: u32 = 60;

/// An open file of one process.
struct Open {
    process: usize,
    fd: u64,
    file: usize,
    flags: &'static str,
    position: usize,
}

/// The processes, and what is to be in the files.
struct Turns {
    processes: Vec<Calls>,
    paths: Vec<String>,
    contents: Vec<String>,
    open: Vec<Open>,
    rng: Rng,
}

impl Turns {
    fn start(daemon: &Daemon, rng: Rng) -> Self {
        let processes = (0..PROCESSES).map(|_| Calls::wrapped(daemon)).collect();
        Self { processes, paths: Vec::new(), contents: Vec::new(), open: Vec::new(), rng }
    }

    /// Calls on files that nobody has had open before.
    fn play(&mut self, folder: &Folder, round: u32) {
        let name = |number| folder.join(format!("{round}.{number}")).display().to_string();
        self.paths = (0..FILES).map(name).collect();
        self.contents = vec![String::new(); FILES];
        self.paths.iter().for_each(|path| fs::write(path, "").expect("a file"));
        for step in 0..STEPS {
            let is_opening = self.open.is_empty() || self.rng.u8(..) < 50;
            let (call, told, expected) = if is_opening { self.open() } else { self.use_one() };
            assert_eq!(told, expected, "round {round}, step {step}: {call}");
        }
        for Open { process, fd, .. } in std::mem::take(&mut self.open) {
            self.processes[process].get(&format!("close {fd}"));
        }
        for (path, content) in self.paths.iter().zip(&self.contents) {
            assert_eq!(&fs::read_to_string(path).expect("text"), content, "{path}");
            fs::remove_file(path).expect("it is there");
        }
    }

    fn open(&mut self) -> (String, String, String) {
        let flags = self.rng.choice(["r", "r", "w", "+", "+", "wa", "+a"]).expect("flags");
        let (process, file) = (self.rng.usize(..PROCESSES), self.rng.usize(..FILES));
        let call = format!("open {} {flags}", self.paths[file]);
        let fd = self.processes[process].get(&call);
        self.open.push(Open { process, fd, file, flags, position: 0 });
        (call, String::new(), String::new())
    }

    /// Makes a call on an open file; returns it, its answer, and what that should be.
    fn use_one(&mut self) -> (String, String, String) {
        let index = self.rng.usize(..self.open.len());
        let kind = self.rng.u8(..16);
        if kind == 0 {
            let Open { process, fd, .. } = self.open.swap_remove(index);
            let call = format!("close {fd}");
            let told = self.processes[process].ask(&call);
            return (call, told, "0".to_owned());
        }
        let Open { process, fd, file, flags, position } = &mut self.open[index];
        let content = &mut self.contents[*file];
        let may_write = *flags != "r";
        let (call, expected) = if may_write && kind < 8 {
            let text = self.rng.choice(["a", "bcd", "efghijklmnopqrstuvw"]).expect("text");
            let place = self.rng.usize(..=content.len());
            let (is_placed, appends) = (kind < 4, flags.ends_with('a'));
            let at = match (appends, is_placed) {
                (true, _) => content.len(),
                (false, true) => place,
                (false, false) => *position,
            };
            let end = (at + text.len()).min(content.len());
            content.replace_range(at..end, text);
            if !is_placed {
                *position = at + text.len();
            }
            let call = if is_placed {
                format!("pwrite {fd} {place} {text}")
            } else {
                format!("write {fd} {text}")
            };
            (call, text.len().to_string())
        } else if kind < 10 {
            *position = content.len();
            (format!("seekend {fd} 0"), content.len().to_string())
        } else if kind < 12 {
            (format!("stat {}", self.paths[*file]), content.len().to_string())
        } else if flags.starts_with('w') {
            (format!("read {fd} 1"), "EBADF".to_owned())
        } else {
            let is_placed = kind < 14;
            let place = self.rng.usize(..=content.len());
            let at = if is_placed { place } else { *position };
            let end = (at + 30).min(content.len());
            let found = content.get(at..end).unwrap_or_default();
            if !is_placed {
                *position = at + found.len();
            }
            let place =
                if is_placed { format!("pread {fd} {place} 30") } else { format!("read {fd} 30") };
            (place, format!("[{found}]"))
        };
        let told = self.processes[*process].ask(&call);
        (call, told, expected)
    }
}

#[test]
fn processes_see_what_others_did_before() {
    for rules in ["", "/**/*.1=delegate", "/**=delegate"] {
        let folder = Folder::new();
        let mut daemon = Daemon::start(&folder, "job", &[]);
        daemon.set("KAKEHI_RULES", rules);
        let mut turns = Turns::start(&daemon, random("calls in turn"));
        (0..20).for_each(|round| turns.play(&folder, round));
        turns.processes.iter_mut().for_each(Calls::end);
        daemon.end();
    }
}
