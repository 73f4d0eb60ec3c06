//! Folders whose files are kept in a multifile: `--coalesce LOCAL=FILE`.
//!
//! A run is then the client of a server that its own daemon is: the folder is a server's, as a
//! mapped one, and that server keeps its files in FILE. A server of other nodes keeps those of a
//! folder below its root in a multifile for all of them.

use std::{
    ffi::OsStr,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use daemon::Coalesce;

use crate::{
    failure::Failure,
    remote::{Maps, pairs, real},
};

/// Name of the server of a run's own node.
pub(crate) const OWN: &str = "multifiles";
/// Stands for the node's name in that of a multifile.
const HOST: &str = "%h";

/// Folders and their multifiles; written `LOCAL=FILE`, `;` between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Coalesced(pub(crate) Vec<(PathBuf, PathBuf)>);

impl fmt::Display for Coalesced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Maps(self.0.clone()).fmt(f)
    }
}

impl FromStr for Coalesced {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        pairs(text, "LOCAL=FILE, for example 'ckpt=ckpt.sion'", "coalesced").map(Self)
    }
}

impl Coalesced {
    pub(crate) fn is_relative(&self) -> bool {
        self.0.iter().any(|(local, file)| local.is_relative() || file.is_relative())
    }

    /// The same with absolute paths, a folder by all its names, as with maps; `%h` in a file's name
    /// is this node's.
    pub(crate) fn starting_at(self, folder: &Path, pwd: Option<&OsStr>) -> Self {
        let uname = rustix::system::uname();
        let host = uname.nodename().to_string_lossy();
        let host = host.split('.').next().unwrap_or_default();
        let files = self.0.into_iter().map(|(local, file)| {
            let file = file.to_string_lossy().replace(HOST, host);
            (local, folder.join(file))
        });
        Self(Maps(files.collect()).starting_at(folder, pwd).0)
    }

    /// The same, if all folders can be in a multifile, and all files can be one.
    pub(crate) fn checked(self) -> Result<Self, &'static str> {
        let maps = Maps(self.0).checked()?;
        // Where links lead is asked once: the file system may be another node's.
        let ends: Vec<_> = maps.0.iter().map(|(local, file)| (real(local), real(file))).collect();
        for (local, file) in &ends {
            if file.starts_with(local) {
                return Err("a multifile cannot be in the folder that it holds");
            }
            if ends.iter().any(|(other, its)| its == file && other != local) {
                return Err("two folders cannot be in one multifile");
            }
        }
        Ok(Self(maps.0))
    }

    /// The folders as those of the server that holds them, each below its multifile's path.
    pub(crate) fn maps(&self) -> Maps {
        Maps(self.0.clone())
    }

    /// Where the server of the run's own node has a multifile's files: at the path of that, or, if
    /// their folder is in another coalesced one, at its place in there.
    pub(crate) fn folder_of(&self, multifile: &Path) -> PathBuf {
        let mut locals = self.0.iter().filter(|(_, file)| file == multifile);
        let nearest = locals.find_map(|(local, _)| {
            let rest = |(other, file): &'_ (PathBuf, PathBuf)| {
                let rest = local.strip_prefix(other).ok().filter(|_| file != multifile)?;
                Some((file.clone(), rest.to_owned()))
            };
            let all = self.0.iter().filter_map(rest);
            all.min_by_key(|(_, rest)| rest.components().count())
        });
        match nearest {
            // A folder is not in itself, so this comes to an end.
            Some((around, rest)) => self.folder_of(&around).join(rest),
            None => multifile.to_owned(),
        }
    }

    /// Returns the folders that a server of other nodes keeps in multifiles.
    ///
    /// # Errors
    ///
    /// `Usage`: a folder that is not below its root.
    pub(crate) fn below(&self, root: &Path) -> Result<Vec<Coalesce>, Failure> {
        let mut found: Vec<Coalesce> = Vec::new();
        for (local, multifile) in &self.0 {
            if found.iter().any(|one| one.multifile == *multifile) {
                continue; // Another name of the same folder.
            }
            let (root, local) = (real(root), real(local));
            let below = local.strip_prefix(&root).ok().filter(|rest| !rest.as_os_str().is_empty());
            let Some(below) = below else {
                let why = format!("it is not below the server's root, {}", root.display());
                let advice = "name a folder in the root, with --coalesce";
                return Err(Failure::usage(local.display(), why, advice));
            };
            let (folder, multifile) = (Path::new("/").join(below), multifile.clone());
            found.push(Coalesce { folder, multifile, is_read_only: false });
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, folder: &str) -> Result<Coalesced, &'static str> {
        let coalesced: Coalesced = text.parse().expect("pairs");
        coalesced.starting_at(Path::new(folder), None).checked()
    }

    #[test]
    fn pairs_print_as_they_parse() {
        for text in ["ckpt=ckpt.sion", "/a/b=../c;d=e"] {
            assert_eq!(text.parse::<Coalesced>().expect("pairs").to_string(), text);
        }
        for text in ["ckpt", "=a", "a=", "a=b;a=c"] {
            assert!(text.parse::<Coalesced>().is_err(), "{text}");
        }
    }

    #[test]
    fn files_start_where_folders_do_and_may_have_the_nodes_name() {
        let coalesced = at("a=../b.%h", "/no-such/here").expect("pairs");
        let text = coalesced.to_string();
        assert!(text.starts_with("/no-such/here/a=/no-such/b.") && !text.contains('%'), "{text}");
        assert_eq!(at(&text, "/elsewhere").expect("pairs"), coalesced);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for text in ["a=a/b.sion", "a=b;c=b", "/=x", "/proc/a=x", "a*=b"] {
            assert!(at(text, "/no-such").is_err(), "{text}");
        }
    }

    #[test]
    fn a_folder_in_another_is_there_also_at_the_server() {
        let coalesced = at("a=x;a/b/c=y;a/b/c/d=z;a2=w", "/no-such").expect("pairs");
        for (file, expected) in [("x", "x"), ("y", "x/b/c"), ("z", "x/b/c/d"), ("w", "w")] {
            let folder = coalesced.folder_of(&Path::new("/no-such").join(file));
            assert_eq!(folder, Path::new("/no-such").join(expected));
        }
    }

    #[test]
    fn a_server_coalesces_folders_below_its_root_once() {
        let coalesced = at("top/a=x;/no-such/./top/a=x", "/no-such").expect("pairs");
        let below = coalesced.below(Path::new("/no-such/top")).expect("below");
        let (folder, multifile) = (PathBuf::from("/a"), PathBuf::from("/no-such/x"));
        assert_eq!(below, [Coalesce { folder, multifile, is_read_only: false }]);
        for root in ["/no-such/top/a", "/no-such/other"] {
            coalesced.below(Path::new(root)).expect_err(root);
        }
    }
}
