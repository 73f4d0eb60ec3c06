//! `syscall()`: a program that makes system calls by number means the same files. Most are what the
//! function of their name is that stands before libc's: that is a table. A test fails where such a
//! function's number is missing here.
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "every arm hands its system call's own arguments on"
)]

use core::ptr::with_exposed_provenance_mut as pointer;

use libc::c_long;

use crate::{
    argument::{Argument, number as number_in},
    asynchronous, attributes, clone, confine,
    errno::{Value, answer, last},
    extended,
    interpose::interpose,
    kernel::{self, Outcome},
    limit, map, open, other_descriptors, path_attributes, poll, process_client, ring, sync,
};

interpose! {
    fn syscall(
        number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize,
    ) -> c_long {
        let args = [a, b, c, d, e, f];
        match process_client::client() {
            Some(_) => answer(call(number, args)),
            None => answer(kernel::call(number, args)),
        }
    }
}

/// Makes a function of a table: each call, and the function that serves it with which arguments.
macro_rules! table {
    (
        fn $name:ident(number, $registers:pat) or $other:path;
        $($call:ident => $module:ident::$function:ident($($argument:expr),*);)+
    ) => {
        /// # Safety
        ///
        /// The arguments are right for the system call.
        unsafe fn $name(number: c_long, args: [usize; 6]) -> Outcome {
            let $registers = args;
            // SAFETY: each takes the arguments of the system call of its name.
            unsafe {
                match number {
                    $(libc::$call => {
                        answered(crate::$module::$function($(Argument::of($argument)),*))
                    })+
                    _ => $other(number, args),
                }
            }
        }
    };
}

/// Turns a function's value into an outcome.
fn answered(value: impl Value) -> Outcome {
    match value.value() {
        -1 => Err(last()),
        value => Ok(value),
    }
}

/// Calls that answer something else than the function of their name, and those without one.
///
/// # Safety
///
/// The arguments are right for the system call.
unsafe fn call(number: c_long, args: [usize; 6]) -> Outcome {
    let [a, b, c, d, ..] = args;
    let fd = number_in(a);
    // SAFETY: each takes the program's own arguments, which are right for its call.
    unsafe {
        match number {
            libc::SYS_clone | libc::SYS_clone3 if clone::is_fork(number, args) => {
                clone::fork(number, args)
            }
            // A child of `vfork` would change this process's tables.
            #[cfg(target_arch = "x86_64")]
            libc::SYS_fork | libc::SYS_vfork => clone::fork(libc::SYS_fork, args),
            libc::SYS_openat2 => {
                open::open_how(fd, Argument::of(b), Argument::of(c), d).map(Value::value)
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_getdents => crate::folders::list(fd, || kernel::call(number, args)),
            libc::SYS_fadvise64 => {
                sync::advise(fd, Argument::of(b), Argument::of(c), Argument::of(d))
            }
            // Without a name it is about the descriptor.
            libc::SYS_utimensat if b == 0 => answered(attributes::futimens(fd, Argument::of(c))),
            kernel::SYS_fchmodat2 => answered(path_attributes::fchmodat(
                fd,
                Argument::of(b),
                Argument::of(c),
                Argument::of(d),
            )),
            libc::SYS_umask => answered(c_long::from(limit::umask(Argument::of(a)))),
            libc::SYS_setuid
            | libc::SYS_setgid
            | libc::SYS_setreuid
            | libc::SYS_setregid
            | libc::SYS_setresuid
            | libc::SYS_setresgid
            | libc::SYS_setgroups
            | libc::SYS_setfsuid
            | libc::SYS_setfsgid
            | libc::SYS_capset => confine::become_other(number, args),
            number if extended::AT_NUMBERS.contains(&number) => {
                extended::at(number, args, fd, Argument::of(b), Argument::of(c))
            }
            libc::SYS_signalfd4 => {
                other_descriptors::made(kernel::call(number, args)).map(Value::value)
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_signalfd => {
                other_descriptors::made(kernel::call(number, args)).map(Value::value)
            }
            libc::SYS_ppoll => poll::polled(number, args),
            libc::SYS_pselect6 => poll::selected(number, args),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => poll::polled(number, args),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => poll::selected(number, args),
            libc::SYS_mmap => map::call(args),
            libc::SYS_seccomp => confine::filter(number, args),
            confine::SYS_landlock_restrict_self => confine::restrict(number, args),
            libc::SYS_io_submit => asynchronous::submit(a, b, pointer(c)),
            libc::SYS_io_uring_setup => ring::set_up(a, pointer(b)),
            // Which files it is to work on stands in the ring.
            libc::SYS_io_uring_enter => {
                sync::drain_all();
                kernel::call(number, args)
            }
            _ => by_function(number, args),
        }
    }
}

table! {
    fn by_function(number, [a, b, c, d, e, f]) or by_old_function;
    SYS_accept => other_descriptors::accept(a, b, c);
    SYS_accept4 => other_descriptors::accept4(a, b, c, d);
    SYS_bind => names::bind(a, b, c);
    SYS_chdir => folders::chdir(a);
    SYS_chroot => folders::chroot(a);
    SYS_close => descriptor::close(a);
    SYS_close_range => descriptor::close_range(a, b, c);
    SYS_copy_file_range => copy::copy_file_range(a, b, c, d, e, f);
    SYS_dup => descriptor::dup(a);
    SYS_dup3 => descriptor::dup3(a, b, c);
    SYS_epoll_create1 => other_descriptors::epoll_create1(a);
    SYS_epoll_ctl => poll::epoll_ctl(a, b, c, d);
    SYS_eventfd2 => other_descriptors::eventfd(a, b);
    SYS_execve => process::execve(a, b, c);
    SYS_execveat => process::execveat(a, b, c, d, e);
    SYS_exit_group => process::_exit(a);
    SYS_faccessat => path_attributes::faccessat(a, b, c, 0);
    SYS_faccessat2 => path_attributes::faccessat(a, b, c, d);
    SYS_fallocate => sync::fallocate(a, b, c, d);
    SYS_fanotify_init => other_descriptors::fanotify_init(a, b);
    SYS_fchmod => attributes::fchmod(a, b);
    SYS_fchmodat => path_attributes::fchmodat(a, b, c, 0);
    SYS_fchown => attributes::fchown(a, b, c);
    SYS_fchownat => path_attributes::fchownat(a, b, c, d, e);
    SYS_fcntl => descriptor::fcntl(a, b, c);
    SYS_fdatasync => sync::fdatasync(a);
    SYS_fgetxattr => extended::fgetxattr(a, b, c, d);
    SYS_flistxattr => extended::flistxattr(a, b, c);
    SYS_flock => lock::flock(a, b);
    SYS_fremovexattr => extended::fremovexattr(a, b);
    SYS_fsetxattr => extended::fsetxattr(a, b, c, d, e);
    SYS_fstat => stat::fstat(a, b);
    SYS_fstatfs => folders::fstatfs(a, b);
    SYS_fsync => sync::fsync(a);
    SYS_ftruncate => sync::ftruncate(a, b);
    SYS_getdents64 => folders::getdents64(a, b, c);
    SYS_getxattr => extended::getxattr(a, b, c, d);
    SYS_inotify_add_watch => name_handles::inotify_add_watch(a, b, c);
    SYS_inotify_init1 => other_descriptors::inotify_init1(a);
    SYS_ioctl => ioctl::ioctl(a, b, c);
    SYS_lgetxattr => extended::lgetxattr(a, b, c, d);
    SYS_linkat => names::linkat(a, b, c, d, e);
    SYS_listxattr => extended::listxattr(a, b, c);
    SYS_llistxattr => extended::llistxattr(a, b, c);
    SYS_lremovexattr => extended::lremovexattr(a, b);
    SYS_lseek => position::lseek(a, b, c);
    SYS_lsetxattr => extended::lsetxattr(a, b, c, d, e);
    SYS_memfd_create => other_descriptors::memfd_create(a, b);
    SYS_mkdirat => names::mkdirat(a, b, c);
    SYS_mknodat => names::mknodat(a, b, c, d);
    SYS_name_to_handle_at => name_handles::name_to_handle_at(a, b, c, d, e);
    SYS_newfstatat => stat::fstatat(a, b, c, d);
    SYS_open_by_handle_at => other_descriptors::open_by_handle_at(a, b, c);
    SYS_open_tree => other_descriptors::open_tree(a, b, c);
    SYS_openat => open::openat(a, b, c, d);
    SYS_pidfd_getfd => descriptor::pidfd_getfd(a, b, c);
    SYS_pidfd_open => other_descriptors::pidfd_open(a, b);
    SYS_pipe2 => other_descriptors::pipe2(a, b);
    SYS_prctl => confine::prctl(a, b, c, d, e);
    SYS_pread64 => data::pread(a, b, c, d);
    // Two registers are for an offset, of which the first has all bits.
    SYS_preadv => vector::preadv(a, b, c, d);
    SYS_preadv2 => vector::preadv2(a, b, c, d, f);
    SYS_prlimit64 => limit::prlimit(a, b, c, d);
    SYS_pwrite64 => data::pwrite(a, b, c, d);
    SYS_pwritev => vector::pwritev(a, b, c, d);
    SYS_pwritev2 => vector::pwritev2(a, b, c, d, f);
    SYS_read => data::read(a, b, c);
    SYS_readahead => sync::readahead(a, b, c);
    SYS_readlinkat => path_attributes::readlinkat(a, b, c, d);
    SYS_readv => vector::readv(a, b, c);
    SYS_recvmmsg => message::recvmmsg(a, b, c, d, e);
    SYS_recvmsg => message::recvmsg(a, b, c);
    SYS_removexattr => extended::removexattr(a, b);
    SYS_renameat => names::renameat(a, b, c, d);
    SYS_renameat2 => names::renameat2(a, b, c, d, e);
    SYS_sendfile => copy::sendfile(a, b, c, d);
    SYS_sendmmsg => message::sendmmsg(a, b, c, d);
    SYS_sendmsg => message::sendmsg(a, b, c);
    SYS_setns => folders::setns(a, b);
    SYS_setrlimit => limit::setrlimit(a, b);
    SYS_setxattr => extended::setxattr(a, b, c, d, e);
    SYS_socket => other_descriptors::socket(a, b, c);
    SYS_socketpair => other_descriptors::socketpair(a, b, c, d);
    SYS_splice => copy::splice(a, b, c, d, e, f);
    SYS_statfs => folders::statfs(a, b);
    SYS_statx => stat::statx(a, b, c, d, e);
    SYS_symlinkat => names::symlinkat(a, b, c);
    SYS_sync => sync::sync();
    SYS_sync_file_range => sync::sync_file_range(a, b, c, d);
    SYS_syncfs => sync::syncfs(a);
    SYS_tee => copy::tee(a, b, c, d);
    SYS_timerfd_create => other_descriptors::timerfd_create(a, b);
    SYS_truncate => sync::truncate(a, b);
    SYS_unshare => folders::unshare(a);
    SYS_unlinkat => names::unlinkat(a, b, c);
    SYS_utimensat => path_attributes::utimensat(a, b, c, d);
    SYS_vmsplice => copy::vmsplice(a, b, c, d);
    SYS_write => data::write(a, b, c);
    SYS_writev => vector::writev(a, b, c);
}

#[cfg(target_arch = "x86_64")]
table! {
    fn by_old_function(number, [a, b, c, ..]) or kernel::call;
    SYS_access => path_attributes::access(a, b);
    SYS_chmod => path_attributes::chmod(a, b);
    SYS_chown => path_attributes::chown(a, b, c);
    SYS_creat => open::creat(a, b);
    SYS_dup2 => descriptor::dup2(a, b);
    SYS_epoll_create => other_descriptors::epoll_create(a);
    SYS_eventfd => other_descriptors::eventfd(a, 0);
    SYS_futimesat => attributes::futimesat(a, b, c);
    SYS_inotify_init => other_descriptors::inotify_init();
    SYS_lchown => path_attributes::lchown(a, b, c);
    SYS_link => names::link(a, b);
    SYS_lstat => stat::lstat(a, b);
    SYS_mkdir => names::mkdir(a, b);
    SYS_mknod => names::mknod(a, b, c);
    SYS_open => open::open(a, b, c);
    SYS_pipe => other_descriptors::pipe(a);
    SYS_readlink => path_attributes::readlink(a, b, c);
    SYS_rename => names::rename(a, b);
    SYS_rmdir => names::rmdir(a);
    SYS_stat => stat::stat(a, b);
    SYS_symlink => names::symlink(a, b);
    SYS_unlink => names::unlink(a);
    SYS_utime => path_attributes::utime(a, b);
    SYS_utimes => path_attributes::utimes(a, b);
}

/// Younger platforms have no such calls.
#[cfg(not(target_arch = "x86_64"))]
use kernel::call as by_old_function;
