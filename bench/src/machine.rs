//! The machine a bench ran on, as far as its results depend on it.

use std::{
    collections::BTreeMap,
    fmt, fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::{
    fs::statfs,
    system::{sysinfo, uname},
    thread::sched_getaffinity,
};
use serde::Serialize;

/// Where Linux keeps a tmpfs for everybody.
pub(crate) const MEMORY: &str = "/dev/shm";

/// The parameters of a result besides the code.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: u32,
    pub(crate) kernel: String,
    pub(crate) memory_bytes: u64,
    /// Commit the program was built from.
    pub(crate) commit: &'static str,
    /// Kind of file system, by the name it has in the cases.
    pub(crate) file_systems: BTreeMap<String, String>,
    /// Idle policy of the daemon.
    pub(crate) idle: &'static str,
    pub(crate) pinning: String,
}

/// The two cores that client and daemon are kept on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cores {
    pub(crate) client: usize,
    pub(crate) daemon: usize,
}

impl Cores {
    /// The first two cores this process may use; `None` when there is but one.
    pub(crate) fn find() -> Option<Self> {
        let set = sched_getaffinity(None).ok()?;
        let mut cores = (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| set.is_set(*core));
        Some(Self { client: cores.next()?, daemon: cores.next()? })
    }

    /// The other way round.
    pub(crate) const fn swapped(self) -> Self {
        Self { client: self.daemon, daemon: self.client }
    }
}

impl Machine {
    /// This machine, with the file systems of a bench in this folder and in memory.
    pub(crate) fn with(cores: Option<Cores>, dir: &Path) -> Self {
        let folders = [("dir", dir), ("memory", Path::new(MEMORY))];
        let file_systems = folders.map(|(name, folder)| (name.to_owned(), file_system(folder)));
        Self { file_systems: file_systems.into(), ..Self::find(cores) }
    }

    pub(crate) fn find(cores: Option<Cores>) -> Self {
        let cpu_info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let mut fields = cpu_info.lines().filter_map(|line| line.split_once(':'));
        let cpu = fields.find(|(name, _)| name.trim() == "model name");
        let system = sysinfo();
        Self {
            cpu: cpu.map_or("unknown", |(_, model)| model.trim()).to_owned(),
            cores: sched_getaffinity(None).map_or(0, |set| set.count()),
            kernel: uname().release().to_string_lossy().into_owned(),
            memory_bytes: system.totalram.saturating_mul(system.mem_unit.into()),
            commit: env!("KAKEHI_COMMIT"),
            file_systems: BTreeMap::new(),
            idle: "hybrid: park, delegate: spin, unless the case says otherwise",
            pinning: cores.map_or("none: one core".to_owned(), |cores| {
                format!("programs on core {}, daemon on core {}", cores.client, cores.daemon)
            }),
        }
    }

    /// A name for the folder of this machine's results: date, processor, cores.
    pub(crate) fn folder(&self) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let cpu: String = self
            .cpu
            .chars()
            .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
            .collect();
        format!("{}-{}-{}core", date(now.as_secs() / 86_400), cpu.to_lowercase(), self.cores)
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gib = self.memory_bytes >> 30;
        let Self { cpu, cores, kernel, commit, idle, pinning, .. } = self;
        writeln!(f, "{cpu}, {cores} cores, {gib} GiB, Linux {kernel}, commit {commit}")?;
        let file_systems: Vec<_> =
            self.file_systems.iter().map(|(name, kind)| format!("{name}: {kind}")).collect();
        writeln!(f, "{}; idle: {idle}; {pinning}", file_systems.join(", "))
    }
}

/// The file system of a path, by name where it is a usual one.
pub(crate) fn file_system(path: &Path) -> String {
    const KNOWN: [(i64, &str); 11] = [
        (0xef53, "ext4"),
        (0x0102_1994, "tmpfs"),
        (0x5846_5342, "xfs"),
        (0x9123_683e, "btrfs"),
        (0x794c_7630, "overlayfs"),
        (0x6969, "nfs"),
        (0x0bd0_0bd0, "lustre"),
        (0x4750_4653, "gpfs"),
        (0x1983_0326, "beegfs"),
        (0x00c3_6400, "ceph"),
        (0x6573_5546, "fuse"),
    ];
    let Ok(stat) = statfs(path) else { return "unknown".to_owned() };
    let known = KNOWN.iter().find(|(number, _)| *number == stat.f_type);
    known.map_or_else(|| format!("{:#x}", stat.f_type), |(_, name)| (*name).to_owned())
}

/// The absolute path of a folder that is there.
pub(crate) fn folder(text: &str) -> io::Result<PathBuf> {
    let path = Path::new(text).canonicalize()?;
    if path.is_dir() { Ok(path) } else { Err(ErrorKind::NotADirectory.into()) }
}

/// The day `days` after 1970-01-01, in the proleptic Gregorian calendar.
fn date(days: u64) -> String {
    let (mut year, mut rest) = (1970, days);
    let is_leap = |year: u64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    while rest >= 365 + u64::from(is_leap(year)) {
        rest -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for len in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if rest < len {
            break;
        }
        rest -= len;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", rest + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (days, text) in
            [(0, "1970-01-01"), (59, "1970-03-01"), (11_016, "2000-02-29"), (20_453, "2025-12-31")]
        {
            assert_eq!(date(days), text);
        }
    }
}
