//! System-call instructions in machine code: calls that no interposition sees.
//!
//! A heuristic, and reported as one. A call counts when its number is loaded as a constant shortly
//! before the instruction; without that, random bytes of a large program would look like calls. A
//! number computed elsewhere, as in `syscall(3)` itself, is missed.

use std::collections::BTreeMap;

/// How many bytes before the instruction its number may be loaded.
const WINDOW_LEN: usize = 32;

/// Calls on files, their numbers, and their names.
const CALLS: [(libc::c_long, &str); 39] = [
    (libc::SYS_read, "read"),
    (libc::SYS_write, "write"),
    (libc::SYS_readv, "readv"),
    (libc::SYS_writev, "writev"),
    (libc::SYS_pread64, "pread64"),
    (libc::SYS_pwrite64, "pwrite64"),
    (libc::SYS_preadv, "preadv"),
    (libc::SYS_pwritev, "pwritev"),
    (libc::SYS_preadv2, "preadv2"),
    (libc::SYS_pwritev2, "pwritev2"),
    (libc::SYS_openat, "openat"),
    (libc::SYS_openat2, "openat2"),
    (libc::SYS_close, "close"),
    (libc::SYS_lseek, "lseek"),
    (libc::SYS_fsync, "fsync"),
    (libc::SYS_ftruncate, "ftruncate"),
    (libc::SYS_sendfile, "sendfile"),
    (libc::SYS_splice, "splice"),
    (libc::SYS_copy_file_range, "copy_file_range"),
    (libc::SYS_io_submit, "io_submit"),
    (libc::SYS_io_uring_setup, "io_uring_setup"),
    (libc::SYS_io_uring_enter, "io_uring_enter"),
    (libc::SYS_fdatasync, "fdatasync"),
    (libc::SYS_fallocate, "fallocate"),
    (libc::SYS_dup, "dup"),
    (libc::SYS_dup3, "dup3"),
    (libc::SYS_fcntl, "fcntl"),
    (libc::SYS_newfstatat, "newfstatat"),
    (libc::SYS_statx, "statx"),
    (libc::SYS_renameat, "renameat"),
    (libc::SYS_renameat2, "renameat2"),
    (libc::SYS_unlinkat, "unlinkat"),
    (libc::SYS_mkdirat, "mkdirat"),
    (libc::SYS_linkat, "linkat"),
    (libc::SYS_symlinkat, "symlinkat"),
    (libc::SYS_readlinkat, "readlinkat"),
    (libc::SYS_faccessat, "faccessat"),
    (libc::SYS_fchmodat, "fchmodat"),
    (libc::SYS_utimensat, "utimensat"),
];

/// Calls found, and how many instructions make each.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sites(pub(crate) BTreeMap<&'static str, u32>);

impl Sites {
    pub(crate) fn merge(&mut self, other: Self) {
        for (name, count) in other.0 {
            *self.0.entry(name).or_default() += count;
        }
    }

    fn add(&mut self, number: u32) {
        let known = CALLS.iter().find(|(call, _)| *call == libc::c_long::from(number));
        if let Some((_, name)) = known {
            *self.0.entry(name).or_default() += 1;
        }
    }
}

/// The calls that `code`, of this machine's architecture, makes by itself.
pub(crate) fn scan(code: &[u8]) -> Sites {
    if cfg!(target_arch = "x86_64") {
        scan_x86_64(code)
    } else if cfg!(target_arch = "aarch64") {
        scan_aarch64(code)
    } else {
        Sites::default()
    }
}

/// `syscall` (0f 05), its number in `eax` by the last `mov eax, imm32` (b8).
///
/// `read`, whose number 0 is usually made by `xor eax, eax`, is missed: those two bytes are in
/// front of many calls, and took random bytes of ordinary programs for system calls.
fn scan_x86_64(code: &[u8]) -> Sites {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let mut sites = Sites::default();
    for (at, _) in code.windows(2).enumerate().filter(|(_, pair)| *pair == SYSCALL) {
        let window = code.get(at.saturating_sub(WINDOW_LEN)..at).unwrap_or_default();
        let number = (0..window.len()).rev().find_map(|start| match window.get(start..)? {
            [0xb8, a, b, c, d, ..] => Some(u32::from_le_bytes([*a, *b, *c, *d])),
            _ => None,
        });
        number.into_iter().for_each(|number| sites.add(number));
    }
    sites
}

/// `svc #0`, its number in `x8` by the last `mov x8, #imm16` or `mov w8, #imm16`.
fn scan_aarch64(code: &[u8]) -> Sites {
    const SVC: u32 = 0xd400_0001;
    const MOV_8: u32 = 0x5280_0008;
    const MOV_MASK: u32 = 0x7fe0_001f;
    const IMMEDIATE_SHIFT: u32 = 5;
    const IMMEDIATE_MASK: u32 = 0xffff;
    let words: Vec<_> =
        code.chunks_exact(4).filter_map(|word| word.first_chunk()).copied().collect();
    let words: Vec<_> = words.into_iter().map(u32::from_le_bytes).collect();
    let mut sites = Sites::default();
    for (at, _) in words.iter().enumerate().filter(|(_, word)| **word == SVC) {
        let window = words.get(at.saturating_sub(WINDOW_LEN / 4)..at).unwrap_or_default();
        let loaded = window.iter().rev().find(|word| **word & MOV_MASK == MOV_8);
        let number = loaded.map(|word| word >> IMMEDIATE_SHIFT & IMMEDIATE_MASK);
        number.into_iter().for_each(|number| sites.add(number));
    }
    sites
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_number_before_the_instruction_names_the_call() {
        let number = u8::try_from(libc::SYS_write).expect("small");
        let code = [0x90, 0xb8, number, 0, 0, 0, 0x89, 0xd7, 0x0f, 0x05, 0xc3];
        assert_eq!(scan_x86_64(&code), Sites([("write", 1)].into()));
        let word = 0xd280_0008_u32 | u32::from(number) << 5;
        let code = [word.to_le_bytes(), 0xd400_0001_u32.to_le_bytes()].concat();
        assert_eq!(scan_aarch64(&code), Sites([("write", 1)].into()));
    }

    #[test]
    fn calls_on_names_are_known() {
        for (number, name) in [(libc::SYS_renameat, "renameat"), (libc::SYS_unlinkat, "unlinkat")] {
            let [low, high, ..] = number.to_le_bytes();
            let code = [0xb8, low, high, 0, 0, 0x0f, 0x05];
            assert_eq!(scan_x86_64(&code), Sites([(name, 1)].into()));
        }
    }

    #[test]
    fn an_instruction_without_a_number_or_of_another_call_is_no_site() {
        assert_eq!(scan_x86_64(&[0x0f, 0x05]), Sites::default());
        let getpid = [0xb8, 39, 0, 0, 0, 0x0f, 0x05];
        assert_eq!(scan_x86_64(&getpid), Sites::default());
        assert_eq!(scan_aarch64(&0xd400_0001_u32.to_le_bytes()), Sites::default());
    }
}
