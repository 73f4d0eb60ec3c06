//! Remote folders: which servers have them, and what this node serves to others.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fmt, fs, io, iter,
    path::{Component, Path, PathBuf},
    str::FromStr,
};

use serde_json::Value;

use crate::{
    failure::{Code, Failure},
    settings::{Policy, Rule, Rules, literal},
};

/// The longest path of a socket.
pub(crate) const SOCKET_PATH_LEN_MAX: usize = 107;
/// Characters that mean something in a list of maps or in a rule.
const RESERVED: [char; 4] = ['*', '?', ';', '='];

/// A server's address, as `tcp://HOST:PORT`, `ucx://HOST:PORT`, or `unix://PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url(pub(crate) daemon::Address);

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |_| format!("'{text}' is not tcp://HOST:PORT, ucx://HOST:PORT, or unix://PATH");
        text.parse().map(Self).map_err(wrong)
    }
}

/// Where servers are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Servers {
    /// One server's address.
    At(Url),
    /// The folder in which several leave their addresses.
    Published(PathBuf),
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(url) => url.fmt(f),
            Self::Published(folder) => folder.display().fmt(f),
        }
    }
}

impl FromStr for Servers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("an empty text is neither an address nor a folder".to_owned()),
            _ if text.contains("://") => text.parse().map(Self::At),
            _ => Ok(Self::Published(text.into())),
        }
    }
}

impl Servers {
    pub(crate) fn is_relative(&self) -> bool {
        match self {
            Self::Published(path) => path.is_relative(),
            Self::At(Url(address)) => address.socket().is_some_and(Path::is_relative),
        }
    }

    /// The same, a folder or a socket starting at `folder`.
    pub(crate) fn starting_at(self, folder: &Path) -> Self {
        match self {
            Self::Published(path) => Self::Published(folder.join(path)),
            Self::At(Url(address)) => Self::At(Url(address.starting_at(folder))),
        }
    }

    /// The same, if what it names, by now absolute, can be a socket's path.
    pub(crate) fn checked(self) -> Result<Self, &'static str> {
        let len = match &self {
            Self::At(Url(address)) => address.socket().map_or(0, |path| path.as_os_str().len()),
            Self::Published(_) => 0,
        };
        if len > SOCKET_PATH_LEN_MAX {
            Err("a socket's path has at most 107 bytes")
        } else {
            Ok(self)
        }
    }

    /// The addresses, in an order that everybody finds them in.
    pub(crate) fn addresses(&self) -> Result<Vec<daemon::Address>, Failure> {
        let folder = match self {
            Self::At(Url(address)) => return Ok(vec![address.clone()]),
            Self::Published(folder) => folder,
        };
        let failed = |why: io::Error| {
            let advice = "name a folder of 'kakehi serve --address-file', or an address with its \
                          scheme, as tcp://HOST:PORT";
            Failure::new(Code::Ours, folder.display(), why, advice)
        };
        let mut texts = BTreeSet::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue; // Not whole yet.
            }
            match daemon::published(&entry.path()) {
                Ok(text) => drop(texts.insert(text.trim().to_owned())),
                // A server that has ended took it away.
                Err(why) if why.kind() == io::ErrorKind::NotFound => {}
                Err(why) => {
                    let advice = "remove from the folder what no server has left there";
                    return Err(Failure::new(Code::Ours, entry.path().display(), why, advice));
                }
            }
        }
        if texts.is_empty() {
            let advice = "start 'kakehi serve --address-file' with this folder first";
            let why = "no server has left its address here";
            return Err(Failure::new(Code::Ours, folder.display(), why, advice));
        }
        let address = |text: &String| match text.parse() {
            Ok(Url(address)) => Ok(address),
            Err(why) => {
                let advice = "remove from it what no server has left there";
                Err(Failure::new(Code::Ours, folder.display(), why, advice))
            }
        };
        texts.iter().map(address).collect()
    }
}

/// Local folders whose files are those of a server; written `LOCAL=REMOTE`, `;` between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Maps(pub(crate) Vec<(PathBuf, PathBuf)>);

impl fmt::Display for Maps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (local, remote)) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { ";" })?;
            write!(f, "{}={}", local.display(), remote.display())?;
        }
        Ok(())
    }
}

impl FromStr for Maps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let maps = pairs(text, "LOCAL=REMOTE, for example 'out=/run1'", "mapped")?;
        for (_, remote) in &maps {
            let told = remote.display();
            if !is_plain_text(remote) {
                return Err(format!("'{told}' has one of * ? ; = in a folder's name"));
            }
            if remote.components().any(|name| name == Component::ParentDir) {
                return Err(format!("'{told}' has a '..' on the server's side"));
            }
        }
        Ok(Self(maps))
    }
}

/// The pairs of a list; `form` is what each looks like, and `twice` what no folder may be twice.
pub(crate) fn pairs(
    text: &str,
    form: &str,
    twice: &str,
) -> Result<Vec<(PathBuf, PathBuf)>, String> {
    let mut pairs: Vec<(PathBuf, PathBuf)> = Vec::new();
    for part in text.split(Rules::SEPARATOR).filter(|part| !part.is_empty()) {
        let pair = part.split_once('=').filter(|(one, other)| !one.is_empty() && !other.is_empty());
        let (local, other) = pair.ok_or_else(|| format!("'{part}' is not {form}"))?;
        if pairs.iter().any(|(known, _)| known == Path::new(local)) {
            return Err(format!("'{local}' is {twice} twice"));
        }
        pairs.push((local.into(), other.into()));
    }
    Ok(pairs)
}

impl Maps {
    /// The maps with absolute folders, without `.` and `..`, so that those of a daemon and of a run
    /// can be compared. Remote folders start at the root. A local one is had as it starts at
    /// `folder`, as it starts at `pwd`, which may be a shell's name for that, and as links lead to
    /// it, since programs may use any of these names.
    pub(crate) fn starting_at(self, folder: &Path, pwd: Option<&OsStr>) -> Self {
        let mut maps: Vec<(PathBuf, PathBuf)> = Vec::new();
        for (local, remote) in self.0 {
            let name = plain(&folder.join(&local));
            let (real, remote) = (real(&name), plain(&Path::new("/").join(remote)));
            let shells = pwd.map(|pwd| plain(&Path::new(pwd).join(&local)));
            let shells = shells.filter(|shells| *shells != name && self::real(shells) == real);
            let others =
                [shells, Some(real)].into_iter().flatten().filter(|name| is_plain_text(name));
            for name in iter::once(name).chain(others) {
                if maps.iter().all(|(local, _)| *local != name) {
                    maps.push((name, remote.clone()));
                }
            }
        }
        Self(maps)
    }

    /// The same, if all local folders, by now absolute, can be a server's. Those of the kernel's
    /// own are never delegated, so what is above them would be only in part.
    pub(crate) fn checked(self) -> Result<Self, &'static str> {
        let is_own = |local: &Path| {
            let is_shared = local.starts_with("/dev/shm") && local != Path::new("/dev/shm");
            let owned = ["/dev", "/proc", "/sys"].map(Path::new);
            !is_shared && owned.iter().any(|own| local.starts_with(own) || own.starts_with(local))
        };
        if self.0.iter().any(|(local, _)| is_own(local)) {
            return Err("'/', /dev, /proc, and /sys stay this node's; map folders elsewhere");
        }
        if !self.0.iter().all(|(local, _)| is_plain_text(local)) {
            return Err("the whole path of a mapped folder may have none of * ? ; =");
        }
        Ok(self)
    }

    /// These maps and others.
    pub(crate) fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Puts the rules for these folders before the others.
    pub(crate) fn rules(&self, others: Rules) -> Rules {
        let mut rules = Vec::new();
        for (local, _) in &self.0 {
            let glob = literal(local);
            for glob in [format!("{glob}/**"), glob].into_iter().rev() {
                rules.push(Rule { glob, policy: Policy::Remote });
            }
        }
        // A run within a run has them from the outer one.
        rules.extend(others.0.into_iter().filter(|rule| rule.policy != Policy::Remote));
        Rules(rules)
    }

    /// Why a daemon that says `status` cannot be this run's, if it cannot: it would take what is
    /// mapped here for files of this node.
    pub(crate) fn missing_in(&self, servers: Option<String>, status: &Value) -> Option<String> {
        let remote = status.get("remote");
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let theirs = remote.and_then(|remote| remote.get("servers")).and_then(text);
        let is_there = |(local, there): &(PathBuf, PathBuf)| {
            let found =
                remote.and_then(|remote| remote.get("maps")?.get(&*local.to_string_lossy()));
            found.and_then(text).is_some_and(|found| Path::new(&found) == there)
        };
        let is_ours = theirs == servers;
        if is_ours && self.0.iter().all(is_there) {
            return None;
        }
        let Some(theirs) = theirs else { return Some("it has no remote folders".to_owned()) };
        let maps = remote.and_then(|remote| remote.get("maps")?.as_object());
        let maps = maps
            .into_iter()
            .flatten()
            .filter_map(|(local, there)| Some(format!("{local}={}", there.as_str()?)));
        Some(format!("it has {} of {theirs}", maps.collect::<Vec<_>>().join(", ")))
    }
}

/// True if a path can be part of a list of maps and of a rule.
fn is_plain_text(path: &Path) -> bool {
    path.to_str().is_some_and(|path| !path.contains(RESERVED))
}

/// Where links lead; of what is not there yet, as far as it is.
pub(crate) fn real(path: &Path) -> PathBuf {
    match (fs::canonicalize(path), path.parent(), path.file_name()) {
        (Ok(real), ..) => real,
        (Err(_), Some(parent), Some(name)) => real(parent).join(name),
        _ => path.to_owned(),
    }
}

/// Without `.` and `..`, by name alone: as the client library sees paths.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_print_as_they_parse() {
        for text in ["out=/run1", "/a/b=c;d=e"] {
            assert_eq!(text.parse::<Maps>().expect("maps").to_string(), text);
        }
        for text in ["out", "=a", "a=", "a=b*", "a=b=c", "a=/b/../..", "a=b;c=d;a/=b"] {
            assert!(text.parse::<Maps>().is_err(), "{text}");
        }
    }

    #[test]
    fn servers_are_an_address_or_those_that_a_folder_names() {
        let one: Servers = "tcp://io1:7".parse().expect("an address");
        assert_eq!(one.addresses().expect("itself").len(), 1);
        assert!("ftp://io1".parse::<Servers>().is_err());
        assert!("".parse::<Servers>().is_err());

        let folder = tempfile::tempdir().expect("folder");
        let servers = Servers::Published(folder.path().to_owned());
        assert!(servers.addresses().is_err(), "no server");
        for (name, text) in [("b", "tcp://io1:7"), ("a", "tcp://io2:7"), (".c", "half")] {
            fs::write(folder.path().join(name), format!("{text}\n")).expect("written");
        }
        let addresses = servers.addresses().expect("two");
        let texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["tcp://io1:7", "tcp://io2:7"]);
        fs::write(folder.path().join("d"), "nonsense").expect("written");
        assert!(servers.addresses().is_err(), "no address");
    }

    #[test]
    fn folders_are_absolute_and_plain() {
        for remote in ["/run/1", "run/1", "//run/./1/"] {
            let maps: Maps = format!("../no-such/./out={remote}").parse().expect("maps");
            let maps = maps.starting_at(Path::new("/nowhere/here"), None);
            assert_eq!(maps.to_string(), "/nowhere/no-such/out=/run/1");
        }
    }

    #[test]
    fn local_folders_are_refused_where_a_list_of_maps_could_not_name_them() {
        let maps: Maps = "out=/run".parse().expect("maps");
        for folder in ["/T=300K", "/a;b", "/a*", "/a?b"] {
            let maps = maps.clone().starting_at(Path::new(folder), None);
            assert!(maps.checked().is_err(), "{folder}");
        }
        assert!(maps.starting_at(Path::new("/a b\n"), None).checked().is_ok());
    }

    #[test]
    fn a_local_folder_has_the_names_that_a_shell_and_links_give_it_and_no_others() {
        let base = tempfile::tempdir().expect("folder");
        let base = fs::canonicalize(base.path()).expect("there");
        fs::create_dir_all(base.join("real/deep")).expect("folders");
        std::os::unix::fs::symlink(base.join("real/deep"), base.join("link")).expect("link");
        let (folder, pwd) = (base.join("real/deep"), base.join("link"));
        let found = |map: &str, pwd: &Path| {
            let maps: Maps = format!("{map}=/run").parse().expect("maps");
            let Maps(maps) = maps.starting_at(&folder, Some(pwd.as_os_str()));
            maps.into_iter().map(|(local, _)| local).collect::<Vec<_>>()
        };
        assert_eq!(found("a/b", &pwd), [folder.join("a/b"), pwd.join("a/b")]);
        let linked = pwd.join("a");
        assert_eq!(found(&linked.to_string_lossy(), &pwd), [linked, folder.join("a")]);
        // A shell's own parent of a link is another folder.
        assert_eq!(found("../a", &pwd), [base.join("real/a")]);
        assert_eq!(found("a", &base), [folder.join("a")]);
    }

    #[test]
    fn folders_of_the_kernels_own_are_not_mapped_nor_what_is_above_them() {
        for (local, is_possible) in [
            ("/", false),
            ("/dev", false),
            ("/dev/shm", false),
            ("/dev/shm/job", true),
            ("/proc/self", false),
            ("/sys", false),
            ("/system", true),
            ("/a/..", false),
        ] {
            let maps: Maps = format!("{local}=/run").parse().expect("maps");
            let maps = maps.starting_at(Path::new("/nowhere"), None);
            assert_eq!(maps.checked().is_ok(), is_possible, "{local}");
        }
    }

    #[test]
    fn mapped_folders_come_before_every_rule_and_once() {
        let maps: Maps = "/out=/run".parse().expect("maps");
        let others: Rules = "/**=delegate".parse().expect("rules");
        let rules = maps.rules(others);
        assert_eq!(rules.to_string(), "/out=remote;/out/**=remote;/**=delegate");
        assert_eq!(maps.rules(rules.clone()), rules);
    }
}
