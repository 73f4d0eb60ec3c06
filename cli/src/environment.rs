//! The process's environment: its variables, and the folder it was started in.

use std::{
    collections::BTreeMap,
    env,
    ffi::{OsStr, OsString},
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// Has the value of `LD_PRELOAD` where a run has started itself anew without. No setting: it begins
/// otherwise than those.
pub(crate) const PRELOADED: &str = "_KAKEHI_PRELOADED";

/// Variables and the current folder.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    pub(crate) variables: BTreeMap<OsString, OsString>,
    /// Missing when the current folder has been removed.
    pub(crate) folder: Option<PathBuf>,
    /// True if the libraries of `LD_PRELOAD` are preloaded in the program only.
    pub(crate) is_without: bool,
}

impl Environment {
    pub(crate) fn read() -> Self {
        let mut variables: BTreeMap<_, _> = env::vars_os().collect();
        let preloaded = variables.remove(OsStr::new(PRELOADED));
        let is_without = preloaded.is_some();
        variables.extend(preloaded.map(|preloaded| ("LD_PRELOAD".into(), preloaded)));
        Self { variables, folder: env::current_dir().ok(), is_without }
    }

    #[cfg(test)]
    pub(crate) fn of(variables: &[(&str, &str)]) -> Self {
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        Self { variables: variables.collect(), ..Self::default() }
    }

    /// The same, with a variable set.
    pub(crate) fn with(&self, name: &str, value: String) -> Self {
        let mut variables = self.variables.clone();
        variables.insert(name.into(), value.into());
        Self { variables, folder: self.folder.clone(), is_without: self.is_without }
    }

    /// The value of a variable; an empty one counts as unset.
    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        let value = self.variables.get(OsStr::new(name))?;
        (!value.is_empty()).then_some(value)
    }

    /// Returns the variables set for UCX.
    pub(crate) fn ucx_variables(&self) -> Vec<(String, String)> {
        let all = self.variables.iter().filter_map(|(n, v)| n.to_str().zip(v.to_str()));
        all.filter(|(n, _)| n.starts_with("UCX_")).map(|(n, v)| (n.into(), v.into())).collect()
    }

    /// The folders of a list like `PATH`; none when it is unset.
    pub(crate) fn folders(&self, name: &str) -> Vec<PathBuf> {
        self.get(name).map(|list| env::split_paths(list).collect()).unwrap_or_default()
    }

    /// Where `name` is: as it is when it has a slash, else the first executable file in `PATH`.
    pub(crate) fn find_program(&self, name: &OsStr) -> Option<PathBuf> {
        if name.as_encoded_bytes().contains(&b'/') {
            return Some(PathBuf::from(name));
        }
        let executable = |path: &PathBuf| {
            fs::metadata(path).is_ok_and(|file| file.is_file() && file.mode() & 0o111 != 0)
        };
        self.folders("PATH").into_iter().map(|folder| folder.join(name)).find(executable)
    }

    /// Where a setting starts that may be relative: at the current folder, if it is.
    pub(super) fn start(&self, is_relative: bool) -> Result<&Path, &'static str> {
        if !is_relative {
            return Ok(Path::new("/"));
        }
        let folder = self.folder.as_deref().ok_or(NO_FOLDER)?;
        // A setting is text on its way to the daemon and to programs.
        folder.to_str().map(|_| folder).ok_or(NO_TEXT)
    }
}

const NO_FOLDER: &str = "the current folder has been removed, and this is relative to it";
const NO_TEXT: &str = "the current folder's name is not UTF-8, and this is relative to it";
