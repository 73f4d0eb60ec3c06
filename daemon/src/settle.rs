//! Making what is staged visible: every file of an inode, on whichever executor it is.

use std::rc::Rc;

use executor::{lock, reply};
use rustix::io::Errno;
use shm::staging::SEEN_AFTER;
use storage::names::{FileCall, Identity};

use crate::{core::Core, drain, node::Mail, registry::Opener, session_storage::SessionStorage};

/// Demotes every file open on an inode and drains it. On return everything accepted before the
/// call is in the file.
pub(crate) async fn settle<S: SessionStorage>(core: &Rc<Core<S>>, identity: Identity) {
    hear_of(core, identity).await;
    let openers = lock(&core.node.registry).demote(identity, &core.handle);
    drain_all(core, &openers).await;
}

/// Drains every file open on an inode, and leaves them as they are.
pub(crate) async fn drain_inode<S: SessionStorage>(core: &Rc<Core<S>>, identity: Identity) {
    // What it is refused with is owed to the clients.
    drain_for(core, identity, None).await.unwrap_or_default();
}

/// True if bytes are staged for an inode: after they were drained, those that the kernel refuses.
pub(crate) fn is_staged<S: SessionStorage>(core: &Core<S>, identity: Identity) -> bool {
    lock(&core.node.registry).openers(identity).iter().any(Opener::is_staged)
}

/// Truncates an inode by those of its files for which bytes are refused, so that none of these come
/// behind its end later.
///
/// # Errors
///
/// Those of [`change`](drain::change()).
pub(crate) async fn truncate_staged<S: SessionStorage>(
    core: &Rc<Core<S>>,
    identity: Identity,
    len: u64,
) -> Result<(), Errno> {
    let mut openers = lock(&core.node.registry).openers(identity);
    openers.retain(Opener::is_staged);
    drain_published(core, &openers, Some(len)).await
}

/// As [`drain_inode`], for a session whose own writes need not be waited for: it makes none while
/// it waits for this.
///
/// # Errors
///
/// The first error that staged bytes are refused with.
pub(crate) async fn drain_for<S: SessionStorage>(
    core: &Rc<Core<S>>,
    identity: Identity,
    session: Option<u32>,
) -> Result<(), Errno> {
    hear_of(core, identity).await;
    let openers = lock(&core.node.registry).openers(identity);
    let others = openers.iter().filter(|opener| Some(opener.session) != session);
    await_demoted(core, others).await;
    drain_published(core, &openers, None).await
}

/// Makes sure that every file of an inode is known that was handed over before this call.
async fn hear_of<S: SessionStorage>(core: &Rc<Core<S>>, identity: Identity) {
    // A file whose registration is still on the way is counted in the table already. One that comes
    // between the two looks makes up for one that is missing.
    let linked = || core.node.shared().inodes.linked(identity.0, identity.1);
    let before = linked();
    let known = lock(&core.node.registry).count_of(identity) as u64;
    if known < before.count() || linked().has_news_since(before) {
        core.node.ask_all(Mail::Hear).await;
    }
}

/// Drains the files of `openers`: what was accepted before this call, and by those who had not seen
/// that they were demoted.
pub(crate) async fn drain_all<S: SessionStorage>(core: &Rc<Core<S>>, openers: &[Opener]) {
    await_demoted(core, openers.iter()).await;
    // What it is refused with is owed to the clients.
    drain_published(core, openers, None).await.unwrap_or_default();
}

/// Waits until the writes are seen that had not seen a demotion.
async fn await_demoted<'a, S: SessionStorage>(
    core: &Rc<Core<S>>,
    openers: impl Iterator<Item = &'a Opener>,
) {
    let Some(at) = openers.filter_map(|opener| opener.demoted_at).max() else { return };
    let left = SEEN_AFTER.saturating_sub(core.handle.now().saturating_since(at));
    if !left.is_zero() {
        core.handle.sleep(left).await;
    }
}

/// Drains what is seen of the files of `openers`; truncates those that it is refused for, if the
/// inode is to be `len` bytes long.
///
/// # Errors
///
/// Why one is not drained, or truncated.
async fn drain_published<S: SessionStorage>(
    core: &Rc<Core<S>>,
    openers: &[Opener],
    len: Option<u64>,
) -> Result<(), Errno> {
    let mut elsewhere = Vec::new();
    for opener in openers.iter().filter(|opener| opener.core != core.index) {
        let Some(mailbox) = core.node.mailbox(opener.core) else { continue };
        let (done, answer) = reply();
        mailbox.send(Mail::Drain { session: opener.session, slot: opener.slot, len, done });
        elsewhere.push(answer);
    }
    let mut drained = Ok(());
    for opener in openers.iter().filter(|opener| opener.core == core.index) {
        drained = drained.and(drain_slot(core, opener.session, opener.slot, len).await);
    }
    for answer in elsewhere {
        // No answer: that executor has ended, and has drained its files before.
        drained = drained.and(answer.receive().await.unwrap_or(Ok(())));
    }
    drained
}

/// Drains the file in a session's slot, if there is one; truncates it to `len` if it is refused.
///
/// # Errors
///
/// Why it is not drained, or truncated.
pub(crate) async fn drain_slot<S: SessionStorage>(
    core: &Rc<Core<S>>,
    session: u32,
    slot: u32,
    len: Option<u64>,
) -> Result<(), Errno> {
    let file = core.session(session).and_then(|found| found.file_to_drain(slot));
    let Some(file) = file else { return Ok(()) };
    let drained = drain::drain_to(core, &file, file.head()).await;
    match len.filter(|_| drained.is_err()) {
        Some(len) => drain::change(core, &file, FileCall::Truncate { len }).await.map(drop),
        None => drained,
    }
}
