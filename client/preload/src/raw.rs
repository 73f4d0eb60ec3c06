//! `syscall()`: a program that makes system calls by number means the same files.

use core::ptr::with_exposed_provenance_mut as pointer;

use libc::{c_int, c_long, c_uint};

use crate::{
    bits::unsigned,
    clone, copy, data, descriptor,
    errno::answer,
    functions,
    interpose::interpose,
    kernel::{self, Outcome},
    limit, lock, names, open, position, process, start, stat, sync, vector,
};

interpose! {
    fn syscall(
        number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize,
    ) -> c_long {
        if start::client().is_none() {
            return answer(kernel::call(number, [a, b, c, d, e, f]));
        }
        answer(dispatch(number, [a, b, c, d, e, f]))
    }
}

/// # Safety
///
/// The arguments are right for the system call.
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one table: every arm hands its system call's own arguments on"
)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "a register holds an argument's bits, and the kernel looks at as many as its type has"
)]
unsafe fn dispatch(number: c_long, args: [usize; 6]) -> Outcome {
    let [a, b, c, d, ..] = args;
    let fd = a as c_int;
    // SAFETY: each takes the arguments of the system call of its name.
    unsafe {
        match number {
            libc::SYS_read => data::read_into(fd, pointer(b), c),
            libc::SYS_write => data::write_from(fd, pointer(b), c),
            libc::SYS_pread64 => data::read_into_at(fd, pointer(b), c, d as i64),
            libc::SYS_pwrite64 => data::write_from_at(fd, pointer(b), c, d as i64),
            libc::SYS_readv => vector::read(fd, pointer(b), c as c_int, None),
            libc::SYS_writev => vector::write(fd, pointer(b), c as c_int, None),
            libc::SYS_preadv => vector::read(fd, pointer(b), c as c_int, Some(d as i64)),
            libc::SYS_pwritev => vector::write(fd, pointer(b), c as c_int, Some(d as i64)),
            libc::SYS_lseek => position::seek(fd, b as i64, c as c_int),
            libc::SYS_close => descriptor::close_number(fd),
            libc::SYS_close_range => {
                descriptor::close_numbers(unsigned(fd), b as c_uint, c as c_int)
            }
            libc::SYS_dup => descriptor::copy_number(fd).map(|new| new as isize),
            libc::SYS_dup3 => {
                descriptor::duplicate(fd, b as c_int, c as c_int).map(|new| new as isize)
            }
            libc::SYS_flock => lock::whole(fd, b as c_int),
            libc::SYS_fcntl => descriptor::control(fd, b as c_int, c).map(|value| value as isize),
            libc::SYS_fsync => sync::make_durable(fd, false),
            libc::SYS_fdatasync => sync::make_durable(fd, true),
            libc::SYS_ftruncate => sync::set_size(fd, b as i64),
            libc::SYS_sendfile => {
                copy::by_kernel(b as c_int, c != 0, fd, || kernel::call(number, args))
            }
            libc::SYS_splice | libc::SYS_copy_file_range => {
                copy::by_kernel(fd, b != 0, c as c_int, || kernel::call(number, args))
            }
            libc::SYS_setrlimit => limit::changed(a as c_uint, kernel::call(number, args)),
            libc::SYS_prlimit64 => limit::changed(b as c_uint, kernel::call(number, args)),
            libc::SYS_execve => process::execute(pointer(a), pointer(b), pointer(c)),
            libc::SYS_exit_group => {
                process::exiting();
                kernel::call(number, args)
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => descriptor::duplicate_over(fd, b as c_int).map(|new| new as isize),
            _ if clone::is_fork(number, args) => clone::fork(number, args),
            _ => by_name(number, args),
        }
    }
}

/// Calls that take a name, and those that say of a file what those say by its name.
///
/// # Safety
///
/// As [`dispatch`].
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one table: every arm hands its system call's own arguments on"
)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "a register holds an argument's bits, and the kernel looks at as many as its type has"
)]
unsafe fn by_name(number: c_long, args: [usize; 6]) -> Outcome {
    let [a, b, c, d, e, _] = args;
    let dir = a as c_int;
    // SAFETY: each takes the arguments of the system call of its name.
    unsafe {
        match number {
            libc::SYS_openat => {
                open::open_at(dir, pointer(b), c as c_int, d as c_uint).map(|new| new as isize)
            }
            libc::SYS_fstat => stat::stat_number(dir, pointer(b)),
            libc::SYS_newfstatat => stat::stat_at(dir, pointer(b), pointer(c), d as c_int),
            libc::SYS_statx => stat::statx_at(dir, pointer(b), c as c_int, d as c_uint, pointer(e)),
            libc::SYS_renameat2 => {
                names::rename_at((dir, pointer(b)), (c as c_int, pointer(d)), e as c_uint)
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => open::open_at(libc::AT_FDCWD, pointer(a), b as c_int, c as c_uint)
                .map(|new| new as isize),
            _ => functions::call(number, args),
        }
    }
}
