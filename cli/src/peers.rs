//! The servers that a daemon is told of, from the configuration: those it is a client of, and the
//! one that it is itself for a run with coalesced folders.

use std::path::PathBuf;

use daemon::{Address, Coalesce, Mount, Remote, Serving, Spread};

use crate::{coalesce::OWN, config::Config, failure::Failure, job::Job};

/// Returns the daemon's configuration of its servers; `None` without one.
///
/// # Errors
///
/// `Usage` when only a part of it is given; `Ours` when there is no server in a folder.
pub(crate) fn server(config: &Config) -> Result<Option<Remote>, Failure> {
    let Some(servers) = &config.remote else {
        if config.maps.0.is_empty() {
            return Ok(None);
        }
        return Err(incomplete("--map needs --remote SERVERS"));
    };
    if config.maps.0.is_empty() {
        return Err(incomplete("--remote needs --map LOCAL=REMOTE"));
    }
    let mount = |(local, remote): &(PathBuf, PathBuf)| Mount {
        local: local.clone(),
        remote: remote.clone(),
    };
    let addresses = servers.addresses()?;
    Ok(Some(Remote {
        key: key(config, &addresses, "--remote needs --key FILE, but for unix://PATH")?,
        name: servers.to_string(),
        addresses,
        spread: config.spread.into(),
        mounts: config.maps.0.iter().map(mount).collect(),
        timeout: config.remote_timeout.0,
    }))
}

/// The file with the job key, which all addresses but those of Unix sockets need.
///
/// # Errors
///
/// `Usage`: there is none, as `missing` says.
pub(crate) fn key(
    config: &Config,
    addresses: &[Address],
    missing: &str,
) -> Result<Option<PathBuf>, Failure> {
    match &config.key {
        None if addresses.iter().any(Address::needs_key) => Err(incomplete(missing)),
        key => Ok(key.clone()),
    }
}

/// Settings that only make sense together.
fn incomplete(what: &str) -> Failure {
    Failure::usage("usage", what, "see 'kakehi run --help' and 'kakehi serve --help'")
}

/// Checks that the run may coalesce on its own node: with a server, the server does.
///
/// # Errors
///
/// `Usage`: there are both.
pub(crate) fn check_coalesced(config: &Config) -> Result<(), Failure> {
    if config.coalesced.0.is_empty() || config.remote.is_none() {
        return Ok(());
    }
    let why = "--coalesce and --remote do not go together";
    Err(Failure::usage("usage", why, "have the server coalesce: 'kakehi serve --coalesce'"))
}

/// Returns both parts of a daemon that coalesces files of its own node: a server, and its client.
pub(crate) fn own(config: &Config, job: &Job) -> Result<Option<(Remote, Serving)>, Failure> {
    if config.coalesced.0.is_empty() {
        return Ok(None);
    }
    check_coalesced(config)?;
    let root = job.create_own_server()?;
    let address: Address = format!("unix://{}", root.join("s").display())
        .parse()
        .map_err(|_| Failure::usage(root.display(), "it has no socket's path", "shorten it"))?;
    let mut coalesced: Vec<Coalesce> = Vec::new();
    for (_, multifile) in &config.coalesced.0 {
        let folder = config.coalesced.folder_of(multifile);
        let one = Coalesce { folder, multifile: multifile.clone(), is_read_only: false };
        if !coalesced.contains(&one) {
            coalesced.push(one);
        }
    }
    let mount = |(local, multifile): &(PathBuf, PathBuf)| Mount {
        local: local.clone(),
        remote: config.coalesced.folder_of(multifile),
    };
    let remote = Remote {
        name: OWN.to_owned(),
        addresses: vec![address.clone()],
        spread: Spread::File,
        key: None,
        mounts: config.coalesced.0.iter().map(mount).collect(),
        timeout: config.remote_timeout.0,
    };
    Ok(Some((remote, Serving { address, root, coalesced, key: None, address_folder: None })))
}
