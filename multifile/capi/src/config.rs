//! The environment: read here and nowhere else, under both flavours' names (`SION_X`, `LSION_X`).

use std::{env, ffi::c_int};

/// Settings of the environment for files opened from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Config {
    /// Bytes that may wait in a write buffer; -1 stands for one file-system block.
    pub(crate) buffer_len: Option<i64>,
    /// Wished number of tasks in a collective group; 0 turns collective calls off, negative leaves
    /// the choice to us.
    pub(crate) group_len: Option<i32>,
    /// Wished number of collective groups.
    pub(crate) group_count: Option<i32>,
    /// As `keyval=` of the mode string, which wins.
    pub(crate) keyval: Option<String>,
}

impl Config {
    pub(crate) fn read() -> Self {
        Self {
            buffer_len: number("SION_BUFFERSIZE"),
            group_len: number("SION_COLLSIZE"),
            group_count: number("SION_COLLNUM"),
            keyval: text("SION_KEYVALUE_MODE"),
        }
    }
}

/// True if errors of `rank` on `thread` are printed, as SIONlib does.
pub(crate) fn compatible(rank: c_int, thread: c_int) -> bool {
    let wanted = |name, number_of| number(name).is_none_or(|wanted: c_int| wanted == number_of);
    number::<i32>("SION_COMPAT") == Some(1)
        && wanted("SION_ERROR_MSG_RANK", rank)
        && wanted("SION_ERROR_MSG_THREAD", thread)
}

fn number<T: std::str::FromStr>(name: &str) -> Option<T> {
    text(name)?.trim().parse().ok()
}

#[expect(clippy::disallowed_methods, reason = "this is config.rs")]
fn text(name: &str) -> Option<String> {
    let read = |name: &str| env::var_os(name).and_then(|value| value.into_string().ok());
    read(name).or_else(|| read(&format!("L{name}")))
}
