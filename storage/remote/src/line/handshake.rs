//! How both sides of a connection prove the job key before anything else is said, and agree on what
//! carries the rest.

use std::io;

use executor::{Handle, Instant, Notify};
use wire::{Challenge, Frame, Proof, RemoteWelcome, SESSION_LEN, VERSION};

use super::{
    Secrets, Speaks,
    channel::{Inbox, Outbox, Receive},
    key::{Key, Prover, Transcript, random},
};

const UCX_ONLY: &str = "the server is reached by ucx:// only; name it so";
const NO_WAY: &str = "the server closes the connection when UCX is to carry it";
const NO_UCX: &str = "the other side does not use UCX; use tcp:// with it";

/// Why a connection is of no use, as an I/O error; the text says what to do.
pub(crate) fn refused(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why.into())
}

/// As [`refused`], by what listens where the server was looked for, and has not shown the key: it
/// may be another server, for as long as that one is away.
pub(super) fn strange(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::AddrInUse, why.into())
}

fn is_strange(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse && error.raw_os_error().is_none()
}

fn stranger() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "what answered is no server of this version")
}

/// True if trying again is of no use.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// True if there has never been a server: its host has no address, or something else listens, as a
/// server with another key. Of one that has served before it may be so for a moment only.
pub(crate) fn is_unknown(error: &io::Error) -> bool {
    is_unknown_host(error) || is_strange(error) || error.kind() == io::ErrorKind::InvalidData
}

/// The path of a Unix socket that is not there has an error number.
fn is_unknown_host(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound && error.raw_os_error().is_none()
}

/// Why there is no server, and what to do.
pub(crate) fn advised(error: &io::Error) -> String {
    let advice = match error.kind() {
        _ if is_strange(error) => return error.to_string(),
        _ if is_unknown_host(error) => "name a host that this node knows",
        io::ErrorKind::UnexpectedEof => {
            "check that a `kakehi serve` of this version is there, and what it said"
        }
        io::ErrorKind::InvalidData => "use the same `kakehi serve` there, or its port",
        io::ErrorKind::HostUnreachable if error.raw_os_error().is_none() => {
            "give both sides the same UCX_TLS, and UCX_NET_DEVICES that reach each other through \
             any firewall, or use tcp://"
        }
        // Unless it is the system's.
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => {
            return error.to_string();
        }
        io::ErrorKind::PermissionDenied => "be the user whose `kakehi serve` it is",
        _ => "check that `kakehi serve` runs there",
    };
    format!("{error}; {advice}")
}

/// The client's side. Returns what the server grants. Before that the server may say that it is
/// there, as `hears` is told.
pub(crate) async fn greet<R: Receive>(
    key: &Key,
    session: [u8; SESSION_LEN],
    inbox: &mut Inbox<R>,
    outbox: &Outbox,
    hears: impl Fn(),
) -> io::Result<RemoteWelcome> {
    let client_nonce = random()?;
    outbox.push(Frame::hello(session, client_nonce));
    inbox.fill().await.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => stranger(),
        io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "it closes the connection"),
        _ => error,
    })?;
    let Some(Frame::Challenge(challenge)) = inbox.frame() else {
        return Err(stranger());
    };
    let Challenge { version, nonce: server_nonce, tag } = challenge;
    if version != VERSION {
        return Err(strange(format!(
            "the server speaks another version, {version} and not {VERSION}; use the same `kakehi` \
             on both nodes"
        )));
    }
    let said = Transcript { version, session, client_nonce, server_nonce };
    if !key.accepts(Prover::Server, &said, &tag) {
        return Err(strange("the server has another key, or none; give both the same key file"));
    }
    inbox.consume();
    outbox.push(Frame::Proof(Proof { tag: key.tag(Prover::Client, &said) }));
    // Who has the key too has no reason to refuse ours: an end from here on is a broken connection.
    inbox.fill().await?;
    let mut there = None;
    if inbox.receiver().leaves_stream() {
        there = Some(hear_worker(inbox)?);
        tell_worker(inbox, outbox)?;
        // Before it welcomes us, the server connects to that.
        inbox.fill().await.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::new(io::ErrorKind::HostUnreachable, NO_WAY),
            _ => error,
        })?;
    }
    while inbox.frame() == Some(Frame::Pong) {
        hears();
        inbox.consume();
        inbox.fill().await?;
    }
    let welcome = match inbox.frame() {
        Some(Frame::Welcome(welcome)) => welcome,
        Some(Frame::Worker { .. }) => return Err(refused(UCX_ONLY)),
        _ => return Err(stranger()),
    };
    inbox.consume();
    if let Some(there) = there {
        let secrets = secrets(key, &said, Prover::Client, Prover::Server);
        inbox.receiver().leave_stream(&there, secrets, Speaks::First)?;
    }
    Ok(welcome)
}

/// The server's side, up to its welcome. Returns the session of a client that has the key.
pub(crate) async fn challenge<R: Receive>(
    key: &Key,
    inbox: &mut Inbox<R>,
    outbox: &Outbox,
) -> io::Result<[u8; SESSION_LEN]> {
    inbox.fill().await?;
    let Some(Frame::Hello(hello)) = inbox.frame() else {
        return Err(refused("no hello"));
    };
    let server_nonce = random()?;
    let (version, session) = (VERSION, hello.session);
    let said = Transcript { version, session, client_nonce: hello.nonce, server_nonce };
    // The answer to another version says ours, and that it comes from the right server.
    let tag = key.tag(Prover::Server, &said);
    outbox.push(Frame::Challenge(Challenge { version, nonce: server_nonce, tag }));
    let is_other = hello.version != VERSION;
    inbox.consume();
    inbox.fill().await?;
    if is_other {
        // Not before it has gone, or gone on: what ends here first is not heard there.
        return Err(refused("the client speaks another version"));
    }
    let Some(Frame::Proof(proof)) = inbox.frame() else {
        return Err(refused("no proof"));
    };
    if !key.accepts(Prover::Client, &said, &proof.tag) {
        return Err(refused("the client does not have this job's key"));
    }
    inbox.consume();
    if inbox.receiver().leaves_stream() {
        tell_worker(inbox, outbox)?;
        inbox.fill().await?;
        let there = hear_worker(inbox)?;
        let secrets = secrets(key, &said, Prover::Server, Prover::Client);
        inbox.receiver().leave_stream(&there, secrets, Speaks::Second)?;
    }
    Ok(session)
}

/// Tells the peer, who has the key, of the UCX worker of this side.
fn tell_worker<R: Receive>(inbox: &mut Inbox<R>, outbox: &Outbox) -> io::Result<()> {
    let address = inbox.receiver().worker()?;
    outbox.push(Frame::Worker { address: &address });
    Ok(())
}

/// The peer's UCX worker.
fn hear_worker<R: Receive>(inbox: &mut Inbox<R>) -> io::Result<Vec<u8>> {
    let address = match inbox.frame() {
        Some(Frame::Worker { address }) => address.to_owned(),
        _ => return Err(refused(NO_UCX)),
    };
    inbox.consume();
    Ok(address)
}

fn secrets(key: &Key, said: &Transcript, ours: Prover, theirs: Prover) -> Secrets {
    Secrets { ours: key.secret(ours, said), theirs: key.secret(theirs, said) }
}

/// Waits until `end`, then says that it took too long.
pub(crate) async fn fails_at<T>(handle: &Handle, end: Instant) -> io::Result<T> {
    handle.sleep_until(end).await;
    Err(io::ErrorKind::TimedOut.into())
}

/// Waits for a condition, then gives `error`.
pub(crate) async fn fails_when<T>(
    news: &Notify,
    condition: impl FnMut() -> bool,
    error: io::ErrorKind,
) -> io::Result<T> {
    news.until(condition).await;
    Err(error.into())
}
