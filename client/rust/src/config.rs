//! Configuration from the environment, as `kakehi run` put it there.

use core::{error, fmt, time::Duration};

use crate::{rules::Rules, text::Text};

/// Room for a path in the job's folder: as much as a socket address has.
pub(crate) const PATH_MAX: usize = 108;
/// Longest name of the file of records, bytes.
const WATCH_MAX: usize = 256;
/// Longest job folder path: a socket address has room for 107 bytes, `/socket` included.
const FOLDER_MAX: usize = 100;
/// How long a silent daemon is waited for, unless somebody decides otherwise.
pub const FENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes from which a write goes to the kernel directly, unless somebody decides otherwise.
pub const LARGE_LEN: u64 = 256 << 10;

/// Time that the small writes of a file must have taken before it is staged, unless somebody
/// decides otherwise: about what its hand-over and its close cost.
pub const STAGE_AFTER: Duration = Duration::from_micros(30);

/// A client's settings.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    folder: Text<FOLDER_MAX>,
    rules: Rules,
    pub(crate) synchronous: bool,
    disabled: bool,
    pub(crate) fence_timeout: Duration,
    /// Writes of at least this many bytes go to the kernel directly.
    pub(crate) large_len: u64,
    /// Time that small writes of a file must have taken before it is staged.
    pub(crate) stage_after: Duration,
    pub(crate) rank: Option<u32>,
    watch: Text<WATCH_MAX>,
    /// The records have the times of requests, too.
    pub(crate) traces: bool,
    /// Small writes may go where nothing looks at them but the daemon.
    pub(crate) has_short_ways: bool,
}

/// An environment variable that a client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// `KAKEHI_SOCKET`: the job's folder. Without it nothing is delegated.
    Socket,
    /// `KAKEHI_RULES`: `GLOB=POLICY`, separated by `;`, globs absolute, first match wins.
    Rules,
    /// `KAKEHI_SYNC`: `1` makes every write return when it is drained.
    Sync,
    /// `KAKEHI_DISABLE`: `1` leaves the program alone.
    Disable,
    /// `KAKEHI_FENCE_TIMEOUT`: how long to wait for a silent daemon before it is
    /// killed; a number and a unit.
    FenceTimeout,
    /// `KAKEHI_DIRECT`: size from which a write goes to the kernel directly; a number and a unit.
    Direct,
    /// `KAKEHI_STAGE_AFTER`: time that small writes of a file must have taken before it is staged;
    /// a number and a unit, `0ms` for from the first write on.
    StageAfter,
    /// `KAKEHI_WATCH`: file that records of what this process does are appended to.
    Watch,
    /// `KAKEHI_TRACE`: `1` has the times of sampled requests among those records.
    Trace,
    /// The number that a launcher of parallel programs gave this process; the first one counts.
    Rank(Launcher),
}

wire::named! {
    /// The launcher whose variable, of this name, gives the rank.
    pub enum Launcher {
        /// Open MPI's `mpirun`.
        OpenMpi = "OMPI_COMM_WORLD_RANK",
        /// Any that speaks PMIx.
        Pmix = "PMIX_RANK",
        /// MPICH's and Intel's `mpirun`.
        Pmi = "PMI_RANK",
        /// `flux run`, of programs that do without MPI.
        Flux = "FLUX_TASK_RANK",
        /// HPE's `mpiexec` under PBS, of programs that do without MPI.
        Pals = "PALS_RANKID",
        /// IBM's `jsrun` under LSF, the same.
        Jsm = "JSM_NAMESPACE_RANK",
        /// `srun`; behind the launchers above, because what `mpirun` starts within a step has that
        /// of the step.
        Slurm = "SLURM_PROCID",
        /// LSF's `blaunch`, which counts from 1; last, for the same reason.
        Lsf = "LSF_PM_TASKID",
    }
}

/// A setting whose value means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingError(pub Setting);

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: the value is too long or malformed", self.0.name())
    }
}

impl error::Error for SettingError {}

impl Setting {
    /// Those that are no launcher's.
    const OWN_COUNT: usize = 9;
    /// Number of settings.
    pub const COUNT: usize = Self::OWN_COUNT + Launcher::ALL.len();

    /// Every setting.
    pub fn all() -> impl Iterator<Item = Self> {
        let own: [_; Self::OWN_COUNT] = [
            Self::Socket,
            Self::Rules,
            Self::Sync,
            Self::Disable,
            Self::FenceTimeout,
            Self::Direct,
            Self::StageAfter,
            Self::Watch,
            Self::Trace,
        ];
        own.into_iter().chain(Launcher::ALL.map(Self::Rank))
    }

    /// The variable's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Socket => "KAKEHI_SOCKET",
            Self::Rules => "KAKEHI_RULES",
            Self::Sync => "KAKEHI_SYNC",
            Self::Disable => "KAKEHI_DISABLE",
            Self::FenceTimeout => "KAKEHI_FENCE_TIMEOUT",
            Self::Direct => "KAKEHI_DIRECT",
            Self::StageAfter => "KAKEHI_STAGE_AFTER",
            Self::Watch => "KAKEHI_WATCH",
            Self::Trace => "KAKEHI_TRACE",
            Self::Rank(launcher) => launcher.name(),
        }
    }
}

impl Config {
    /// The settings of an empty environment.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            folder: Text::new(),
            rules: Rules::new(),
            synchronous: false,
            disabled: false,
            fence_timeout: FENCE_TIMEOUT,
            large_len: LARGE_LEN,
            stage_after: STAGE_AFTER,
            rank: None,
            watch: Text::new(),
            traces: false,
            has_short_ways: true,
        }
    }

    /// Takes one variable's value; an empty one counts as unset.
    ///
    /// # Errors
    ///
    /// [`SettingError`] when the value cannot be used; the setting keeps what it had.
    pub fn set(&mut self, setting: Setting, value: &[u8]) -> Result<(), SettingError> {
        let wrong = SettingError(setting);
        match setting {
            _ if value.is_empty() => {}
            Setting::Socket => self.folder.set(value).ok_or(wrong)?,
            Setting::Rules => self.rules.set(value).ok_or(wrong)?,
            Setting::Sync => {
                self.synchronous = switch(value).ok_or(wrong)?;
                self.has_short_ways &= !self.synchronous;
            }
            Setting::Disable => self.disabled = switch(value).ok_or(wrong)?,
            Setting::FenceTimeout => {
                self.fence_timeout = duration(value).ok_or(wrong)?;
            }
            Setting::Direct => self.large_len = size(value).ok_or(wrong)?,
            Setting::Watch => self.watch.set(value).ok_or(wrong)?,
            Setting::Trace => self.traces = switch(value).ok_or(wrong)?,
            Setting::StageAfter => self.stage_after = duration(value).ok_or(wrong)?,
            Setting::Rank(_) => {
                // Not ours: whatever else stands there is no mistake of this program's user.
                let rank = core::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                self.rank = self.rank.or(rank);
            }
        }
        Ok(())
    }

    /// True if anything is delegated: there is a daemon, and nobody has switched it off.
    #[must_use]
    pub fn delegates(&self) -> bool {
        !self.disabled && !self.folder().is_empty()
    }

    pub(crate) fn folder(&self) -> &[u8] {
        self.folder.get()
    }

    /// The path of `name` in the job's folder, put together in `path`; `None` if it is too long.
    pub(crate) fn path_of<'a>(
        &self,
        name: &[u8],
        path: &'a mut [u8; PATH_MAX],
    ) -> Option<&'a [u8]> {
        let folder = self.folder();
        let path = path.get_mut(..folder.len() + 1 + name.len())?;
        for (to, from) in path.iter_mut().zip(folder.iter().chain(b"/").chain(name)) {
            *to = *from;
        }
        Some(path)
    }

    /// The file that records of the process's calls are appended to; empty: none.
    pub(crate) fn watch(&self) -> &[u8] {
        self.watch.get()
    }

    pub(crate) const fn rules(&self) -> &Rules {
        &self.rules
    }
}

fn switch(value: &[u8]) -> Option<bool> {
    match value {
        b"1" | b"true" | b"yes" | b"on" => Some(true),
        b"0" | b"false" | b"no" | b"off" => Some(false),
        _ => None,
    }
}

/// `500ms`, `30s`, `5min`: a whole number and a unit.
fn duration(value: &[u8]) -> Option<Duration> {
    let (number, unit) = quantity(value)?;
    let nanos = match unit {
        b"ns" => 1,
        b"us" => 1_000,
        b"ms" => 1_000_000,
        b"s" => 1_000_000_000,
        b"min" => 60_000_000_000,
        b"h" => 3_600_000_000_000,
        _ => return None,
    };
    Some(Duration::from_nanos(number.checked_mul(nanos)?))
}

/// `4096B`, `256KiB`, `1MiB`: a whole number and a unit.
fn size(value: &[u8]) -> Option<u64> {
    let (number, unit) = quantity(value)?;
    let scale = match unit {
        b"B" => 1,
        b"KiB" => 1 << 10,
        b"MiB" => 1 << 20,
        b"GiB" => 1 << 30,
        b"TiB" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(scale)
}

fn quantity(value: &[u8]) -> Option<(u64, &[u8])> {
    let split = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = value.split_at(split);
    Some((core::str::from_utf8(number).ok()?.parse().ok()?, unit))
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_taken_or_named_as_wrong() {
        let mut config = Config::new();
        for (value, micros) in
            [("9000ns", 9), ("1500us", 1500), ("250ms", 250_000), ("2min", 120_000_000)]
        {
            assert_eq!(config.set(Setting::FenceTimeout, value.as_bytes()), Ok(()));
            assert_eq!(config.fence_timeout, Duration::from_micros(micros));
        }
        for value in ["30", "s", "99999999999999999999s", "1 s"] {
            let wrong = Err(SettingError(Setting::FenceTimeout));
            assert_eq!(config.set(Setting::FenceTimeout, value.as_bytes()), wrong, "{value}");
        }
        assert_eq!(config.set(Setting::Direct, b"256KiB"), Ok(()));
        assert_eq!(config.large_len, 256 << 10);
        assert_eq!(config.set(Setting::Socket, &[b'a'; 101]), Err(SettingError(Setting::Socket)));
        assert_eq!(config.folder(), b"");
    }

    #[test]
    fn whatever_folder_is_taken_has_room_for_the_name_of_a_socket() {
        let (mut config, mut path) = (Config::new(), [0; PATH_MAX]);
        assert_eq!(config.set(Setting::Socket, b"/folder"), Ok(()));
        assert_eq!(config.path_of(b"job", &mut path), Some(&b"/folder/job"[..]));
        assert_eq!(config.set(Setting::Socket, &[b'a'; FOLDER_MAX]), Ok(()));
        assert!(config.path_of(b"socket", &mut path).is_some_and(|path| path.len() < PATH_MAX));
        assert_eq!(config.path_of(b"a longer name", &mut path), None);
    }

    #[test]
    fn an_empty_value_counts_as_unset() {
        let mut config = Config::new();
        assert_eq!(config.set(Setting::Direct, b"1MiB"), Ok(()));
        for setting in Setting::all() {
            assert_eq!(config.set(setting, b""), Ok(()), "{}", setting.name());
        }
        assert_eq!((config.large_len, config.fence_timeout), (1 << 20, FENCE_TIMEOUT));
        assert!(!config.delegates());
    }

    #[test]
    fn delegation_is_switched_off_by_every_word_that_kakehi_takes() {
        for (value, delegates) in [("1", false), ("on", false), ("0", true), ("off", true)] {
            let mut config = Config::new();
            assert_eq!(config.set(Setting::Socket, b"/folder"), Ok(()));
            assert_eq!(config.set(Setting::Disable, value.as_bytes()), Ok(()));
            assert_eq!(config.delegates(), delegates, "{value}");
        }
        let wrong = Err(SettingError(Setting::Disable));
        assert_eq!(Config::new().set(Setting::Disable, b"maybe"), wrong);
    }

    #[test]
    fn first_launcher_that_numbers_the_process_counts() {
        let mut config = Config::new();
        for (launcher, value) in
            [(Launcher::OpenMpi, &b"nonsense"[..]), (Launcher::Pmix, b"3"), (Launcher::Slurm, b"0")]
        {
            assert_eq!(config.set(Setting::Rank(launcher), value), Ok(()));
        }
        assert_eq!(config.rank, Some(3));
    }
}
