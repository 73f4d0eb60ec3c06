//! Folders of jobs whose daemon and waiting `run` were both killed, as when a batch system kills
//! all that a job has on a node.

use std::fs;

use daemon::{caller, socket_folder};
use rustix::fs::{FlockOperation, OFlags};

use super::{Job, LOCK, PROGRAMS, base::bases, check_private, is_made, locked};
use crate::config::Environment;

/// Removes the folders of all such jobs of this user on this node. What cannot be removed stays:
/// nobody needs it to be gone.
pub(crate) fn sweep(environment: &Environment) {
    for base in bases(environment) {
        if check_private(&base).is_err() {
            continue;
        }
        let Ok(entries) = fs::read_dir(&base) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            clear_if_deserted(&Job { name, folder: entry.path() });
        }
    }
}

/// Clears the folder under the lock that the starter of a daemon holds until it listens.
fn clear_if_deserted(job: &Job) {
    let is_deserted = || caller::is_deserted(&job.folder) && is_made(&job.folder);
    if !is_deserted() || check_private(&job.folder).is_err() || !is_of_this_node(job) {
        return;
    }
    let Ok(lock) = job.take_lock() else { return };
    if is_deserted() && !has_programs(job) {
        job.clear(&lock);
    }
}

/// A daemon of another node, too, refuses whoever is on this one.
fn is_of_this_node(job: &Job) -> bool {
    let lock = job.open(LOCK, OFlags::RDWR | OFlags::CLOEXEC);
    lock.is_ok_and(|lock| socket_folder::has_local_file(lock.into()))
}

/// Programs go on without their daemon, and may be in a folder that it has made.
pub(super) fn has_programs(job: &Job) -> bool {
    let said = job.open(PROGRAMS, OFlags::RDWR | OFlags::CLOEXEC);
    said.is_ok_and(|said| locked(said, FlockOperation::NonBlockingLockExclusive).is_err())
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, socket};

    use super::*;

    /// A folder with a socket on which nobody listens, and its lock.
    fn deserted(base: &tempfile::TempDir) -> Job {
        let job = Job { name: "a".to_owned(), folder: base.path().join("a") };
        job.create().expect("a folder");
        drop(job.lock().expect("free"));
        let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
        bind(&socket, &SocketAddrUnix::new(job.socket()).expect("short")).expect("free");
        job
    }

    #[test]
    fn a_deserted_folder_is_removed_unless_somebody_is_about_to_use_it() {
        let base = tempfile::tempdir().expect("temporary folder");
        let job = deserted(&base);
        for held in [job.lock().ok(), job.attend()] {
            assert!(held.is_some());
            clear_if_deserted(&job);
            assert!(job.socket().exists());
        }
        clear_if_deserted(&job);
        assert!(!job.folder.exists());
    }

    #[test]
    fn a_folder_without_a_lock_is_not_known_to_be_of_this_node() {
        let base = tempfile::tempdir().expect("temporary folder");
        let job = deserted(&base);
        fs::remove_file(job.folder.join(LOCK)).expect("there");
        clear_if_deserted(&job);
        assert!(job.socket().exists());
    }
}
