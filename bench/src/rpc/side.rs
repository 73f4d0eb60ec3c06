//! The two processes of a run, as they are started.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    rc::Rc,
};

use anyhow::Context as _;
#[cfg(not(feature = "peers"))]
use anyhow::bail;
use executor::{Config, Executor, Idle};
use serde::{Deserialize, Serialize};
use uring::{
    Choice, Engines, Events, File, Listener, Pool, Sockets, SystemClock, prefer_short_turns,
};

#[cfg(feature = "peers")]
use super::peers;
use super::{
    client,
    packet::{NUMBER_LEN, Run, Transport},
    psync,
    server::{self, Part},
    ucx,
};
use crate::{child::say, file::side::open, meter::Sample, worker::pin};

/// The server program.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Program {
    /// The runtime of this project.
    Kakehi,
    /// One thread of blocking calls.
    Psync,
    /// The thesis's way.
    Glommio,
}

impl Program {
    /// True if this build can run it.
    pub(crate) fn is_built(self) -> bool {
        cfg!(feature = "peers") || matches!(self, Self::Kakehi | Self::Psync)
    }
}

/// Why a peer does not serve.
pub(crate) const WITHOUT_PEERS: &str = "built without peers: 'make bench' builds with them";

/// Serves one run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Server {
    pub(crate) program: Program,
    pub(crate) part: Part,
    pub(crate) path: PathBuf,
    pub(crate) run: Run,
    pub(crate) core: Option<usize>,
}

/// Sends the packets of one run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Client {
    pub(crate) address: String,
    pub(crate) run: Run,
    pub(crate) core: Option<usize>,
}

/// Says where it listens on its first line, and what the run took on its second.
pub(crate) fn serve(server: &Server) -> anyhow::Result<()> {
    let Server { program, part, path, run, core } = server;
    pin(*core)?;
    let sample = match program {
        Program::Kakehi => serve_ours(*part, path, run.clone()),
        Program::Psync => psync::serve(*part, path, run),
        #[cfg(feature = "peers")]
        Program::Glommio => peers::glommio::serve(path, run),
        #[cfg(not(feature = "peers"))]
        Program::Glommio => bail!(WITHOUT_PEERS),
    }?;
    say(sample)
}

/// Ends when every packet is served.
pub(crate) fn send(client: &Client) -> anyhow::Result<()> {
    pin(client.core)?;
    let (mut executor, events, _, sockets) = set_up()?;
    let (handle, run) = (executor.handle(), client.run.clone());
    let address = client.address.parse().context("an address")?;
    match run.transport {
        Transport::Tcp => executor.run_until(client::send_all(&handle, &sockets, &address, run)),
        Transport::Ucx => {
            let memory = Pool::new(NUMBER_LEN, run.depth as usize * run.parts()).memory();
            let worker = ucx::worker(&handle, &events, &run, memory, NUMBER_LEN)?;
            let stream = executor.run_until(sockets.connect(&address, client::PATIENCE))?;
            executor.run_until(ucx::send_all(&handle, worker, stream, run))
        }
    }
}

fn serve_ours(part: Part, path: &Path, run: Run) -> anyhow::Result<Sample> {
    let (mut executor, events, engines, sockets) = set_up()?;
    let file = match part {
        Part::Request | Part::Network => None,
        Part::Integrated => Some(File::new(OwnedFd::from(open(path, true)?))?),
    };
    let handle = executor.handle();
    let server = server::Server::new(&handle, &engines, file, run.clone())?;
    let landing = server.pool.memory();
    let worker = match run.transport {
        Transport::Tcp => None,
        Transport::Ucx => Some(ucx::worker(&handle, &events, &run, landing, run.part_len())?),
    };
    let listener = listen(&mut executor, &sockets)?;
    match worker {
        None => executor.run_until(server.serve(listener)),
        Some(worker) => executor.run_until(ucx::serve(server, worker, listener)),
    }
}

/// Says where.
fn listen(executor: &mut Executor, sockets: &Sockets) -> anyhow::Result<Listener> {
    let address = "tcp://127.0.0.1:0".parse().context("an address")?;
    let listener = executor.run_until(sockets.listen(&address))?;
    say(listener.address().to_string())?;
    Ok(listener)
}

fn set_up() -> anyhow::Result<(Executor, Events, Engines, Sockets)> {
    // As the daemon does. A kernel that knows no such turns is measured without.
    prefer_short_turns().ok();
    let events = Events::new()?;
    // What a thread waits is then not counted as its CPU time.
    let config = Config { idle: Idle::Park, ..Config::default() };
    let executor = Executor::new(Rc::new(SystemClock), Box::new(events.parker()), config);
    let engines = Engines::new(&executor.handle(), Choice::Auto, 2, &events);
    let sockets = Sockets::new(&executor.handle(), &events, &engines)?;
    Ok((executor, events, engines, sockets))
}
