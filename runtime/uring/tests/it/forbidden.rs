//! io_uring forbidden by a seccomp filter, as container runtimes do, or made to take nothing.

use std::thread;

use rustix::{
    io::Errno,
    pipe::{PipeFlags, pipe_with},
};
use uring::{Choice, File};

use crate::{
    engines::every_operation,
    support::{Core, buffer, dirs, poll},
};

#[test]
fn everything_works_with_io_uring_forbidden() {
    for errno in [Errno::PERM, Errno::NOSYS, Errno::ACCESS, Errno::NOMEM] {
        // The filter holds for the thread that installs it, and those it starts.
        let test = thread::spawn(move || {
            forbid(libc::SYS_io_uring_setup, errno);
            for choice in [Choice::Auto, Choice::Uring] {
                for dir in dirs() {
                    let mut core = Core::new(choice, 2);
                    let engines = core.engines.clone();
                    let why = engines.describe();
                    assert!(why.contains("io_uring is unavailable"), "{why}");
                    core.run(every_operation(engines.clone(), &dir)).expect("no error");
                    assert_eq!(engines.counters().ring, 0);
                    assert!(engines.counters().threads > 0);
                }
            }
        });
        test.join().expect("no panic");
    }
}

/// A kernel out of memory refuses entries. Nothing in flight is ever over.
#[test]
fn a_ring_that_takes_nothing_fills_up_and_no_more() {
    let test = thread::spawn(move || {
        let Some(mut core) = Core::with_ring() else { return };
        forbid(libc::SYS_io_uring_enter, Errno::AGAIN);
        let (read, _write) = pipe_with(PipeFlags::CLOEXEC).expect("descriptors");
        let file = File::new(read).expect("a pipe");
        let engines = core.engines.clone();
        let mut reads = Vec::new();
        for count in 1..1100 {
            let mut read = Box::pin(engines.read(&file, 0, buffer(b" ").into()));
            assert!(poll(read.as_mut()).is_pending());
            reads.push(read);
            if count == 1 {
                core.turn_a_while(); // The executor blocks with the first alone.
            }
        }
        assert_eq!(engines.counters().ring, 1023);
    });
    test.join().expect("no panic");
}

/// Makes a system call fail with `errno` in this thread.
fn forbid(call: libc::c_long, errno: Errno) {
    let errno = u32::try_from(errno.raw_os_error()).expect("positive");
    let nr = u32::try_from(call).expect("positive");
    let statement = |code: u32, jt, jf, k| libc::sock_filter {
        code: u16::try_from(code).expect("16 bits"),
        jt,
        jf,
        k,
    };
    let mut filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0), // The system call's number.
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, nr),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    rustix::thread::set_no_new_privs(true).expect("always allowed");
    // SAFETY: `program` points to four statements, which the kernel copies before it returns.
    let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
