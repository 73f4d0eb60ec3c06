// System calls by number on files, folders, and descriptors, and what they come to; with a folder,
// only what can be done with remote files, and there.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

extern char **environ;

// What programs call that were compiled with checks.
char *__getcwd_chk(char *buffer, size_t len, size_t room);
ssize_t __readlinkat_chk(int dir, const char *path, char *buffer, size_t len, size_t room);

static long said(const char *what, long value) {
    if (value < 0) printf("%s: %s\n", what, strerror(errno));
    else printf("%s: %ld\n", what, value);
    return value;
}

static int made(const char *name, const char *text) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    write(fd, text, strlen(text));
    return fd;
}

static void show(const char *name) {
    char all[256];
    int fd = open(name, O_RDONLY);
    ssize_t len = fd < 0 ? -1 : read(fd, all, sizeof all);
    said(name, len);
    if (len > 0) printf("[%.*s]\n", (int)len, all);
    close(fd);
}

// As programs do for the sake of C libraries that are too old for a call.
ssize_t preadv2(int fd, const struct iovec *list, int count, off_t at, int flags) {
    return syscall(SYS_preadv2, fd, list, count, at, 0L, flags);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    return syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

static void by_functions_of_its_own(void) {
    char got[8] = "";
    struct iovec all = {got, sizeof got};
    int fd = made("owned", "own");
    said("own", preadv2(fd, &all, 1, 0, 0));
    printf("%s\n", got);
    said("own", renameat2(AT_FDCWD, "owned", AT_FDCWD, "renamed", 0));
    close(fd);
}

static void advised(void) {
    int ends[2], fd = made("advised", "advised");
    said("advise", syscall(SYS_fadvise64, fd, 0L, 0L, POSIX_FADV_DONTNEED));
    said("size", lseek(fd, 0, SEEK_END));
    close(fd);
    syscall(SYS_pipe2, ends, 0);
    said("advise a pipe", syscall(SYS_fadvise64, ends[0], 0L, 0L, POSIX_FADV_NORMAL));
    close(ends[0]);
    close(ends[1]);
}

static int names_in(int dir, int by_number) {
    static char room[4096];
    int count = 0;
    for (;;) {
        long len = by_number ? syscall(SYS_getdents64, dir, room, sizeof room)
                             : getdents64(dir, room, sizeof room);
        if (len <= 0) return len < 0 ? -1 : count;
        for (long at = 0; at < len; at += ((struct dirent64 *)(room + at))->d_reclen) count++;
    }
}

// A folder that is listed again has what came and went meanwhile.
static void listed(void) {
    mkdir("listed", 0755);
    close(made("listed/first", "1"));
    int dir = open("listed", O_RDONLY | O_DIRECTORY);
    for (int by_number = 0; by_number < 2; by_number++) {
        said("names", names_in(dir, by_number));
        close(made("listed/second", "22"));
        said("names at the end", names_in(dir, by_number));
        lseek(dir, 0, SEEK_SET);
        said("names again", names_in(dir, by_number));
        unlink("listed/second");
        lseek(dir, 0, SEEK_SET);
    }
    said("names of a file", names_in(made("listed/first", ""), 1));
    close(dir);
}

static const char *base(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// What names the current folder fits a buffer that its name as the program knows it fits.
static void entered(const char *folder) {
    char name[4096] = "", *got = name;
    size_t len = strlen(folder) + sizeof "/entered/within";
    mkdir("entered", 0755);
    mkdir("entered/within", 0755);
    int here = open(".", O_RDONLY | O_DIRECTORY);
    said("enter", syscall(SYS_chdir, "entered/within"));
    said("name fits", syscall(SYS_getcwd, name, len) == (long)len);
    printf("%d %s\n", strncmp(name, folder, strlen(folder)), base(name));
    said("no room", syscall(SYS_getcwd, name, len - 1));
    memset(name, 0, sizeof name);
    said("name fits", getcwd(name, len) == name);
    printf("%d %s\n", strncmp(name, folder, strlen(folder)), base(name));
    said("no room", getcwd(name, len - 1) ? 0 : -1);
    said("checked", __getcwd_chk(name, len, sizeof name) == name);
    printf("%d %s\n", strncmp(name, folder, strlen(folder)), base(name));
    said("no length", getcwd(name, 0) ? 0 : -1);
    got = getcwd(NULL, 0);
    printf("%d %s\n", strncmp(got, folder, strlen(folder)), base(got));
    free(got);
    said("leave", syscall(SYS_fchdir, here));
    said("name", syscall(SYS_getcwd, name, sizeof name) == (long)strlen(folder) + 1);
    close(here);
}

static int same(const struct statfs *a, const struct statfs *b) {
    return a->f_type == b->f_type && a->f_blocks == b->f_blocks && a->f_flags == b->f_flags;
}

static void file_system(void) {
    struct statfs by_name, other;
    struct statvfs other_form;
    int here = open(".", O_RDONLY | O_DIRECTORY);
    statfs(".", &by_name);
    said("statfs", syscall(SYS_statfs, ".", &other));
    said("same", same(&by_name, &other));
    said("fstatfs", syscall(SYS_fstatfs, here, &other));
    said("same", same(&by_name, &other));
    said("fstatfs", fstatfs(here, &other));
    said("same", same(&by_name, &other));
    said("fstatvfs", fstatvfs(here, &other_form));
    said("same", other_form.f_blocks == by_name.f_blocks);
    close(here);
}

// After what was written, which would change the time once more.
static void dated(void) {
    struct stat status;
#ifdef SYS_futimesat
    struct timeval times[2] = {{1000, 1}, {2000, 2}};
    int here = open(".", O_RDONLY | O_DIRECTORY);
    for (int way = 0; way < 3; way++) {
        int fd = made("dated", "dated");
        said("dated", way == 0   ? syscall(SYS_futimesat, here, "dated", times)
                      : way == 1 ? syscall(SYS_futimesat, fd, NULL, times)
                                 : futimesat(AT_FDCWD, "dated", times));
        close(fd);
        stat("dated", &status);
        said("modified", status.st_mtim.tv_sec * 1000000 + status.st_mtim.tv_nsec / 1000);
    }
    close(here);
#endif
    (void)status;
}

static void permitted(void) {
    struct stat status;
    int fd = made("permitted", "permitted");
    // EINVAL where there is such a call.
    syscall(SYS_fchmodat2, AT_FDCWD, "permitted", 0600, -1);
    if (errno != ENOSYS) {
        said("mode", syscall(SYS_fchmodat2, AT_FDCWD, "permitted", 0600, AT_SYMLINK_NOFOLLOW));
        stat("permitted", &status);
        said("mode", status.st_mode);
        said("mode by number", syscall(SYS_fchmodat2, fd, "", 0640, AT_EMPTY_PATH));
        fstat(fd, &status);
        said("mode", status.st_mode);
    }
    said("mode", syscall(SYS_fchmodat, AT_FDCWD, "permitted", 0444));
    said("owner", syscall(SYS_fchownat, AT_FDCWD, "permitted", -1, -1, 0));
    said("access", syscall(SYS_faccessat, AT_FDCWD, "permitted", R_OK));
    said("access", syscall(SYS_faccessat2, AT_FDCWD, "none", R_OK, AT_EACCESS));
    close(fd);
}

static void named(void) {
    char text[16] = "";
    said("folder", syscall(SYS_mkdirat, AT_FDCWD, "folder", 0755));
    said("link", syscall(SYS_symlinkat, "permitted", AT_FDCWD, "folder/link"));
    said("text", syscall(SYS_readlinkat, AT_FDCWD, "folder/link", text, sizeof text));
    printf("%s\n", text);
    said("checked", __readlinkat_chk(AT_FDCWD, "folder/link", text, sizeof text, sizeof text));
    said("second name", syscall(SYS_linkat, AT_FDCWD, "permitted", AT_FDCWD, "folder/name", 0));
    said("remove", syscall(SYS_unlinkat, AT_FDCWD, "folder/link", 0));
    said("remove", syscall(SYS_unlinkat, AT_FDCWD, "folder", AT_REMOVEDIR));
    said("remove", syscall(SYS_unlinkat, AT_FDCWD, "folder/name", 0));
    said("remove", syscall(SYS_unlinkat, AT_FDCWD, "folder", AT_REMOVEDIR));
#ifdef SYS_mknod
    said("folder", syscall(SYS_mkdir, "folder", 0700));
    said("link", syscall(SYS_symlink, "permitted", "folder/link"));
    said("text", syscall(SYS_readlink, "folder/link", text, sizeof text));
    said("second name", syscall(SYS_link, "permitted", "folder/name"));
    said("mode", syscall(SYS_chmod, "folder/name", 0400));
    said("access", syscall(SYS_access, "folder/name", F_OK));
    said("remove", syscall(SYS_unlink, "folder/link"));
    said("remove", syscall(SYS_unlink, "folder/name"));
    said("remove", syscall(SYS_rmdir, "folder"));
#endif
}

enum { SETXATTRAT = 463 }; // Those that get, list, and remove follow.

// Servers keep none of these.
static void special(void) {
    char text[16] = "";
    said("set", syscall(SYS_setxattr, "permitted", "user.a", "value", 5L, 0));
    said("get", syscall(SYS_getxattr, "permitted", "user.a", text, sizeof text));
    said("list", syscall(SYS_listxattr, "permitted", text, sizeof text));
    said("remove", syscall(SYS_removexattr, "permitted", "user.a"));
    said("get", syscall(SYS_lgetxattr, "permitted", "user.a", text, sizeof text));
    said("set", syscall(SYS_lsetxattr, "permitted", "user.b", "value", 5L, 0));
    said("list", syscall(SYS_llistxattr, "permitted", text, sizeof text));
    said("remove", syscall(SYS_lremovexattr, "permitted", "user.b"));
    struct { unsigned long place; unsigned len, flags; } value = {(long)"value", 5, 0};
    said("set at", syscall(SETXATTRAT, AT_FDCWD, "permitted", 0, "user.c", &value, sizeof value));
    value.place = (long)text, value.len = sizeof text;
    said("get at", syscall(SETXATTRAT + 1, AT_FDCWD, "permitted", 0, "user.c", &value, sizeof value));
    said("list at", syscall(SETXATTRAT + 2, AT_FDCWD, "permitted", 0, text, sizeof text));
    said("remove at", syscall(SETXATTRAT + 3, AT_FDCWD, "permitted", 0, "user.c"));
    int fd = open("permitted", O_RDONLY | O_CLOEXEC), folder = open(".", O_RDONLY | O_DIRECTORY);
    said("list of a number", syscall(SETXATTRAT + 2, fd, "", AT_EMPTY_PATH, text, sizeof text));
    said("set of a folder", fsetxattr(folder, "user.d", "value", 5, 0));
    said("remove of a folder", fremovexattr(folder, "user.d"));
    close(fd);
    close(folder);
    said("fifo", syscall(SYS_mknodat, AT_FDCWD, "fifo", S_IFIFO | 0600, 0));
#ifdef SYS_mknod
    said("fifo", syscall(SYS_mknod, "other fifo", S_IFIFO | 0600, 0));
#endif
    said("fifo", mkfifoat(AT_FDCWD, "third fifo", 0600));
    said("fifo", mknodat(AT_FDCWD, "fourth fifo", S_IFIFO | 0600, 0));
    struct { struct file_handle head; char room[MAX_HANDLE_SZ]; } handle = {.head = {MAX_HANDLE_SZ, 0}};
    int mount, watches = inotify_init1(IN_CLOEXEC);
    said("handle", name_to_handle_at(AT_FDCWD, "permitted", &handle.head, &mount, 0));
    handle.head.handle_bytes = MAX_HANDLE_SZ;
    said("handle", syscall(SYS_name_to_handle_at, AT_FDCWD, ".", &handle, &mount, 0));
    said("watch", inotify_add_watch(watches, "permitted", IN_MODIFY));
    said("watch", syscall(SYS_inotify_add_watch, watches, ".", IN_CREATE));
    close(watches);
    const char *made[] = {"fifo", "other fifo", "third fifo", "fourth fifo"};
    for (int i = 0; i < 4; i++) unlink(made[i]);
}

// A program that is started finds what was written, whatever its environment.
static void started(void) {
    char *list[] = {"cat", "started", NULL}, *none[] = {NULL};
    for (int way = 0; way < 3; way++) {
        fflush(stdout);
#ifdef SYS_fork
        pid_t child = way ? fork() : syscall(SYS_fork);
#else
        pid_t child = fork();
#endif
        if (!child) {
            int cat = open("/bin/cat", O_PATH | O_CLOEXEC);
            write(made("started", ""), "started\n", 8);
            if (way == 0) syscall(SYS_execveat, AT_FDCWD, "/bin/cat", list, environ, 0);
            if (way == 1) syscall(SYS_execveat, cat, "", list, none, AT_EMPTY_PATH);
            if (way == 2) syscall(SYS_execve, "/bin/cat", list, none);
            _exit(1);
        }
        int status;
        waitpid(child, &status, 0);
        said("started", status);
    }
}

static void pass_on(int end, int fd) {
    union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(int))]; } control;
    struct iovec data = {"x", 1};
    struct msghdr message = {NULL, 0, &data, 1, &control, sizeof control, 0};
    control.head = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
    said("send", syscall(SYS_sendmsg, end, &message, 0));
}

static int received(int end) {
    union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(int))]; } control;
    char byte;
    struct iovec data = {&byte, 1};
    struct msghdr message = {NULL, 0, &data, 1, &control, sizeof control, 0};
    int fd;
    said("receive", syscall(SYS_recvmsg, end, &message, 0));
    memcpy(&fd, CMSG_DATA(&control.head), sizeof fd);
    return fd;
}

static void passed_on(int writes) {
    char got[16] = "";
    int ends[2], fd = made("passed", "passed");
    if (!writes) {
        close(fd);
        fd = open("passed", O_RDONLY);
    }
    syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, ends);
    pass_on(ends[0], fd);
    int other = received(ends[1]);
    if (writes) {
        said("write", write(other, " on", 3));
        said("write", write(fd, "!", 1));
    }
    said("read", pread(other, got, sizeof got, 0));
    printf("%s\n", got);
    close(other);
    close(fd);
    close(ends[0]);
    close(ends[1]);
    show("passed");
}

// Past every library.
static long past(long number, long a, long b, long c) {
#if defined __x86_64__
    long answer;
    __asm__ volatile("syscall" : "=a"(answer) : "0"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return answer;
#elif defined __aarch64__
    register long call __asm__("x8") = number, first __asm__("x0") = a, second __asm__("x1") = b;
    register long third __asm__("x2") = c;
    __asm__ volatile("svc 0" : "+r"(first) : "r"(call), "r"(second), "r"(third) : "memory");
    return first;
#endif
}

// Before the kernel looks into a ring, the files that may stand in it have what was written.
static void asked_by_a_ring(void) {
    char got[16] = "";
    int fd = made("ring", "before the ring");
    long other = past(SYS_openat, AT_FDCWD, (long)"ring", O_RDONLY);
    said("enter", syscall(SYS_io_uring_enter, -1, 0, 0, 0, NULL, 0L) < 0);
    said("read", past(SYS_read, other, (long)got, sizeof got));
    printf("%s\n", got);
    past(SYS_close, other, 0, 0);
    close(fd);
}

// A number that was a file's until it was closed where nobody saw it is what it is now.
static void numbers_again(void) {
    char got[8] = "";
    int ends[2], others[2], fd = made("again", "again");
    fsync(fd);
    past(SYS_close, fd, 0, 0);
    said("pair", syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends));
    said("again", ends[0] == fd);
    said("write", write(ends[0], "talk", 4));
    said("read", read(ends[1], got, sizeof got));
    printf("%s\n", got);

    syscall(SYS_pipe2, others, O_NONBLOCK);
    pass_on(ends[0], others[1]);
    fd = made("again", "again");
    fsync(fd);
    past(SYS_close, fd, 0, 0);
    int other = received(ends[1]);
    said("again", other == fd);
    said("write", write(other, "pipe", 4));
    said("read", read(others[0], got, sizeof got));
    printf("%s\n", got);
    close_range(ends[0], other, 0);
    show("again");
}

int main(int argc, char **argv) {
    char folder[4096];
    if (argc > 1 && chdir(argv[1]) < 0) return 1;
    if (!getcwd(folder, sizeof folder)) return 1;
    umask(022);
    by_functions_of_its_own();
    advised();
    listed();
    entered(folder);
    file_system();
    dated();
    permitted();
    named();
    started();
    passed_on(0);
    if (argc > 1) {
        printf("special\n");
        special();
    } else {
        special();
        passed_on(1);
        asked_by_a_ring();
        numbers_again();
    }
    return 0;
}
