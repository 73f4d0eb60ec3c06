//! The other process of a test.

use std::{
    env,
    future::{Future, poll_fn},
    os::unix::net::UnixStream,
    task::Poll,
};

use ucx::{Endpoint, Error, NoPayload, payload};

use crate::support::{Core, DEADLINE, LARGE, ROLE, SOCKET, Transport};

/// Messages of the role "batch".
pub(crate) const BATCH_COUNT: u8 = 8;

#[test]
#[ignore = "the other process of tests, which start it themselves"]
#[expect(clippy::disallowed_methods, reason = "how the tests tell it what to do")]
fn plays_its_role() {
    let Ok(role) = env::var(ROLE) else { return };
    let socket = env::var_os(SOCKET).expect("set beside the role");
    let mut stream = UnixStream::connect(socket).expect("the test listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("socket");

    let words: Vec<_> = role.split(' ').collect();
    let [role, transport] = words.as_slice() else { panic!("{role}") };
    let transport = match *transport {
        "Tcp" => Transport::Tcp,
        _ => Transport::SharedMemory,
    };
    let mut core = Core::new(&transport.config()).expect("the test found libucp");
    let endpoint = core.meet_parent(&mut stream);
    match *role {
        "echo" => core.run(echo(endpoint)),
        "listen" => core.run(listen(endpoint)),
        "flood" => core.run(flood(endpoint, 100)),
        "flood-large" => core.run(flood(endpoint, LARGE)),
        "batch" => core.run(batch(endpoint)),
        "long" => {
            core.run(endpoint.send(b"", payload(vec![0; 101]))).ok();
            core.run(endpoint.receive()).ok();
        }
        role => panic!("unknown role {role}"),
    }
}

/// Says hello and returns every message, until one says goodbye.
async fn echo(endpoint: Endpoint) {
    endpoint.send(b"hello", NoPayload).await.expect("connected");
    loop {
        let message = endpoint.receive().await.expect("connected");
        if message.header() == b"bye" {
            return;
        }
        let header = message.header().to_vec();
        endpoint.send(&header, message.data).await.expect("connected");
    }
}

/// Says hello and takes messages until the connection ends.
async fn listen(endpoint: Endpoint) {
    endpoint.send(b"hello", NoPayload).await.expect("connected");
    while endpoint.receive().await.is_ok() {}
}

/// Sends messages of `len` bytes, many at a time, until the connection ends.
async fn flood(endpoint: Endpoint, len: usize) {
    loop {
        let sends = (0..32).map(|_| endpoint.send(b"more", payload(vec![7; len])));
        if join(sends).await.is_err() {
            return;
        }
    }
}

/// Sends [`BATCH_COUNT`] messages, large and small in turn, then waits for one.
async fn batch(endpoint: Endpoint) {
    let sends = (0..BATCH_COUNT).map(|number| {
        let len = if number % 2 == 0 { LARGE } else { 1000 };
        endpoint.send(&[number], payload(vec![number; len]))
    });
    join(sends).await.expect("connected");
    endpoint.receive().await.expect("connected");
}

/// Lets all go on side by side, until all are done or one fails.
async fn join(sends: impl Iterator<Item: Future<Output = Result<(), Error>>>) -> Result<(), Error> {
    let mut sends: Vec<_> = sends.map(Box::pin).collect();
    poll_fn(|context| {
        let mut failed = None;
        sends.retain_mut(|send| match send.as_mut().poll(context) {
            Poll::Ready(sent) => {
                failed = failed.take().or(sent.err());
                false
            }
            Poll::Pending => true,
        });
        match failed {
            Some(error) => Poll::Ready(Err(error)),
            None if sends.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    })
    .await
}
