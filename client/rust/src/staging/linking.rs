//! Making a file known to the daemon, and to whoever else has it open.

use rustix::fd::BorrowedFd;
use wire::{Reason, Registration, Request};

use super::{give_log, new_log};
use crate::{
    connection::{Connection, Lost},
    file::OpenFile,
    log::Drains,
    slot::{Link, Slot},
    slots::Holder,
    writes::Writes,
};

/// Links a file to the daemon, with a log if it is to be written to.
///
/// # Errors
///
/// Why the kernel has to serve the file for now.
pub(crate) fn link(
    connection: &'static Connection,
    file: &mut OpenFile,
    fd: BorrowedFd<'_>,
    with_log: bool,
) -> Result<(), Reason> {
    if connection.is_lost() || connection.session.shared().is_closing() {
        return Err(Reason::DaemonLost);
    }
    let is_own = file.drains() == Drains::Here;
    let log = if with_log { Some(new_log(connection, file).ok_or(Reason::Credit)?) } else { None };
    let Some(slot) = Slot::take(connection, Holder::Daemon) else {
        log.inspect(|log| give_log(connection, log));
        return Err(Reason::Credit);
    };
    slot.shared().set_drained_by_client(is_own);
    if file.writes == Writes::Through {
        // A program that is told of an error writes again: what is refused must not stay staged.
        slot.shared().demote();
    }
    let registration = Registration {
        file: slot.number(),
        flags: file.access.flags(),
        log_at: log.map_or(0, |log| log.at),
        log_len: log.map_or(0, |log| log.producer.capacity()),
    };
    let inodes = &connection.job.shared().inodes;
    if with_log {
        inodes.add(file.device, file.inode);
    } else {
        inodes.add_reader(file.device, file.inode);
    }
    if let Err(reason) = connection.register(registration, fd) {
        inodes.remove(file.device, file.inode);
        log.inspect(|log| give_log(connection, log));
        return Err(reason);
    }
    file.state.link_to(slot.into_link(true), log);
    settle_told(connection, file, with_log);
    Ok(())
}

/// Says that the daemon knows a file, before anything is staged for it.
fn settle_told(connection: &'static Connection, file: &OpenFile, with_log: bool) {
    let (inodes, (device, inode)) = (&connection.job.shared().inodes, (file.device, file.inode));
    let linked = match with_log {
        true => inodes.tell(device, inode),
        false => inodes.linked(device, inode),
    };
    if linked.count() > 1 {
        // Somebody else has staged, or is about to, to this inode or to one with its hash. Each of
        // us sees the other here, and the daemon, which knows both by then, demotes us if it is the
        // same; what one wrote before the other began is drained before it begins.
        match connection.call(Request::Settle { device, inode, demote: false }) {
            Ok(_) | Err(Lost) => {}
        }
    }
}

/// Gives a file that is linked without a log, to be read, a log to be written.
pub(crate) fn attach(file: &mut OpenFile, link: Link) -> Result<(), Reason> {
    let log = new_log(link.connection, file).ok_or(Reason::Credit)?;
    link.shared.set_drained_by_client(log.is_own());
    let request =
        Request::Attach { file: link.slot, arena_at: log.at, len: log.producer.capacity() };
    match link.connection.call(request) {
        Ok(Ok(_)) => {
            file.state.attach(log);
            if !file.state.is_placeholder() {
                settle_told(link.connection, file, true);
            }
            Ok(())
        }
        Ok(Err(_)) => {
            give_log(link.connection, &log);
            Err(Reason::Credit)
        }
        Err(Lost) => Err(Reason::DaemonLost),
    }
}
