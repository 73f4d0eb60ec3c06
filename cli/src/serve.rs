//! `kakehi serve`: a daemon in the foreground.

use std::path::PathBuf;

use crate::{
    config::{Config, Environment, Flags},
    failure::{Code, Failure},
    job::Job,
};

/// Serves the programs of this job, or those of other nodes, until it is terminated.
///
/// Exit status: 0 when everything accepted has been written; 1 when something could not be.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags,
    /// Serves programs of other nodes at URL.
    #[arg(long, value_name = "URL", requires = "root", requires = "key")]
    listen: Option<String>,
    /// The folder other nodes may use.
    #[arg(long, value_name = "DIR", requires = "listen")]
    root: Option<PathBuf>,
    /// File with the key a program of another node has to know.
    #[arg(long, value_name = "FILE", requires = "listen")]
    key: Option<PathBuf>,
    /// Writes the address into a file of this folder.
    #[arg(long, value_name = "DIR", requires = "listen")]
    address_file: Option<PathBuf>,
}

pub(crate) fn serve(args: &Args, environment: &Environment) -> Result<(), Failure> {
    let config = Config::load(environment, &args.flags)?;
    let _job = Job::find(&config, environment)?;
    Err(Failure::new(Code::Failure, "serve", "this build has no daemon", "install a newer one"))
}
