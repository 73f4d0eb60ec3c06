//! The plain server: one thread that receives a packet, writes it, and answers.
//!
//! A message of UCX it writes from where it has landed, in the middle of the task that waits for
//! the next one.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::{fd::AsRawFd as _, unix::fs::FileExt as _},
    path::Path,
};

use anyhow::{bail, ensure};
use ucx::{NoPayload, Worker};
use uring::{Listener, SOCKET_LEN_MAX, set_window_min};

use super::{
    packet::{NUMBER_LEN, Run},
    server::Part,
    ucx as messages,
};
use crate::{
    file::side::open,
    meter::{Meter, Sample},
    speaker::say,
};

const PAGE: usize = 4096;

/// Serves the one client of a run, over TCP.
pub(crate) fn serve(part: Part, path: &Path, run: &Run) -> anyhow::Result<Sample> {
    ensure!(run.clients == 1, "one client");
    let listener = TcpListener::bind("127.0.0.1:0")?;
    say(format!("tcp://{}", listener.local_addr()?))?;
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    set_window_min(&stream, run.window_len())?;
    match part {
        Part::Network => receive_all(&mut stream, run),
        Part::Integrated => serve_packets(&mut stream, &open(path, true)?, run),
        Part::Request => bail!("not by this program"),
    }
}

/// Lets everything come at once, and looks at nothing.
fn receive_all(stream: &mut TcpStream, run: &Run) -> anyhow::Result<Sample> {
    stream.write_all(&run.count.to_le_bytes())?;
    let mut space = vec![0; SOCKET_LEN_MAX];
    let meter = Meter::new(run.count);
    let mut left = run.count * (NUMBER_LEN + run.size) as u64;
    while left > 0 {
        let len = stream.read(&mut space)? as u64;
        ensure!(len > 0, "the client is gone");
        meter.start();
        left -= len;
    }
    stream.write_all(&run.count.to_le_bytes())?;
    Ok(meter.sample())
}

fn serve_packets(stream: &mut TcpStream, file: &File, run: &Run) -> anyhow::Result<Sample> {
    stream.write_all(&u64::from(run.depth).to_le_bytes())?;
    let mut space = vec![0; run.size + PAGE];
    let start = space.as_ptr().align_offset(PAGE);
    let data = space.get_mut(start..start + run.size).unwrap_or_default();
    let meter = Meter::new(run.count);
    for served in 1..=run.count {
        let mut offset = [0; NUMBER_LEN];
        stream.read_exact(&mut offset)?;
        stream.read_exact(data)?;
        meter.start();
        file.write_all_at(data, u64::from_le_bytes(offset))?;
        stream.write_all(&1_u64.to_le_bytes())?;
        meter.served(served);
    }
    Ok(meter.sample())
}

/// Serves the one client of a run, over UCX.
pub(crate) async fn serve_messages(
    worker: &Worker,
    mut listener: Listener,
    file: &File,
    run: &Run,
) -> anyhow::Result<Sample> {
    ensure!(run.clients == 1, "one client");
    let (stream, endpoint) = messages::accept(worker, &mut listener).await?;
    endpoint.send(&u64::from(run.depth).to_le_bytes(), NoPayload).await?;
    let meter = Meter::new(run.count);
    for served in 1..=run.count {
        for _ in 0..run.parts() {
            let message = endpoint.receive().await?;
            meter.start();
            let offset = u64::from_le_bytes(message.header().try_into()?);
            write_at(file, &message.data, offset)?;
        }
        endpoint.send(&1_u64.to_le_bytes(), NoPayload).await?;
        meter.served(served);
    }
    let sample = meter.sample();
    messages::end(stream).await;
    Ok(sample)
}

/// By one call, which a file takes whole.
fn write_at(file: &File, data: &ucx::Buffer, offset: u64) -> anyhow::Result<()> {
    let (bytes, to) = (data.bytes(), i64::try_from(offset)?);
    // SAFETY: so many bytes are there, which the kernel only reads.
    let len = unsafe { libc::pwrite(file.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), to) };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    ensure!(len == bytes.len(), "{len} bytes of {} were written", bytes.len());
    Ok(())
}
