//! Configuration of a worker: bounds, and settings handed to UCX explicitly.

use std::{ffi::CString, ptr};

use crate::{
    abi,
    error::{Error, Status},
    library::Library,
};

/// How names begin of what is said once for POSIX and System V shared memory. UCX takes the names
/// for each only from the environment.
const SHARED_MEMORY: &str = "MM_";

/// The transports UCX may choose from.
const TRANSPORTS: &str = "TLS";

/// Settings given to UCX where the user has not chosen otherwise, by their UCX names without the
/// prefix `UCX_`.
const DEFAULTS: [(&str, &str); 7] = [
    // Without this, asking for failure detection silently takes shared memory away.
    ("MM_ERROR_HANDLING", "y"),
    // A dead peer on shared memory is noticed by these looks only; UCX's default is 20 s.
    ("KEEPALIVE_INTERVAL", "1s"),
    // Endpoints per look: all that a server has, so that the bound does not grow with them.
    ("KEEPALIVE_NUM_EPS", "1024"),
    // Over TCP, 16 KiB by rendezvous cost 39 us, eagerly 5 us; from 256 KiB on they are equal.
    ("RNDV_THRESH", "128k"),
    // A piece of shared memory holds a message of PIECE_LEN bytes, with its header. UCX counts the
    // bytes of one by 16 bits.
    ("MM_SEG_SIZE", "33k"),
    // Pieces for a full queue of UCX's, 64, and for what may be lent; with UCX's own 512, which it
    // takes at a time, memory would go on to be touched for long.
    ("MM_RX_BUFS_GROW", "144"),
    // The receiver fetches. Nobody writes to memory here after a connection was cut.
    ("RNDV_SCHEME", "get_zcopy"),
];

/// The longest message, in bytes, that is in one piece in shared memory: the receiver finds it
/// there, and it need not be copied. Longer ones are put together from pieces, or fetched.
pub const PIECE_LEN: usize = 32 << 10;

/// Configuration of a [`Worker`](crate::Worker).
#[derive(Clone, Debug)]
pub struct Config {
    /// The library, as the dynamic linker takes it: a file name to look for, or a path.
    pub library: String,
    /// Receive buffers: the messages held at one time, by this program or on their way to it.
    pub buffer_count: u32,
    /// Length of a receive buffer, in bytes: the longest message taken.
    pub buffer_len: usize,
    /// Messages from this length on, in bytes, stay where UCX has received them, if it can leave
    /// them there and they begin a page. Those buffers are no part of the worker's memory.
    pub lent_len_min: usize,
    /// Of those at most so many at a time; further ones are copied.
    pub lent_max: u32,
    /// Messages of one peer that may wait with no buffer for them. One more cuts the peer off.
    pub put_off_max: u32,
    /// Sends in flight at one time, at least 1. Further ones wait.
    pub send_max: u32,
    /// Settings for UCX.
    pub settings: Settings,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            library: "libucp.so.0".into(),
            buffer_count: 64,
            buffer_len: 1024 * 1024,
            lent_len_min: 8192,
            lent_max: 64,
            put_off_max: 16,
            send_max: 256,
            settings: Settings::default(),
        }
    }
}

/// Settings handed to UCX. They take precedence over the environment, which UCX reads itself.
#[derive(Clone, Debug)]
pub struct Settings(Vec<(String, String)>);

impl Default for Settings {
    fn default() -> Self {
        Self(DEFAULTS.map(|(name, value)| (name.into(), value.into())).into())
    }
}

impl Settings {
    /// Sets `name`, written without `UCX_`, to `value`.
    ///
    /// UCX ignores names it does not know.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.0.retain(|(other, _)| other != name);
        self.0.push((name.into(), value.into()));
        self
    }

    /// Leaves what `variables` are about, such as `UCX_RNDV_THRESH`, to the environment.
    ///
    /// Given the names and values of the environment, this makes a user's choice stand.
    #[must_use]
    pub fn leave_to_environment<'a>(
        mut self,
        variables: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        for (variable, value) in variables {
            match variable.strip_prefix("UCX_") {
                // Other settings depend on it.
                Some(TRANSPORTS) => self = self.set(TRANSPORTS, value),
                Some(name) => self.0.retain(|(other, _)| other != name),
                None => {}
            }
        }
        self
    }

    /// UCX's own configuration, with these settings.
    pub(crate) fn read(&self, library: Library) -> Result<RawConfig, Error> {
        let mut raw = ptr::null_mut();
        // SAFETY: no prefix and no file; `raw` is a place for the result.
        let status = unsafe { (library.ucp_config_read)(ptr::null(), ptr::null(), &raw mut raw) };
        Status::check(status, "ucp_config_read")?;
        let config = RawConfig { library, raw };
        for (name, value) in self.0.iter().filter(|(name, _)| self.applies(name)) {
            config.modify(name, value)?;
        }
        Ok(config)
    }

    /// True if there may be a transport that `name` is about. UCX prints a warning otherwise.
    fn applies(&self, name: &str) -> bool {
        let transports = self.0.iter().find(|(name, _)| name == TRANSPORTS);
        let Some((_, transports)) = transports else { return true };
        let shared_memory = ["all", "shm", "sm", "mm", "posix", "sysv"];
        !name.starts_with(SHARED_MEMORY)
            || transports.split(',').any(|transport| shared_memory.contains(&transport))
    }
}

/// A `ucp_config_t`.
pub(crate) struct RawConfig {
    library: Library,
    raw: *mut abi::Config,
}

impl RawConfig {
    pub(crate) fn as_ptr(&self) -> *const abi::Config {
        self.raw
    }

    fn modify(&self, name: &str, value: &str) -> Result<(), Error> {
        let call = "ucp_config_modify";
        let invalid = |_| Error::Ucx { call, status: Status::INVALID_PARAMETER };
        let name = CString::new(name).map_err(invalid)?;
        let value = CString::new(value).map_err(invalid)?;
        // SAFETY: `raw` was read and not released; both strings end in zero and are copied.
        let status =
            unsafe { (self.library.ucp_config_modify)(self.raw, name.as_ptr(), value.as_ptr()) };
        Status::check(status, call)
    }
}

impl Drop for RawConfig {
    fn drop(&mut self) {
        // SAFETY: read once, released once.
        unsafe { (self.library.ucp_config_release)(self.raw) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value<'a>(settings: &'a Settings, name: &str) -> Option<&'a str> {
        let mut found = settings.0.iter().filter(|(other, _)| other == name);
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} is set twice");
        value
    }

    #[test]
    fn a_setting_replaces_the_default() {
        let settings = Settings::default().set("RNDV_THRESH", "64k").set("TLS", "tcp");
        assert_eq!(value(&settings, "RNDV_THRESH"), Some("64k"));
        assert_eq!(value(&settings, "TLS"), Some("tcp"));
    }

    #[test]
    fn settings_of_shared_memory_are_left_out_without_it() {
        let settings = |transports: &str| Settings::default().set("TLS", transports);
        assert!(!settings("tcp,self").applies("MM_SEG_SIZE"));
        assert!(settings("tcp,posix").applies("MM_SEG_SIZE"));
        assert!(settings("tcp").applies("RNDV_THRESH"));
        assert!(Settings::default().applies("MM_SEG_SIZE"));
    }

    #[test]
    fn the_users_environment_stands_against_defaults() {
        let variables = ["HOME", "UCX_KEEPALIVE_INTERVAL", "RNDV_THRESH"].map(|name| (name, "5"));
        let settings = Settings::default().leave_to_environment(variables.into_iter());
        assert_eq!(value(&settings, "KEEPALIVE_INTERVAL"), None);
        assert_eq!(value(&settings, "RNDV_THRESH"), Some("128k"));
        let settings = settings.leave_to_environment([("UCX_TLS", "tcp")].into_iter());
        assert!(!settings.applies("MM_SEG_SIZE"));
    }
}
