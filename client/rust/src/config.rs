//! What the environment says, as `kakehi run` put it there.

use core::{error, fmt, time::Duration};

/// Longest job folder path: a socket address has room for 107 bytes, `/socket` included.
const FOLDER_MAX: usize = 100;
const RULES_MAX: usize = 4096;

/// A client's settings.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    folder: Text<FOLDER_MAX>,
    rules: Text<RULES_MAX>,
    pub(crate) synchronous: bool,
    pub(crate) disabled: bool,
    pub(crate) fence_timeout: Duration,
}

/// An environment variable that a client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// `KAKEHI_SOCKET`: the job's folder. Without it nothing is delegated.
    Socket,
    /// `KAKEHI_RULES`: `GLOB=POLICY` lines, globs absolute, first match wins.
    Rules,
    /// `KAKEHI_SYNC`: `1` makes every write return when it is drained.
    Sync,
    /// `KAKEHI_DISABLE`: `1` leaves the program alone.
    Disable,
    /// `KAKEHI_FENCE_TIMEOUT`: milliseconds to wait for a silent daemon before it is killed.
    FenceTimeout,
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
    /// Every setting.
    pub const ALL: [Self; 5] =
        [Self::Socket, Self::Rules, Self::Sync, Self::Disable, Self::FenceTimeout];

    /// The variable's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Socket => "KAKEHI_SOCKET",
            Self::Rules => "KAKEHI_RULES",
            Self::Sync => "KAKEHI_SYNC",
            Self::Disable => "KAKEHI_DISABLE",
            Self::FenceTimeout => "KAKEHI_FENCE_TIMEOUT",
        }
    }
}

impl Config {
    /// The settings of an empty environment.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            folder: Text::new(),
            rules: Text::new(),
            synchronous: false,
            disabled: false,
            fence_timeout: Duration::from_secs(30),
        }
    }

    /// Takes one variable's value.
    ///
    /// # Errors
    ///
    /// [`SettingError`] when the value cannot be used; the setting keeps what it had.
    pub fn set(&mut self, setting: Setting, value: &[u8]) -> Result<(), SettingError> {
        let wrong = SettingError(setting);
        match setting {
            Setting::Socket => self.folder.set(value).ok_or(wrong)?,
            Setting::Rules => self.rules.set(value).ok_or(wrong)?,
            Setting::Sync => self.synchronous = value == b"1",
            Setting::Disable => self.disabled = value == b"1",
            Setting::FenceTimeout => {
                let text = core::str::from_utf8(value).map_err(|_| wrong)?;
                self.fence_timeout = Duration::from_millis(text.parse().map_err(|_| wrong)?);
            }
        }
        Ok(())
    }

    pub(crate) fn folder(&self) -> &[u8] {
        self.folder.get()
    }

    pub(crate) fn rules(&self) -> &[u8] {
        self.rules.get()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

/// A short text in place.
#[derive(Clone, Copy)]
struct Text<const MAX: usize> {
    bytes: [u8; MAX],
    len: usize,
}

impl<const MAX: usize> Text<MAX> {
    const fn new() -> Self {
        Self { bytes: [0; MAX], len: 0 }
    }

    fn set(&mut self, value: &[u8]) -> Option<()> {
        self.bytes.get_mut(..value.len())?.copy_from_slice(value);
        self.len = value.len();
        Some(())
    }

    fn get(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl<const MAX: usize> fmt::Debug for Text<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get().escape_ascii(), f)
    }
}
