//! One run: the two processes, and what the server says of it.

use std::path::Path;

use super::{
    packet::Run,
    server::Part,
    side::{Client, Program, Server},
};
use crate::{
    child::{Child, patience},
    kakehi::Environment,
    machine::Cores,
    meter::Sample,
};

/// Has `program` serve one run.
pub(crate) fn run(
    program: Program,
    part: Part,
    run: &Run,
    path: &Path,
    cores: Option<Cores>,
) -> Result<Sample, String> {
    let core = cores.map(|cores| cores.daemon);
    let server = Server { program, part, path: path.to_owned(), run: run.clone(), core };
    serve(server, cores.map(|cores| cores.client)).map_err(|why| format!("{why:#}"))
}

fn serve(server: Server, core: Option<usize>) -> anyhow::Result<Sample> {
    let (run, none) = (server.run.clone(), Environment::new());
    let patience = patience(run.count * run.size as u64);
    let mut server = Child::start("rpc-server", &server, &none)?;
    let client = Client { address: server.hear(patience)?, run, core };
    let mut client = Child::start("rpc-client", &client, &none)?;
    server.hear(patience).inspect_err(|_| client.kill())
}
