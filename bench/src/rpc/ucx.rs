//! The same packets as UCX messages: the offset is the header, and the data is written to the file
//! from the buffer it arrives in. A long packet is several, one for each part. An answer is all
//! header.
//!
//! Both processes meet on a TCP connection and tell each other their workers, an address after its
//! length, 8 bytes; that connection then lies still. Between processes of one machine UCX uses
//! shared memory.

use std::{
    rc::Rc,
    sync::{Arc, atomic::AtomicU8},
};

use anyhow::Context as _;
use executor::{Armed, Class, Handle, Source};
use ucx::{Address, Config, Endpoint, NoPayload, Worker};
use uring::{Buffer, Buffers, Events, Heap, Listener, Memory, Stream};

use super::{
    answers::Answers,
    intake::Intake,
    packet::{NUMBER_LEN, Run},
    server::Server,
};
use crate::{meter::Sample, values::values};

/// Addresses are much shorter.
const ADDRESS_LEN_MAX: usize = 1 << 16;

/// Fails with the reason if libucp is missing.
pub(super) fn probe() -> Result<(), String> {
    Worker::probe(&Config::default()).map_err(|why| why.to_string())
}

/// A worker that takes as many messages as may be on the way in `run`, each in a buffer of
/// `memory`.
pub(super) fn worker(
    handle: &Handle,
    events: &Events,
    run: &Run,
    memory: Arc<dyn Memory>,
    buffer_len: usize,
) -> anyhow::Result<Worker> {
    let count = run.depth * u32::try_from(run.parts()).unwrap_or(u32::MAX);
    let config = Config {
        buffer_count: count,
        buffer_len,
        put_off_max: count,
        send_max: count,
        lent_len_min: if run.lends { Config::default().lent_len_min } else { usize::MAX },
        ..Config::default()
    };
    let worker = Worker::with_memory(handle, &config, Arc::new(Landing(memory)))?;
    events.add_fd(&worker, 0)?;
    handle.add_source(Box::new(Woken(events.clone())));
    Ok(worker)
}

/// Takes out of the events what has ended a park; the worker looks for itself.
struct Woken(Events);

impl Source for Woken {
    fn poll(&mut self, _budget: usize) -> usize {
        while self.0.pop().is_some() {}
        0
    }

    fn arm(&mut self) -> Armed {
        Armed::Waits
    }
}

/// Serves the one client of a run until all packets are served, and it knows and has left.
pub(super) async fn serve(
    server: Rc<Server>,
    worker: Worker,
    mut listener: Listener,
) -> anyhow::Result<Sample> {
    let (stream, endpoint) = accept(&worker, &mut listener).await?;
    let answers = Answers::new(Rc::clone(&server));
    server.handle.spawn(Class::Latency, receive(Rc::clone(&server), Rc::new(endpoint), answers));
    let sample = server.sample().await;
    end(stream).await;
    sample
}

/// Meets the client.
async fn accept(worker: &Worker, listener: &mut Listener) -> anyhow::Result<(Stream, Endpoint)> {
    let mut stream = listener.accept().await?;
    send_address(&mut stream, worker).await?;
    // The client has connected, and takes what is sent from now on.
    let endpoint = worker.connect_worker(&receive_address(&mut stream).await?)?;
    Ok((stream, endpoint))
}

/// Waits until the client has left.
async fn end(mut stream: Stream) {
    // It says nothing more: this is its end, of whatever kind.
    drop(stream.receive(&Buffers::from(Heap::buffer(NUMBER_LEN))).await);
}

async fn receive(server: Rc<Server>, endpoint: Rc<Endpoint>, answers: Rc<Answers>) {
    let (from, owed) = (Rc::clone(&endpoint), Rc::clone(&answers));
    server.handle.spawn(Class::Latency, async move {
        // The client tells why, when it is gone.
        while let Some(count) = owed.due().await {
            if from.send(&count.to_le_bytes(), NoPayload).await.is_err() {
                return;
            }
        }
    });
    let mut intake = Intake::new(server, Rc::clone(&answers));
    while let Ok(message) = intake.wait(endpoint.receive()).await {
        let Ok(offset) = message.header().try_into().map(u64::from_le_bytes) else { return };
        let len = message.data.len();
        let Some(body) = Buffer::new(Arc::new(Landed(message.data)), 0, len) else { return };
        intake.take(offset, body, None);
    }
    intake.store();
}

/// Sends every packet of `run` and waits until the last is served.
pub(super) async fn send_all(
    handle: &Handle,
    worker: Worker,
    mut stream: Stream,
    run: Run,
) -> anyhow::Result<()> {
    let endpoint = worker.connect_worker(&receive_address(&mut stream).await?)?;
    send_address(&mut stream, &worker).await?;
    let data = Heap::buffer(run.size);
    data.store(&values(run.size));
    let initial = receive_credits(&endpoint).await?;
    let (mut sent, mut credits) = (0, initial);
    loop {
        while credits > 0 && sent < run.count {
            for at in (0..run.size).step_by(run.part_len()) {
                let part = data.suffix(at).prefix(run.part_len());
                let offset = run.offset(sent) + at as u64;
                let send = endpoint.send(&offset.to_le_bytes(), Shared(part));
                // A failure is told to who waits for credits.
                handle.spawn(Class::Latency, async { drop(send.await) });
            }
            (sent, credits) = (sent + 1, credits - 1);
        }
        if sent == run.count && credits == initial {
            return Ok(());
        }
        credits += receive_credits(&endpoint).await?;
    }
}

async fn receive_credits(endpoint: &Endpoint) -> anyhow::Result<u64> {
    let message = endpoint.receive().await?;
    Ok(u64::from_le_bytes(message.header().try_into()?))
}

async fn send_address(stream: &mut Stream, worker: &Worker) -> anyhow::Result<()> {
    let address = worker.address()?;
    let len = (address.as_bytes().len() as u64).to_le_bytes();
    let bytes = [&len[..], address.as_bytes()].concat();
    let buffer = Heap::buffer(bytes.len());
    buffer.store(&bytes);
    Ok(stream.send_all(vec![buffer]).await?)
}

async fn receive_address(stream: &mut Stream) -> anyhow::Result<Address> {
    let len = receive_bytes(stream, NUMBER_LEN).await?;
    let len = u64::from_le_bytes(len.as_slice().try_into()?);
    let len = usize::try_from(len).ok().filter(|len| *len <= ADDRESS_LEN_MAX);
    let bytes = receive_bytes(stream, len.context("no address is so long")?).await?;
    Address::from_bytes(&bytes).context("no address of a worker")
}

async fn receive_bytes(stream: &mut Stream, len: usize) -> anyhow::Result<Vec<u8>> {
    let (buffer, mut received) = (Heap::buffer(len), 0);
    while received < len {
        match stream.receive(&Buffers::from(buffer.suffix(received))).await? {
            0 => anyhow::bail!("the other process is gone"),
            more => received += more,
        }
    }
    let mut bytes = vec![0; len];
    buffer.load(&mut bytes);
    Ok(bytes)
}

/// Where messages land.
struct Landing(Arc<dyn Memory>);

impl AsRef<[AtomicU8]> for Landing {
    fn as_ref(&self) -> &[AtomicU8] {
        self.0.bytes()
    }
}

/// A buffer to write from; its credit goes back when it is dropped.
struct Landed(ucx::Buffer);

impl Memory for Landed {
    fn bytes(&self) -> &[AtomicU8] {
        self.0.bytes()
    }
}

/// Content of every packet.
struct Shared(Buffer);

impl AsRef<[AtomicU8]> for Shared {
    fn as_ref(&self) -> &[AtomicU8] {
        self.0.bytes()
    }
}
