//! The mode string: comma-separated `key` or `key=value`; unknown keys are ignored.

use multifile::{Options, Packing, Style, codec::Order};

use crate::{
    config::Config,
    error::{Failure, Result},
    pointer::Text,
};

/// Largest write buffer in bytes that the environment gets.
const BUFFER_LEN_MAX: i64 = 1 << 30;

/// How a multifile was opened, which decides how it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// All tasks by one process.
    Serial,
    /// One task by one process.
    Rank,
    /// One task by each rank.
    Parallel,
    /// Several tasks by each rank.
    Mapped,
    /// A second position in one of the last two.
    Duplicate,
}

/// Parsed mode string and environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mode {
    /// Writing, reading, or not said.
    pub(crate) write: Option<bool>,
    /// No stdio streams, and nothing waits in buffers unless asked for.
    pub(crate) posix: bool,
    /// The program asks for buffers.
    buffered: bool,
    pub(crate) keyval: Keyval,
    /// Levels of buddy copies.
    pub(crate) buddies: Option<u32>,
    data_order: Option<Order>,
    collective: bool,
    merge: bool,
    modular: bool,
    group_len: i32,
    group_count: Option<i32>,
    buffer_len: Option<i64>,
}

/// How streams are organised, as far as the program says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Keyval {
    /// Not said: plain when writing.
    #[default]
    Unset,
    /// Whatever the file has.
    Unknown,
    None,
    Inline,
    /// Named by SIONlib, written by nobody.
    Unsupported,
}

impl Mode {
    /// The mode that a program opens with, in the environment of this process.
    pub(crate) fn given(text: Text<'_>) -> Result<Self> {
        let text = String::from_utf8_lossy(text.bytes("the mode is NULL")?);
        Ok(Self::parse(&text, &Config::read()))
    }

    /// Reads `text` over what `config` says.
    pub(crate) fn parse(text: &str, config: &Config) -> Self {
        let mut mode = Self { group_len: -1, buffer_len: config.buffer_len, ..Self::default() };
        let env = config.keyval.as_deref();
        for name in ["inline", "meta", "hash", "none", "unknown"] {
            if env.is_some_and(|text| text.contains(name)) {
                mode.keyval = keyval(name);
            }
        }
        for part in text.split(',') {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            mode.set(key, value);
        }
        mode.group_count = config.group_count.filter(|count| *count > 0);
        mode.collective |= mode.group_count.is_some();
        if let Some(len) = config.group_len {
            (mode.collective, mode.group_len) = (len != 0, len);
        }
        mode
    }

    fn set(&mut self, key: &str, value: &str) {
        match key {
            "w" | "wb" | "bw" => self.write = Some(true),
            "r" | "rb" | "br" => self.write = self.write.or(Some(false)),
            "ansi" => self.posix = false,
            "posix" | "sionfwd" => self.posix = true,
            "buffered" => self.buffered = true,
            "collective" => self.collective = true,
            "collectivemerge" | "cmerge" => (self.collective, self.merge) = (true, true),
            "collsize" => self.group_len = value.parse().unwrap_or(-1),
            "collmsa" => (self.collective, self.modular) = (true, true),
            "keyval" => self.keyval = keyval(value),
            "endianness" if value == "big" => self.data_order = Some(Order::Big),
            "endianness" => self.data_order = Some(Order::Little),
            "buddy" => self.buddies = Some(value.parse().unwrap_or(1)),
            _ => {}
        }
    }

    /// How to write a multifile of `task_count` tasks; `fs_block_len` -1 asks the file system.
    pub(crate) fn options(
        &self,
        style: Style,
        fs_block_len: i32,
        task_count: u32,
    ) -> Result<Options> {
        if self.keyval == Keyval::Unsupported {
            return Err(Failure::Mode("no file can be written with keyval=meta or keyval=hash"));
        }
        let mut options = Options {
            keyval: self.keyval == Keyval::Inline,
            packing: self.packing(task_count),
            data_order: self.data_order(),
            style,
            ..Options::default()
        };
        if fs_block_len != -1 {
            // Zero is refused by every rank's checks.
            options.fs_block_len = Some(u32::try_from(fs_block_len).unwrap_or(0));
        }
        match self.buffer_len {
            Some(-1) => options.buffer_len = usize::try_from(fs_block_len).unwrap_or(1 << 17),
            Some(len) => {
                let len = len.clamp(0, BUFFER_LEN_MAX);
                options.buffer_len = usize::try_from(len).unwrap_or(options.buffer_len);
            }
            // Programs that choose it expect every call to reach the operating system.
            None if self.posix && !self.buffered => options.buffer_len = 0,
            None => {}
        }
        Ok(options)
    }

    /// Byte order that the application says its data has.
    pub(crate) fn data_order(&self) -> Order {
        self.data_order.unwrap_or(Order::NATIVE)
    }

    fn packing(&self, task_count: u32) -> Packing {
        let wished = u32::try_from(self.group_len).ok().filter(|len| *len > 0);
        let counted = self.group_count.and_then(|count| u32::try_from(count).ok());
        let size = wished.or_else(|| counted.map(|count| task_count.div_ceil(count).max(1)));
        match (self.modular, self.merge) {
            (true, _) => Packing::Modular { size: size.unwrap_or(0) },
            _ if !self.collective => Packing::Aligned,
            (_, true) => Packing::Merge { size },
            _ => Packing::Collective { size },
        }
    }
}

fn keyval(value: &str) -> Keyval {
    match value {
        "" | "default" | "inline" => Keyval::Inline,
        "none" => Keyval::None,
        "meta" | "hash" => Keyval::Unsupported,
        _ => Keyval::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Mode {
        Mode::parse(text, &Config::default())
    }

    fn packing(mode: &Mode) -> Packing {
        mode.options(Style::Parallel, 512, 8).unwrap().packing
    }

    #[test]
    fn unknown_keys_are_ignored_and_the_last_of_a_kind_wins() {
        let mode = parse("bw,buffered,what=ever,posix,ansi,endianness=big");
        assert_eq!((mode.write, mode.posix), (Some(true), false));
        assert_eq!(mode.options(Style::Serial, -1, 1).unwrap().data_order, Order::Big);
        assert_eq!(parse("posix").write, None);
    }

    #[test]
    fn posix_mode_buffers_nothing_unless_asked() {
        let buffer_len = |mode: &Mode| mode.options(Style::Serial, -1, 1).unwrap().buffer_len;
        let default = buffer_len(&parse("bw"));
        assert!(default > 0);
        assert_eq!(buffer_len(&parse("bw,posix")), 0);
        assert_eq!(buffer_len(&parse("bw,posix,buffered")), default);
        let asked = Config { buffer_len: Some(77), ..Config::default() };
        assert_eq!(buffer_len(&Mode::parse("bw,posix", &asked)), 77);
        assert_eq!(parse("br").write, Some(false));
    }

    /// E15: merging is collective writing, whether or not the word is said as well.
    #[test]
    fn cmerge_alone_merges() {
        assert_eq!(packing(&parse("bw,cmerge,collsize=-1")), Packing::Merge { size: None });
        assert_eq!(packing(&parse("bw,cmerge,collsize=4")), Packing::Merge { size: Some(4) });
        assert_eq!(packing(&parse("bw,collsize=4")), Packing::Aligned);
    }

    /// E16: what `keyval` is set to is looked at.
    #[test]
    fn keyval_means_what_it_is_set_to() {
        assert_eq!(parse("bw,keyval").keyval, Keyval::Inline);
        assert_eq!(parse("bw,keyval=inline").keyval, Keyval::Inline);
        assert_eq!(parse("br,keyval=unknown").keyval, Keyval::Unknown);
        assert_eq!(parse("bw,keyval=none").keyval, Keyval::None);
        for refused in ["bw,keyval=hash", "bw,keyval=meta"] {
            assert!(parse(refused).options(Style::Serial, -1, 1).is_err(), "{refused}");
        }
    }

    #[test]
    fn the_environment_decides_about_groups_and_the_mode_about_records() {
        let config =
            Config { group_len: Some(2), keyval: Some("inline".into()), ..Config::default() };
        let mode = Mode::parse("bw,collsize=5,keyval=none", &config);
        assert_eq!(packing(&mode), Packing::Collective { size: Some(2) });
        assert_eq!(mode.keyval, Keyval::None);
        assert_eq!(Mode::parse("bw", &config).keyval, Keyval::Inline);
        let off = Config { group_len: Some(0), ..Config::default() };
        assert_eq!(packing(&Mode::parse("bw,collective", &off)), Packing::Aligned);
        let counted = Config { group_count: Some(2), ..Config::default() };
        assert_eq!(packing(&Mode::parse("bw", &counted)), Packing::Collective { size: Some(4) });
    }
}
