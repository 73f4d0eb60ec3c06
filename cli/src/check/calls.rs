//! The C library's calls that touch files, and what happens where one of them is not interposed.
//!
//! Which calls *are* interposed is not said here: the preload library's own symbol table says it.
//! Stream calls such as `fwrite` are missing on purpose: a delegated stream serves them all.

/// Calls with the same consequence.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) effect: &'static str,
    /// Separated by white space.
    names: &'static str,
}

/// The group of a call that touches files.
pub(super) fn group(name: &str) -> Option<&'static Group> {
    GROUPS.iter().find(|group| group.names.split_ascii_whitespace().any(|known| known == name))
}

/// The interposed call that serves a call which is not: one on a folder that Kakehi has opened, or
/// one around which handlers run.
pub(super) fn served_by(name: &str) -> Option<&'static str> {
    match name {
        "readdir" | "readdir64" | "readdir_r" | "readdir64_r" | "rewinddir" | "seekdir" => {
            Some("opendir")
        }
        "fork" | "__fork" => Some("__register_atfork"),
        _ => None,
    }
}

/// Calls of all groups, in their order.
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|group| group.names.split_ascii_whitespace())
}

/// Advice that applies to interposed calls, too.
pub(super) const WALKS: &str =
    "walks the real folders: correct, undelegated (a mapped folder is empty to it)";

pub(super) const GROUPS: [Group; 12] = [
    Group {
        effect: "files opened by it are the kernel's: correct, undelegated",
        names: "open open64 __open __open64 __open_2 __open64_2 openat openat64 __openat_2 \
            __openat64_2 openat2 creat creat64 mkstemp mkstemp64 mkostemp mkostemp64 mkstemps \
            mkstemps64 mkostemps mkostemps64 tmpfile tmpfile64 shm_open open_by_handle_at \
            open_tree fopen fopen64 fdopen freopen freopen64 _IO_fopen _IO_fdopen",
    },
    Group {
        effect: "bypasses Kakehi, undelegated, and may overtake what other calls have staged: give \
            files that have both the policy 'pass' (under 'delegate' it fails with EBADF)",
        names: "io_uring_queue_init io_uring_queue_init_params io_uring_queue_init_mem \
            io_uring_submit io_uring_submit_and_wait io_uring_setup io_uring_enter \
            io_uring_register io_setup io_submit io_getevents aio_read aio_read64 aio_write \
            aio_write64 aio_fsync aio_fsync64 lio_listio lio_listio64",
    },
    Group {
        effect: "goes to the kernel on the real descriptor, and may overtake what was staged in \
            the last 10 ms, or write over it (under the policy 'delegate' it fails with EBADF)",
        names: "read __read __read_chk write __write pread pread64 __pread64 __pread_chk \
            __pread64_chk pwrite pwrite64 __pwrite64 readv writev preadv preadv64 preadv2 \
            preadv64v2 pwritev pwritev64 pwritev2 pwritev64v2 dprintf __dprintf_chk vdprintf \
            __vdprintf_chk backtrace_symbols_fd lseek lseek64 __lseek llseek \
            sendfile sendfile64 splice tee vmsplice copy_file_range ftruncate ftruncate64 \
            truncate truncate64 fallocate fallocate64 posix_fallocate posix_fallocate64 mmap \
            mmap64 mremap msync fsync fdatasync sync syncfs sync_file_range",
    },
    Group {
        effect: "locks the real file, but data staged in the last 10 ms may not be in it yet",
        names: "flock lockf lockf64",
    },
    Group {
        effect: "Kakehi does not see that a descriptor changes: give these files the policy 'pass'",
        names: "close __close close_range closefrom dup dup2 __dup2 dup3 fcntl fcntl64 __fcntl \
            fclose fcloseall _IO_fclose ioctl",
    },
    Group {
        effect: "may miss what was staged in the last 10 ms, so a size may be too small",
        names: "stat stat64 lstat lstat64 fstat fstat64 __fstat64 fstatat fstatat64 statx __xstat \
            __xstat64 __lxstat __lxstat64 __fxstat __fxstat64 __fxstatat __fxstatat64",
    },
    Group {
        effect: "the kernel says what is ready: correct (under the policy 'delegate' a file is no \
            descriptor to it)",
        names: "poll __poll __poll_chk ppoll __ppoll_chk select __select pselect epoll_ctl isatty",
    },
    Group {
        effect: "acts on the real file or folder: correct, undelegated",
        names: "rename renameat renameat2 unlink unlinkat remove link linkat symlink symlinkat \
            readlink readlinkat __readlink_chk __readlinkat_chk mkdir mkdirat mkdtemp rmdir access \
            eaccess euidaccess faccessat chmod fchmod fchmodat lchmod chown fchown lchown \
            fchownat utime utimes lutimes futimes futimesat utimensat futimens statfs statfs64 \
            fstatfs fstatfs64 statvfs statvfs64 fstatvfs fstatvfs64 getxattr lgetxattr fgetxattr \
            setxattr lsetxattr fsetxattr listxattr llistxattr flistxattr removexattr \
            lremovexattr fremovexattr realpath __realpath_chk canonicalize_file_name opendir \
            fdopendir rewinddir seekdir closedir readdir readdir64 readdir_r readdir64_r scandir \
            scandir64 scandirat scandirat64 getdents64 getdirentries posix_fadvise \
            posix_fadvise64 readahead inotify_add_watch name_to_handle_at",
    },
    Group {
        effect: WALKS,
        names: "ftw ftw64 nftw nftw64 fts_open fts64_open fts_read fts64_read glob glob64",
    },
    Group {
        effect: "a library that was written in the last 10 ms may be too short to be loaded, and \
            one that is bound past Kakehi (RTLD_DEEPBIND) may overtake what was staged",
        names: "dlopen dlmopen",
    },
    Group {
        effect: "the next process may miss what was staged in the last 10 ms",
        names: "fork __fork vfork __vfork clone execve execv execvp execvpe execl execle execlp \
            fexecve execveat posix_spawn posix_spawnp pidfd_spawn pidfd_spawnp system popen daemon \
            _exit _Exit quick_exit",
    },
    Group {
        effect: "calls by number pass by Kakehi; most programs use it for other calls than files",
        names: "syscall",
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_call_has_one_consequence() {
        let mut known = BTreeSet::new();
        for name in all() {
            assert!(known.insert(name), "{name} is in two groups");
        }
        assert!(group("pwrite64").is_some() && group("fwrite").is_none());
    }

    #[test]
    fn walks_of_libc_are_told_to_miss_remote_files() {
        for name in ["glob", "ftw64", "nftw", "fts_open"] {
            let effect = group(name).expect("a call that touches files").effect;
            assert!(effect.contains("mapped folder"), "{name}: {effect}");
        }
    }
}
