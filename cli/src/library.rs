//! Finds `libkakehi_preload.so`, and puts it into the environment of a program.

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt, fs, io,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    config::{Config, Environment},
    environment::PRELOADED,
    failure::{Code, Failure},
    image,
    remote::real,
};

const NAME: &str = "libkakehi_preload.so";
/// The variable of the dynamic loader.
pub(crate) const LD_PRELOAD: &str = "LD_PRELOAD";

/// The preload library: the configured one, else the one installed or built with this program.
///
/// # Errors
///
/// `Failure` when it is not there, is no library, or the loader could not be told its path.
pub(crate) fn find(config: &Config) -> Result<PathBuf, Failure> {
    let candidates = match &config.preload {
        Some(path) => vec![path.clone()],
        None => candidates(&real(&own_program()?)),
    };
    let Some(path) = candidates.iter().find(|path| path.is_file()) else {
        let tried: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
        return Err(Failure::new(
            Code::Failure,
            "preload library",
            format_args!("not found at {}", tried.join(" or ")),
            "run 'make build' or 'make install', or set KAKEHI_PRELOAD to its path",
        ));
    };
    let path = path.canonicalize().unwrap_or_else(|_| path.clone());
    if path.as_os_str().as_bytes().iter().any(|byte| b" :\t\n".contains(byte)) {
        return Err(Failure::new(
            Code::Failure,
            path.display(),
            "the loader takes no path with a space or a colon",
            "install kakehi elsewhere, or set KAKEHI_PRELOAD to a link to it",
        ));
    }
    let opened = fs::File::open(&path);
    opened
        .map_err(|why| Failure::of_call(Code::Failure, path.display(), &why, "make it readable"))?;
    // The loader would only say so, and run the program without it.
    if !image::is_library(&path) {
        return Err(Failure::new(
            Code::Failure,
            path.display(),
            "not a library for this machine",
            "run 'make build' or 'make install' again, or set KAKEHI_PRELOAD to another",
        ));
    }
    Ok(path)
}

/// The file of this program, by which it finds its library and starts daemons.
pub(crate) fn own_program() -> Result<PathBuf, Failure> {
    env::current_exe().map_err(|why| {
        let advice = "mount /proc, or run the program without delegation: KAKEHI_DISABLE=1";
        let why: &dyn fmt::Display = match why.kind() {
            io::ErrorKind::NotFound => &"not there, and kakehi finds its library and daemon by it",
            _ => &why,
        };
        Failure::new(Code::Failure, "/proc/self/exe", why, advice)
    })
}

/// Beside an installed `bin/kakehi`, then in the target folder of a cargo build, where tests and
/// examples lie one level deeper than programs.
fn candidates(program: &Path) -> Vec<PathBuf> {
    let folders: Vec<&Path> = program.ancestors().skip(2).take(2).collect();
    let installed = folders.first().map(|prefix| prefix.join("lib").join(NAME));
    let built = folders.iter().map(|target| target.join("preload").join(NAME));
    installed.into_iter().chain(built).collect()
}

/// The value of `LD_PRELOAD` that adds `library`, behind what is there: tools such as Darshan or a
/// sanitizer have to come first.
pub(crate) fn preloading(environment: &Environment, library: &Path) -> OsString {
    let present = environment.get(LD_PRELOAD).unwrap_or(OsStr::new(""));
    let mut names = present.as_bytes().split(|byte| b" :".contains(byte));
    if names.any(|name| name == library.as_os_str().as_bytes()) {
        return present.to_owned();
    }
    let mut value = present.to_owned();
    if !value.is_empty() {
        value.push(":");
    }
    value.push(library);
    value
}

/// Starts this command anew without the preload library, where it came with it: in a shell that has
/// what `kakehi env` prints. A daemon that was a client would be its own, and wait for itself; and
/// what a command does about a mapped folder it does to this node's.
pub(crate) fn leave(environment: &Environment) {
    let Some(others) = without(environment) else { return };
    start_anew(|command| match others.is_empty() {
        true => command.env_remove(LD_PRELOAD),
        false => command.env(LD_PRELOAD, others),
    });
}

/// Starts this command, which runs a program, anew without anything preloaded: libraries such as
/// Darshan or a sanitizer are the program's, and a daemon is [forked](daemon::fork) without their
/// threads and files.
pub(crate) fn leave_all(environment: &Environment) {
    let present = environment.get(LD_PRELOAD).filter(|_| !environment.is_without);
    let Some(present) = present else { return };
    let others = without(environment).unwrap_or_else(|| present.to_owned());
    start_anew(|command| command.env_remove(LD_PRELOAD).env(PRELOADED, others));
}

/// Starts this command with other variables. Without a way to do so it goes on as it is, as well as
/// it can.
fn start_anew(change: impl FnOnce(&mut Command) -> &mut Command) {
    if let Ok(program) = env::current_exe() {
        let mut arguments = env::args_os();
        let mut command = Command::new(program);
        command.arg0(arguments.next().unwrap_or_default()).args(arguments);
        daemon::leave_closed(&mut command);
        drop(change(&mut command).exec());
    }
}

/// Gives a program what this command was given before it was [started anew](leave_all).
pub(crate) fn give_back(environment: &Environment, command: &mut Command) {
    command.env_remove(PRELOADED);
    if let Some(others) = environment.get(LD_PRELOAD) {
        command.env(LD_PRELOAD, others);
    }
}

/// Returns what is preloaded besides our library; `None` when that is not.
fn without(environment: &Environment) -> Option<OsString> {
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let configured = environment.get("KAKEHI_PRELOAD").map(|path| real(Path::new(path)));
    let is_ours = |name: &&[u8]| {
        let path = Path::new(OsStr::from_bytes(name));
        path.file_name() == Some(OsStr::new(NAME))
            || configured.as_ref().is_some_and(|configured| real(path) == *configured)
    };
    let present = environment.get(LD_PRELOAD)?.as_bytes();
    let names = || present.split(|byte| b" :".contains(byte)).filter(|name| !name.is_empty());
    let others: Vec<_> = names().filter(|name| !is_ours(name)).collect();
    (others.len() < names().count()).then(|| OsString::from_vec(others.join(&b':')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_else_is_preloaded_stays() {
        let of = |list: &str, configured: &str| {
            let variables = [(LD_PRELOAD, list), ("KAKEHI_PRELOAD", configured)];
            without(&Environment::of(&variables))
        };
        let ours = "/lib/libkakehi_preload.so";
        assert_eq!(of("", ""), None);
        assert_eq!(of("/a.so:/b.so", "/c.so"), None);
        assert_eq!(of(ours, ""), Some("".into()));
        assert_eq!(of(&format!("/a.so {ours}::/b.so"), ""), Some("/a.so:/b.so".into()));
        assert_eq!(of("/c.so:/a.so", "/c.so"), Some("/a.so".into()));
    }

    #[test]
    fn installed_library_comes_before_the_built_one() {
        let found = candidates(Path::new("/opt/kakehi/bin/kakehi"));
        assert_eq!(found.first(), Some(&PathBuf::from("/opt/kakehi/lib/libkakehi_preload.so")));
        let built = candidates(Path::new("/src/target/release/kakehi"));
        assert!(built.contains(&PathBuf::from("/src/target/preload/libkakehi_preload.so")));
        let deep = candidates(Path::new("/src/target/debug/deps/kakehi-0123"));
        assert!(deep.contains(&PathBuf::from("/src/target/preload/libkakehi_preload.so")));
    }
}
