//! `slowfs SOURCE MOUNT`: what SOURCE has, at MOUNT, as slow as it is told to be.
//!
//! Every request takes the latency of its kind, and one that moves bytes the time of these bytes.
//! As many requests are served at a time as there are servers; others wait, as those of a
//! distributed file system do. Requests are counted: unlike times they are the same on a machine
//! that has other work.

mod delay;
mod nodes;
mod passthrough;

use std::{fs, path::PathBuf, process::ExitCode, sync::Arc};

use clap::Parser as _;

use crate::{
    delay::{Delay, time},
    passthrough::Passthrough,
};

/// A FUSE passthrough that is as slow as it is told to be.
#[derive(clap::Parser, Debug)]
struct Args {
    /// The folder whose files are served.
    source: PathBuf,
    /// Where it is mounted.
    mount: PathBuf,
    /// Delay of a request on names and attributes, as 200us.
    #[arg(long, default_value = "0us", value_parser = time)]
    metadata: std::time::Duration,
    /// Delay of a request on data before its bytes.
    #[arg(long, default_value = "0us", value_parser = time)]
    data: std::time::Duration,
    /// MiB a second that one server moves; 0: as fast as it can.
    #[arg(long, default_value_t = 0)]
    bandwidth: u64,
    /// Requests that are served at a time.
    #[arg(long, default_value_t = 8)]
    servers: usize,
    /// For how long the kernel may keep attributes and names.
    #[arg(long, default_value = "1s", value_parser = time)]
    keep: std::time::Duration,
    /// Files that somebody has removed from the source are stale, and cannot be closed.
    #[arg(long)]
    stale: bool,
    /// A file for the number of requests by kind, written when it is unmounted.
    #[arg(long)]
    counts: Option<PathBuf>,
}

fn main() -> ExitCode {
    match serve(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            use std::io::Write as _;
            writeln!(std::io::stderr(), "slowfs: {why}").ok();
            ExitCode::FAILURE
        }
    }
}

fn serve(args: &Args) -> std::io::Result<()> {
    // A latency of 50 us would else take twice as long.
    rustix::thread::set_current_timer_slack(std::num::NonZero::new(1))?;
    rustix::process::umask(rustix::fs::Mode::empty());
    let delay = Arc::new(Delay::new(args.metadata, args.data, args.bandwidth));
    let files = Passthrough::new(&args.source, Arc::clone(&delay), args.keep, args.stale)?;
    let mut config = fuser::Config::default();
    config.mount_options = vec![
        fuser::MountOption::FSName("slowfs".to_owned()),
        fuser::MountOption::Subtype("slowfs".to_owned()),
        fuser::MountOption::DefaultPermissions,
    ];
    config.acl = fuser::SessionACL::All;
    config.n_threads = Some(args.servers);
    config.clone_fd = true;
    let served = fuser::mount(files, &args.mount, &config);
    if let Some(path) = &args.counts {
        fs::write(path, delay.counts())?;
    }
    served
}
