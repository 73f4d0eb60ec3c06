//! What jobs have left whose daemon was killed, and whoever waited for it too: as when a batch
//! system kills all that a job has on a node.

use std::{fs, path::Path};

use daemon::{control, folder};
use rustix::fs::FlockOperation;

use super::{Job, bases, check_private, is_made};
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
            clear_if_deserted(Job {
                name: entry.file_name().to_string_lossy().into_owned(),
                folder: entry.path(),
            });
        }
    }
}

/// Whoever starts a daemon there has the lock until it listens. Before that its folder is not
/// touched, also not to look who has the lock.
fn clear_if_deserted(job: Job) {
    let is_deserted = |folder: &Path| control::is_deserted(folder) && is_made(folder);
    if !is_deserted(&job.folder) || check_private(&job.folder).is_err() {
        return;
    }
    let Ok(lock) = job.take_lock(FlockOperation::NonBlockingLockExclusive) else { return };
    // A daemon of another node, too, refuses whoever is on this one.
    let is_here = lock.0.try_clone().is_ok_and(|lock| folder::has_local_file(lock.into()));
    if is_here && is_deserted(&job.folder) {
        job.clear(&lock);
    }
}
