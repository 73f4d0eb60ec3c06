//! Changes to an inode's attributes.

use multifile::catalogue::{Node, Time};
use rustix::{
    fs::{UTIME_NOW, UTIME_OMIT},
    io::Errno,
};
use storage::names::Attributes;
use wire::Times;

use super::{PERMISSIONS, SET_GROUP, SET_USER, Tree};

const GROUP_EXECUTES: u32 = 0o010;

impl Tree {
    /// The node with its content changed by anybody but root, as the kernel has it: a program that
    /// runs as its owner does not become another one. `None`: it stays as it is.
    pub(crate) fn stripped(&self, node: &Node) -> Option<Node> {
        let mode = without_set_ids(node.mode);
        let is_cleared = self.me.user != 0 && mode != node.mode && !node.is_folder();
        is_cleared.then(|| Node { mode, ..node.clone() })
    }

    /// Attributes of a node, set.
    pub(crate) fn set(&self, node: &Node, what: Attributes, now: Time) -> Result<Node, Errno> {
        let is_mine = self.me.user == 0 || self.me.user == node.user;
        let mut node = Node { times: [node.times[0], node.times[1], now], ..node.clone() };
        match what {
            Attributes::Mode(mode) if is_mine => {
                let is_member = self.me.user == 0 || self.me.is_in(node.group);
                let kept = if is_member { PERMISSIONS } else { PERMISSIONS & !SET_GROUP };
                node.mode = node.mode & !PERMISSIONS | mode & kept;
            }
            Attributes::Owner(user, group) if is_mine => {
                if user != u32::MAX {
                    if self.me.user != 0 && user != node.user {
                        return Err(Errno::PERM);
                    }
                    node.user = user;
                }
                if group != u32::MAX {
                    if self.me.user != 0 && group != node.group && !self.me.is_in(group) {
                        return Err(Errno::PERM);
                    }
                    node.group = group;
                }
                // Whom it is executed as is not handed over, by root neither.
                if !node.is_folder() {
                    node.mode = without_set_ids(node.mode);
                }
            }
            Attributes::Times(Times { accessed, modified }) if is_mine => {
                let given = [accessed, modified];
                for (time, (seconds, nanoseconds)) in node.times.iter_mut().zip(given) {
                    *time = match nanoseconds {
                        UTIME_OMIT => continue,
                        UTIME_NOW => now,
                        0..1_000_000_000 => {
                            (seconds, u32::try_from(nanoseconds).unwrap_or_default())
                        }
                        _ => return Err(Errno::INVAL),
                    };
                }
            }
            _ => return Err(Errno::PERM),
        }
        Ok(node)
    }
}

/// The set-group bit of a file that its group does not execute means something else.
const fn without_set_ids(mode: u32) -> u32 {
    let is_group = mode & GROUP_EXECUTES != 0;
    mode & !(SET_USER | if is_group { SET_GROUP } else { 0 })
}
