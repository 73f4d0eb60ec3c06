//! Mounts of a run's own, for views that cannot be mounted for everybody: this user may not mount
//! where others see it, or another job's view is at the folder.
//!
//! The run that starts the daemon takes them before, so both have them, and the programs; the runs
//! that join the job enter them. An ordinary user gets a user namespace as well, which has no other
//! users and groups. The daemon alone keeps the right to mount there.

use std::{env, fs::File, io, os::fd::AsFd as _, path::PathBuf};

use rustix::{
    fs::{Mode, OFlags, open},
    mount::{MountPropagationFlags, mount_change},
    process::geteuid,
    thread::{
        CapabilitySet, CapabilitySets, LinkNameSpaceType, move_into_link_name_space,
        set_capabilities,
    },
};

use super::mount::{DEVICE, clear_all, has_helper, is_mounted};

/// This process has mounts of its own, and may mount there; what it executes may not.
#[derive(Debug)]
pub struct OwnMounts {
    is_ruled: bool,
}

impl OwnMounts {
    /// Takes them where views of these folders, by their one true names, need them. One that
    /// `was_taken` by another job may be so again.
    ///
    /// # Errors
    ///
    /// The kernel does not allow it.
    pub fn take(locals: &[PathBuf], was_taken: bool) -> io::Result<Option<Self>> {
        let is_ruled = !geteuid().is_root();
        let is_taken = was_taken || locals.iter().any(|local| is_mounted(local));
        let is_needed = is_taken || is_ruled && !has_helper();
        let can_serve = || open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).is_ok();
        if locals.is_empty() || !is_needed || !can_serve() {
            return Ok(None);
        }
        uring::own_mounts(is_ruled)?;
        mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
        if !is_ruled {
            locals.iter().for_each(|local| clear_all(local));
        }
        Ok(Some(Self { is_ruled }))
    }

    /// Has this process, which is the daemon, no other right there than to mount.
    ///
    /// # Errors
    ///
    /// As `capset(2)`.
    pub fn give_up_others(&self) -> io::Result<()> {
        if self.is_ruled {
            let mount = CapabilitySet::SYS_ADMIN;
            let none = CapabilitySet::empty();
            let kept = CapabilitySets { effective: mount, permitted: mount, inheritable: none };
            set_capabilities(None, kept)?;
        }
        Ok(())
    }
}

/// Gives this process, which has one thread, the mounts of another one. It stays in its folder.
pub(crate) fn enter(process: i32) -> io::Result<()> {
    let (here, space) =
        (env::current_dir(), |name| File::open(format!("/proc/{process}/ns/{name}")));
    let (user, mounts) = (space("user")?, space("mnt")?);
    if !geteuid().is_root() {
        move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))?;
    }
    move_into_link_name_space(mounts.as_fd(), Some(LinkNameSpaceType::Mount))?;
    here.and_then(env::set_current_dir)
}
