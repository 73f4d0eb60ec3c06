//! The parts that processes of this program play in a bench.

use serde::Deserialize;

use crate::{file, here, idle, rpc, tasks, worker};

/// A process's part of a bench; [`child`](crate::child) starts it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Part {
    Worker(worker::Args),
    Storm(idle::storm::Args),
    Play(here::play::Args),
    MakeFiles(tasks::coalesce::Args),
    FileSide(file::side::Args),
    RpcServer(rpc::side::Server),
    RpcClient(rpc::side::Client),
}

/// Plays a part, for kakehi-bench itself.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[arg(value_parser = |text: &str| serde_json::from_str::<Part>(text))]
    part: Part,
}

/// Plays the part of this process.
pub(crate) fn play(args: &Args) -> anyhow::Result<()> {
    match &args.part {
        Part::Worker(args) => worker::work(args),
        Part::Storm(args) => idle::storm::storm(args),
        Part::Play(args) => here::play::play(args),
        Part::MakeFiles(args) => tasks::coalesce::make(args),
        Part::FileSide(args) => file::side::work(args),
        Part::RpcServer(server) => rpc::side::serve(server),
        Part::RpcClient(client) => rpc::side::send(client),
    }
}
