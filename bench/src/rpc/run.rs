//! One run: the two processes, and what the server says of it.

use std::path::Path;

use clap::ValueEnum;

use super::{packet::Run, server::Part, side::Program};
use crate::{machine::Cores, meter::Sample, speaker::Speaker};

/// Has `program` serve one run.
///
/// # Errors
///
/// A text that says why there is no sample.
pub(crate) fn run(
    program: Program,
    part: Part,
    run: &Run,
    path: &Path,
    cores: Option<Cores>,
) -> Result<Sample, String> {
    serve(program, part, run, path, cores).map_err(|why| format!("{why:#}"))
}

fn serve(
    program: Program,
    part: Part,
    run: &Run,
    path: &Path,
    cores: Option<Cores>,
) -> anyhow::Result<Sample> {
    let volume = run.count * run.size as u64;
    let mut words = words("rpc-server", run, cores.map(|cores| cores.daemon));
    let [program, part_name, path] = [name(program), name(part), path.display().to_string()];
    words.extend(["--program".to_owned(), program, "--part".to_owned(), part_name]);
    words.extend(["--path".to_owned(), path]);
    let mut server = Speaker::start(&words, volume)?;
    let mut words = self::words("rpc-client", run, cores.map(|cores| cores.client));
    words.extend(["--address".to_owned(), server.line()?]);
    let mut client = Speaker::start(&words, volume)?;
    let sample = server.sample();
    if sample.is_err() {
        client.kill();
    }
    sample
}

/// A value as the command line has it.
pub(crate) fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn words(side: &str, run: &Run, core: Option<usize>) -> Vec<String> {
    let Run { size, count, depth, clients, span, transport, lends } = run;
    let mut words = vec![side.to_owned()];
    let numbers = [
        ("--size", size.to_string()),
        ("--count", count.to_string()),
        ("--depth", depth.to_string()),
        ("--clients", clients.to_string()),
        ("--span", span.to_string()),
        ("--transport", name(*transport)),
    ];
    words.extend(numbers.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
    words.extend(lends.then(|| "--lends".to_owned()));
    words.extend(core.into_iter().flat_map(|core| ["--core".to_owned(), core.to_string()]));
    words
}
