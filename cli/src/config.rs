//! Configuration: where settings come from, and the order of these layers.
//!
//! A later layer replaces the value of an earlier one, `rules` as a whole: defaults,
//! `/etc/kakehi/config.toml`, `$XDG_CONFIG_HOME/kakehi/config.toml`, `./kakehi.toml`,
//! `$KAKEHI_CONFIG`, the variables `KAKEHI_*`, flags. A name nobody knows is an error everywhere:
//! a misspelt setting must not be ignored in silence.

mod files;
mod flags;

use std::{collections::BTreeMap, fmt, path::PathBuf, str::FromStr, time::Duration};

use client::Setting;
use daemon::Memory;

pub(crate) use self::flags::{Flags, Whom};
pub(crate) use crate::environment::Environment;
use crate::{
    coalesce::{self, Coalesced},
    failure::Failure,
    remote::{Maps, Servers},
    settings::{
        Cores, Engine, Idle, Level, Policy, Rule, Rules, SETTINGS, SettingPath, Spread, Switch,
        View,
    },
    similar::{did_you_mean, similar},
    size::Size,
    span::Span,
    voice::{Volume, voice},
};

/// Names the configuration file above all others; which is not a setting.
const CONFIG_VARIABLE: &str = "KAKEHI_CONFIG";
/// Names the file of records (`--report`) to the processes of a run.
pub(crate) const WATCH: &str = "KAKEHI_WATCH";
/// Has the processes of a run record times of requests there (`--trace`).
pub(crate) const TRACE: &str = "KAKEHI_TRACE";
/// Variables that are not settings.
const NO_SETTINGS: [&str; 3] = [CONFIG_VARIABLE, WATCH, TRACE];
const PREFIX: &str = "KAKEHI_";
/// Variables by which module systems name the folder and release of what they load: not settings of
/// ours.
const OF_MODULES: [&str; 6] = ["ROOT", "HOME", "DIR", "PREFIX", "BASE", "VERSION"];
/// Settings that name code to load, or whom to trust. A `kakehi.toml` may come with a folder that
/// was unpacked or cloned, so it cannot have them.
const NOT_LOCAL: [&str; 3] = ["preload", "socket", "key"];
const REMOTE_TIMEOUT: Span = Span(Duration::from_secs(30));
/// The share of the memory this job may use that staging may use.
const MEMORY_SHARE: u64 = 4;
/// The default is a multiple of it, so that it reads well.
const MEMORY_GRAIN: u64 = 1 << 20;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File(PathBuf),
    Variable(String),
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// One setting as it stands, for people and for the environment of another process.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) meaning: &'static str,
    /// Missing when nobody set it and it has no default.
    pub(crate) value: Option<String>,
    pub(crate) origin: Origin,
}

impl Row {
    pub(crate) fn variable(&self) -> String {
        variable(self.name)
    }
}

/// Every setting, checked.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) socket: Option<PathBuf>,
    pub(crate) job: Option<String>,
    pub(crate) idle: Idle,
    pub(crate) quiet: Span,
    pub(crate) engine: Engine,
    pub(crate) cores: Option<Cores>,
    pub(crate) staging: Size,
    pub(crate) memory: Size,
    pub(crate) disable: bool,
    pub(crate) preload: Option<PathBuf>,
    pub(crate) remote: Option<Servers>,
    pub(crate) spread: Spread,
    pub(crate) key: Option<PathBuf>,
    pub(crate) maps: Maps,
    pub(crate) coalesced: Coalesced,
    pub(crate) view: View,
    pub(crate) remote_timeout: Span,
    pub(crate) log: Level,
    /// The same settings in the order of [`SETTINGS`].
    pub(crate) rows: Vec<Row>,
}

impl Config {
    /// Reads all layers.
    ///
    /// # Errors
    ///
    /// `Usage` when a layer cannot be read, or has an unknown name or a bad value.
    pub(crate) fn load(environment: &Environment, flags: &Flags) -> Result<Self, Failure> {
        let mut layers = Layers::default();
        for file in files::read(environment)? {
            layers.add_file(&file)?;
        }
        Self::finish(layers, environment, flags)
    }

    /// All folders that are a server's, also those that are only coalesced.
    pub(crate) fn mapped(&self) -> Maps {
        self.maps.clone().and(self.coalesced.maps())
    }

    /// Returns the servers' name.
    pub(crate) fn servers(&self) -> Option<String> {
        let own = (!self.coalesced.0.is_empty()).then(|| coalesce::OWN.to_owned());
        self.remote.as_ref().map(ToString::to_string).or(own)
    }

    /// The settings that a daemon has from its start to its end, and their values.
    pub(crate) fn of_daemon(&self) -> impl Iterator<Item = (&Row, String)> {
        const NAMES: [&str; 6] = ["idle", "quiet", "engine", "cores", "staging", "memory"];
        let rows = self.rows.iter().filter(|row| NAMES.contains(&row.name));
        rows.filter_map(|row| Some((row, row.value.clone()?)))
    }

    /// Level of the log: that of the setting, else that of the flags of this command.
    pub(crate) fn level(&self) -> Level {
        let is_set = |row: &Row| row.name == "log" && row.origin != Origin::Default;
        match voice().volume {
            _ if self.rows.iter().any(is_set) => self.log,
            Volume::Quiet => Level::Error,
            Volume::Normal => self.log,
            Volume::Verbose => Level::Info,
        }
    }

    /// Cores of the daemon's executors; none: they run anywhere.
    pub(crate) fn daemon_cores(&self) -> Vec<usize> {
        let cores = self.cores.iter().flat_map(|Cores(cores)| cores);
        cores.filter_map(|core| usize::try_from(*core).ok()).collect()
    }

    fn finish(
        mut layers: Layers,
        environment: &Environment,
        flags: &Flags,
    ) -> Result<Self, Failure> {
        layers.add_variables(environment)?;
        for (name, flag, text) in flags.given() {
            layers.add(name, text, Origin::Flag(flag));
        }
        Self::check(layers, environment)
    }

    fn check(layers: Layers, environment: &Environment) -> Result<Self, Failure> {
        let memory = || Size((Memory::find().usable() / MEMORY_SHARE) & !(MEMORY_GRAIN - 1));
        let mut rows = Rows { layers, rows: Vec::new() };
        // Only clients use these, and find them in their environment; here they are checked.
        let (maps, coalesced) = (rows.take_maps(environment)?, rows.take_coalesced(environment)?);
        rows.take_rules(environment, &maps.clone().and(coalesced.maps()))?;
        rows.take("sync", Switch(false))?;
        rows.take("fence_timeout", Span(client::FENCE_TIMEOUT))?;
        rows.take("direct", Size(client::LARGE_LEN))?;
        rows.take("stage_after", Span(client::STAGE_AFTER))?;
        Ok(Self {
            socket: rows.take_path("socket", environment)?,
            job: rows.take_optional("job", Ok)?,
            idle: rows.take("idle", Idle::PollIdle)?,
            quiet: rows.take("quiet", Span(daemon::QUIET))?,
            engine: rows.take("engine", Engine::Auto)?,
            cores: rows.take_optional("cores", Ok)?,
            staging: rows.take_staging("staging", || Size(daemon::STAGING))?,
            memory: rows.take_staging("memory", memory)?,
            disable: rows.take("disable", Switch(false))?.0,
            preload: rows.take_path("preload", environment)?,
            remote: rows.take_servers(environment)?,
            spread: rows.take("spread", Spread::File)?,
            key: rows.take_path("key", environment)?,
            maps,
            coalesced,
            view: rows.take("view", View::Auto)?,
            remote_timeout: rows.take("remote_timeout", REMOTE_TIMEOUT)?,
            log: rows.take("log", Level::Warn)?,
            rows: rows.in_order(),
        })
    }
}

/// Text of every setting that some layer has, the last layer's.
#[derive(Debug, Default)]
struct Layers(BTreeMap<&'static str, (String, Origin)>);

impl Layers {
    fn add(&mut self, name: &'static str, text: String, origin: Origin) {
        self.0.insert(name, (text, origin));
    }

    fn add_file(&mut self, file: &files::Read) -> Result<(), Failure> {
        let (path, text) = (&*file.path, &*file.text);
        let table: toml::Table = text.parse().map_err(|why: toml::de::Error| {
            let line = why.span().map_or(1, |span| {
                text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1
            });
            Failure::usage(
                format_args!("{}:{line}", path.display()),
                why.message(),
                "write it as TOML: idle = \"park\"",
            )
        })?;
        for (key, value) in &table {
            let name = known(key).ok_or_else(|| {
                let meant = did_you_mean(key, all());
                let why = format!("unknown setting '{key}'{meant}");
                Failure::usage(path.display(), why, names())
            })?;
            if file.is_local && NOT_LOCAL.contains(&name) {
                return Err(Failure::usage(
                    path.display(),
                    format_args!("'{key}' is never taken from the current folder"),
                    format_args!("set {}, or name the file in {CONFIG_VARIABLE}", variable(name)),
                ));
            }
            let text = files::text_of(value).ok_or_else(|| {
                Failure::usage(
                    path.display(),
                    format_args!("'{key}' is neither a text, a number, true, false, nor a list"),
                    format_args!("write it as TOML: {key} = \"…\""),
                )
            })?;
            self.add(name, text, Origin::File(path.into()));
        }
        Ok(())
    }

    fn add_variables(&mut self, environment: &Environment) -> Result<(), Failure> {
        for variable in environment.variables.keys() {
            let Some(variable) = variable.to_str().filter(|name| name.starts_with(PREFIX)) else {
                continue;
            };
            let Some(value) =
                environment.get(variable).filter(|_| !NO_SETTINGS.contains(&variable))
            else {
                continue;
            };
            let key = variable.strip_prefix(PREFIX).unwrap_or_default();
            if OF_MODULES.contains(&key) {
                continue;
            }
            let name = known(&key.to_lowercase());
            let name = name.filter(|name| self::variable(name) == variable).ok_or_else(|| {
                let meant = similar(&key.to_lowercase(), all()).map(self::variable);
                let meant = meant.map(|name| format!(", did you mean {name}?"));
                let why = format!("no setting has this variable{}", meant.unwrap_or_default());
                Failure::usage(variable, why, format_args!("unset it: {}", names()))
            })?;
            let text = value.to_str().ok_or_else(|| {
                Failure::usage(variable, "its value is not UTF-8", "correct it or unset it")
            })?;
            self.add(name, text.to_owned(), Origin::Variable(variable.to_owned()));
        }
        Ok(())
    }
}

/// Takes settings out of the layers and keeps a row of each.
struct Rows {
    layers: Layers,
    rows: Vec<Row>,
}

impl Rows {
    fn take<T>(&mut self, name: &'static str, default: T) -> Result<T, Failure>
    where
        T: FromStr<Err = String> + fmt::Display,
    {
        let (value, origin) = self.parse(name)?.unwrap_or((default, Origin::Default));
        self.keep(name, Some(value.to_string()), origin);
        Ok(value)
    }

    /// Memory that has to do for one session at least.
    fn take_staging(
        &mut self,
        name: &'static str,
        default: impl FnOnce() -> Size,
    ) -> Result<Size, Failure> {
        let origin = self.layers.0.get(name).map(|(_, origin)| origin.clone());
        // A daemon that is told need not look how much memory there is.
        let default = if origin.is_none() { default() } else { Size(0) };
        let size = self.take(name, default)?;
        match origin {
            Some(origin) if size.0 < daemon::STAGING_MIN => {
                let why = format!("{size} is less than {}", Size(daemon::STAGING_MIN));
                Err(bad_value(name, &origin, why))
            }
            _ => Ok(size),
        }
    }

    /// `finish` makes the parsed value final, or says why it cannot be used.
    fn take_optional<T>(
        &mut self,
        name: &'static str,
        finish: impl FnOnce(T) -> Result<T, &'static str>,
    ) -> Result<Option<T>, Failure>
    where
        T: FromStr<Err: fmt::Display> + fmt::Display,
    {
        let Some((value, origin)) = self.parse(name)? else {
            self.keep(name, None, Origin::Default);
            return Ok(None);
        };
        let value = finish(value).map_err(|why| bad_value(name, &origin, why))?;
        self.keep(name, Some(value.to_string()), origin);
        Ok(Some(value))
    }

    fn take_path(
        &mut self,
        name: &'static str,
        environment: &Environment,
    ) -> Result<Option<PathBuf>, Failure> {
        let absolute = |SettingPath(path): SettingPath| {
            environment.start(path.is_relative()).map(|folder| SettingPath(folder.join(path)))
        };
        Ok(self.take_optional(name, absolute)?.map(|SettingPath(path)| path))
    }

    fn take_servers(&mut self, environment: &Environment) -> Result<Option<Servers>, Failure> {
        let absolute = |servers: Servers| {
            let folder = environment.start(servers.is_relative())?;
            servers.starting_at(folder).checked()
        };
        self.take_optional("remote", absolute)
    }

    fn take_maps(&mut self, environment: &Environment) -> Result<Maps, Failure> {
        let absolute = |maps: Maps| {
            let is_relative = maps.0.iter().any(|(local, _)| local.is_relative());
            let folder = environment.start(is_relative)?;
            maps.starting_at(folder, environment.get("PWD")).checked()
        };
        Ok(self.take_optional("map", absolute)?.unwrap_or_default())
    }

    fn take_coalesced(&mut self, environment: &Environment) -> Result<Coalesced, Failure> {
        let absolute = |coalesced: Coalesced| {
            let folder = environment.start(coalesced.is_relative())?;
            coalesced.starting_at(folder, environment.get("PWD")).checked()
        };
        Ok(self.take_optional("coalesce", absolute)?.unwrap_or_default())
    }

    /// The rules, those for mapped folders first.
    fn take_rules(&mut self, environment: &Environment, maps: &Maps) -> Result<(), Failure> {
        if !maps.0.is_empty() && !self.layers.0.contains_key("rules") {
            let maps = |row: &&Row| ["map", "coalesce"].contains(&row.name) && row.value.is_some();
            let origin = self.rows.iter().find(maps).map(|row| row.origin.clone());
            self.layers.add("rules", String::new(), origin.unwrap_or(Origin::Default));
        }
        let is_remote = |rule: &Rule| rule.policy == Policy::Remote;
        let absolute = |rules: Rules| {
            if maps.0.is_empty() && rules.0.iter().any(is_remote) {
                return Err(NO_MAP);
            }
            let is_relative = rules.0.iter().any(|rule| !rule.glob.starts_with('/'));
            let rules = maps.rules(rules.starting_at(environment.start(is_relative)?));
            let taken = client::Config::new().set(Setting::Rules, rules.to_string().as_bytes());
            taken.map(|()| rules).map_err(|_| TOO_MANY)
        };
        self.take_optional("rules", absolute).map(drop)
    }

    fn parse<T>(&mut self, name: &'static str) -> Result<Option<(T, Origin)>, Failure>
    where
        T: FromStr<Err: fmt::Display>,
    {
        let Some((text, origin)) = self.layers.0.remove(name) else {
            return Ok(None);
        };
        match text.parse() {
            Ok(value) => Ok(Some((value, origin))),
            Err(why) => Err(bad_value(name, &origin, why)),
        }
    }

    fn keep(&mut self, name: &'static str, value: Option<String>, origin: Origin) {
        let meaning =
            SETTINGS.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text);
        self.rows.push(Row { name, meaning, value, origin });
    }

    fn in_order(mut self) -> Vec<Row> {
        self.rows.sort_by_key(|row| SETTINGS.iter().position(|(name, _)| *name == row.name));
        self.rows
    }
}

const NO_MAP: &str = "the policy 'remote' is for the folders that --map or --coalesce names";
const TOO_MANY: &str = "programs take at most 4096 bytes of rules, with two for each map";

fn bad_value(name: &str, origin: &Origin, why: impl fmt::Display) -> Failure {
    let advice = "correct it or leave it out";
    Failure::usage(format_args!("{name} ({origin})"), why, advice)
}

fn known(name: &str) -> Option<&'static str> {
    SETTINGS.iter().map(|(known, _)| *known).find(|known| *known == name)
}

fn variable(name: &str) -> String {
    format!("{PREFIX}{}", name.to_uppercase())
}

fn all() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|(name, _)| *name)
}

fn names() -> String {
    format!("the settings are {}", all().collect::<Vec<_>>().join(", "))
}
