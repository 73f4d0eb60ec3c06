//! `vfork`: a child that uses this process's memory until it becomes another program.
//!
//! A program of much memory starts others by `vfork` because a `fork` would copy its page tables.
//! The child runs with the memory and the thread pointer of the thread that waits for it, and with
//! a copy of the descriptor table. Its calls are plain system calls: what they do to its numbers
//! must not be noted in the tables here.
//!
//! Where folders are remote a child may open what is in them, so it gets memory of its own.

use core::{arch::global_asm, sync::atomic::Ordering};

use client::{Client, thread};
use libc::pid_t;

use crate::{
    errno::answer,
    interpose::{interpose, next},
    kernel::outcome,
    process_client::{WAITING, Waiting, client, enter_vfork, leave_vfork},
};

interpose! { safe:
    // A jump: the child returns to the program, and the frame of a function would be gone.
    fn vfork|__vfork() -> pid_t {
        // SAFETY: the function below, which keeps to the C calling convention and takes nothing.
        unsafe { kakehi_vfork() }
    }
}

unsafe extern "C" {
    fn kakehi_vfork() -> pid_t;
}

// As in libc, the return address is in a register while both processes use the stack.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .text.kakehi_vfork, \"ax\", @progbits",
    ".globl kakehi_vfork",
    ".hidden kakehi_vfork",
    ".type kakehi_vfork, @function",
    "kakehi_vfork:",
    "sub rsp, 8",
    "call {before}",
    "add rsp, 8",
    "test eax, eax",
    "jz {fork}",
    "pop rdi",
    "mov eax, {number}",
    "syscall",
    "push rdi",
    "mov rdi, rax",
    "test rax, rax",
    "jnz {after}",
    "ret",
    ".popsection",
    before = sym before,
    fork = sym fork,
    after = sym after,
    number = const libc::SYS_vfork,
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".pushsection .text.kakehi_vfork, \"ax\", @progbits",
    ".globl kakehi_vfork",
    ".hidden kakehi_vfork",
    ".type kakehi_vfork, @function",
    "kakehi_vfork:",
    "stp x29, x30, [sp, -16]!",
    "bl {before}",
    "ldp x29, x30, [sp], 16",
    "cbnz w0, 1f",
    "b {fork}",
    "1:",
    "mov x0, {flags}",
    "mov x1, 0",
    "mov x8, {number}",
    "svc 0",
    "cbz x0, 2f",
    "b {after}",
    "2: ret",
    ".popsection",
    before = sym before,
    fork = sym fork,
    after = sym after,
    flags = const libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
    number = const libc::SYS_clone,
);

/// Before the child is made; 0: it has to be made by [`fork`].
extern "C" fn before() -> i32 {
    let opens_remote = client().is_some_and(Client::has_remote);
    i32::from(!opens_remote && begin())
}

/// Marks the calling thread as one whose child uses its memory, and gives the child real files.
/// False if too many threads wait already.
pub(crate) fn begin() -> bool {
    let own = WAITING.iter().find(|place| place.thread.load(Ordering::Relaxed) == thread());
    if let Some(place) = own {
        place.depth.fetch_add(1, Ordering::Relaxed);
        return true;
    }
    let Some(client) = client() else { return true };
    let take = |place: &&Waiting| {
        let order = Ordering::AcqRel;
        place.thread.compare_exchange(0, thread(), order, Ordering::Relaxed).is_ok()
    };
    let Some(place) = WAITING.iter().find(take) else { return false };
    client.before_fork();
    place.depth.store(1, Ordering::Relaxed);
    enter_vfork();
    true
}

/// The calling thread is back: the child is another program, or has ended, or none was made.
pub(crate) fn end() {
    let own = WAITING.iter().find(|place| place.thread.load(Ordering::Relaxed) == thread());
    let Some(place) = own else { return };
    if place.depth.fetch_sub(1, Ordering::Relaxed) > 1 {
        return;
    }
    place.thread.store(0, Ordering::Release);
    leave_vfork();
}

/// In the parent, with what the kernel returned.
extern "C" fn after(made: isize) -> pid_t {
    end();
    answer(outcome(made))
}

unsafe extern "C" fn fork() -> pid_t {
    // SAFETY: `fork` takes nothing; what it needs done before and after is registered.
    unsafe { next!(fork() -> pid_t) }
}
