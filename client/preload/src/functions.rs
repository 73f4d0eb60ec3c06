//! System calls by number that libc has a function for, of the same name and arguments: each is
//! what that function is, before which ours stands.
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one table: every arm hands its system call's own arguments on"
)]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "a register holds an argument's bits, and the kernel looks at as many as its type has"
)]

use core::ptr::with_exposed_provenance_mut as pointer;

use libc::{c_int, c_long, c_uint, c_ulong, off_t};

use crate::{
    asynchronous, descriptor,
    errno::{Value as _, last},
    kernel::{self, Outcome},
    open, poll,
    sync::drain_all,
};

/// # Safety
///
/// The arguments are right for the system call.
pub(crate) unsafe fn call(number: c_long, args: [usize; 6]) -> Outcome {
    let [a, b, c, d, e, f] = args;
    let fd = a as c_int;
    // SAFETY: each takes the arguments of the system call of its name.
    let value = unsafe {
        match number {
            // Registers d and e hold an offset, of which d has all 64 bits.
            libc::SYS_preadv2 => {
                libc::preadv2(fd, pointer(b), c as c_int, d as off_t, f as c_int).value()
            }
            libc::SYS_pwritev2 => {
                libc::pwritev2(fd, pointer(b), c as c_int, d as off_t, f as c_int).value()
            }
            libc::SYS_fallocate => libc::fallocate(fd, b as c_int, c as off_t, d as off_t).value(),
            libc::SYS_mmap => {
                let (protection, flags) = (c as c_int, d as c_int);
                libc::mmap(pointer(a), b, protection, flags, e as c_int, f as off_t)
                    .expose_provenance()
                    .value()
            }
            libc::SYS_sync_file_range => {
                libc::sync_file_range(fd, b as off_t, c as off_t, d as c_uint).value()
            }
            libc::SYS_sync => {
                libc::sync();
                0
            }
            libc::SYS_syncfs => libc::syncfs(fd).value(),
            libc::SYS_readahead => libc::readahead(fd, b as off_t, c).value(),
            libc::SYS_sendmsg => libc::sendmsg(fd, pointer(b), c as c_int).value(),
            libc::SYS_recvmsg => libc::recvmsg(fd, pointer(b), c as c_int).value(),
            libc::SYS_fchmod => libc::fchmod(fd, b as c_uint).value(),
            libc::SYS_fchown => libc::fchown(fd, b as c_uint, c as c_uint).value(),
            libc::SYS_truncate => libc::truncate(pointer(a), b as off_t).value(),
            libc::SYS_statfs => libc::statfs(pointer(a), pointer(b)).value(),
            libc::SYS_chdir => libc::chdir(pointer(a)).value(),
            libc::SYS_execveat => {
                libc::execveat(fd, pointer(b), pointer(c), pointer(d), e as c_int).value()
            }
            libc::SYS_sendmmsg => libc::sendmmsg(fd, pointer(b), c as c_uint, d as c_int).value(),
            libc::SYS_recvmmsg => {
                let (count, flags) = (c as c_uint, d as c_int);
                libc::recvmmsg(fd, pointer(b), count, flags, pointer(e)).value()
            }
            libc::SYS_ioctl => libc::ioctl(fd, b as c_ulong, c).value(),
            libc::SYS_ppoll => return poll::polled(number, args),
            libc::SYS_pselect6 => return poll::selected(number, args),
            libc::SYS_epoll_ctl => libc::epoll_ctl(fd, b as c_int, c as c_int, pointer(d)).value(),
            libc::SYS_fsetxattr => {
                libc::fsetxattr(fd, pointer(b), pointer(c), d, e as c_int).value()
            }
            libc::SYS_fgetxattr => libc::fgetxattr(fd, pointer(b), pointer(c), d).value(),
            libc::SYS_flistxattr => libc::flistxattr(fd, pointer(b), c).value(),
            libc::SYS_fremovexattr => libc::fremovexattr(fd, pointer(b)).value(),
            libc::SYS_io_submit => return asynchronous::submit(a, b, pointer(c)),
            libc::SYS_io_uring_setup => return asynchronous::set_up(a, pointer(b)),
            // Which files it is to work on stands in the ring.
            libc::SYS_io_uring_enter => {
                drain_all();
                return kernel::call(number, args);
            }
            libc::SYS_pidfd_getfd => {
                return descriptor::copy_from(fd, b as c_int, c as c_uint).map(|new| new as isize);
            }
            libc::SYS_open_by_handle_at => {
                libc::open_by_handle_at(fd, pointer(b), c as c_int).value()
            }
            libc::SYS_openat2 => {
                return open::open_how(fd, pointer(b), pointer(c), d).map(|new| new as isize);
            }
            _ => return by_name(number, args),
        }
    };
    outcome(value)
}

/// Calls that take a name and the folder from where it counts.
///
/// # Safety
///
/// As [`call`].
unsafe fn by_name(number: c_long, args: [usize; 6]) -> Outcome {
    let [a, b, c, d, e, _] = args;
    let dir = a as c_int;
    // SAFETY: each takes the arguments of the system call of its name.
    let value = unsafe {
        match number {
            libc::SYS_mkdirat => libc::mkdirat(dir, pointer(b), c as c_uint).value(),
            libc::SYS_unlinkat => libc::unlinkat(dir, pointer(b), c as c_int).value(),
            libc::SYS_renameat => libc::renameat(dir, pointer(b), c as c_int, pointer(d)).value(),
            libc::SYS_linkat => {
                libc::linkat(dir, pointer(b), c as c_int, pointer(d), e as c_int).value()
            }
            libc::SYS_symlinkat => libc::symlinkat(pointer(a), b as c_int, pointer(c)).value(),
            libc::SYS_readlinkat => libc::readlinkat(dir, pointer(b), pointer(c), d).value(),
            libc::SYS_faccessat => libc::faccessat(dir, pointer(b), c as c_int, 0).value(),
            libc::SYS_faccessat2 => {
                libc::faccessat(dir, pointer(b), c as c_int, d as c_int).value()
            }
            libc::SYS_fchmodat => libc::fchmodat(dir, pointer(b), c as c_uint, 0).value(),
            libc::SYS_fchownat => {
                let (owner, group) = (c as c_uint, d as c_uint);
                libc::fchownat(dir, pointer(b), owner, group, e as c_int).value()
            }
            // Without a name it is about the descriptor, as `futimens` is.
            libc::SYS_utimensat if b == 0 => libc::futimens(dir, pointer(c)).value(),
            libc::SYS_utimensat => libc::utimensat(dir, pointer(b), pointer(c), d as c_int).value(),
            _ => return by_plain_name(number, args),
        }
    };
    outcome(value)
}

/// Calls that younger platforms do not have: most take nothing but a name.
///
/// # Safety
///
/// As [`call`].
#[cfg(target_arch = "x86_64")]
unsafe fn by_plain_name(number: c_long, args: [usize; 6]) -> Outcome {
    let [a, b, c, ..] = args;
    // SAFETY: each takes the arguments of the system call of its name.
    let value = unsafe {
        match number {
            libc::SYS_poll => return poll::polled(number, args),
            libc::SYS_select => return poll::selected(number, args),
            libc::SYS_creat => libc::creat(pointer(a), b as c_uint).value(),
            libc::SYS_stat => libc::stat(pointer(a), pointer(b)).value(),
            libc::SYS_lstat => libc::lstat(pointer(a), pointer(b)).value(),
            libc::SYS_access => libc::access(pointer(a), b as c_int).value(),
            libc::SYS_mkdir => libc::mkdir(pointer(a), b as c_uint).value(),
            libc::SYS_rmdir => libc::rmdir(pointer(a)).value(),
            libc::SYS_unlink => libc::unlink(pointer(a)).value(),
            libc::SYS_rename => libc::rename(pointer(a), pointer(b)).value(),
            libc::SYS_link => libc::link(pointer(a), pointer(b)).value(),
            libc::SYS_symlink => libc::symlink(pointer(a), pointer(b)).value(),
            libc::SYS_readlink => libc::readlink(pointer(a), pointer(b), c).value(),
            libc::SYS_chmod => libc::chmod(pointer(a), b as c_uint).value(),
            libc::SYS_chown => libc::chown(pointer(a), b as c_uint, c as c_uint).value(),
            libc::SYS_lchown => libc::lchown(pointer(a), b as c_uint, c as c_uint).value(),
            libc::SYS_utime => libc::utime(pointer(a), pointer(b)).value(),
            libc::SYS_utimes => libc::utimes(pointer(a), pointer(b)).value(),
            _ => return kernel::call(number, args),
        }
    };
    outcome(value)
}

#[cfg(not(target_arch = "x86_64"))]
use kernel::call as by_plain_name;

/// What a function has answered.
fn outcome(value: isize) -> Outcome {
    if value == -1 { Err(last()) } else { Ok(value) }
}
