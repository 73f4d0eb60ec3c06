// What programs seldom do with files, and what it comes to; with a folder, only what can be done
// with remote files, and there.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static long said(const char *what, long value) {
    if (value < 0) printf("%s: %s\n", what, strerror(errno));
    else printf("%s: %ld\n", what, value);
    return value;
}

static void show(const char *name) {
    char all[256];
    int fd = open(name, O_RDONLY);
    ssize_t len = fd < 0 ? -1 : read(fd, all, sizeof all);
    said(name, len);
    if (len > 0) printf("[%.*s]\n", (int)len, all);
    close(fd);
}

// Reads on where the last append ended, whatever others have appended since.
static void reading_on(const char *name, int again) {
    char got[32] = "";
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
    int other = open(name, O_WRONLY | O_APPEND);
    write(fd, "mine", 4);
    if (again) said("at", lseek(fd, 0, SEEK_CUR));
    write(other, "theirs", 6);
    fsync(other);
    said("read on", read(fd, got, sizeof got));
    printf("%s\n", got);
    write(fd, "more", 4);
    write(other, "others", 6);
    close(other);
    int twin = dup(fd);
    said("at", lseek(twin, 0, SEEK_CUR));
    said("read on", read(twin, got, 3));
    close(twin);
    close(fd);
    show(name);
}

// The position stays where the last append ended, of a file that was cut, too.
static void cut(void) {
    int fd = open("cut", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
    write(fd, "0123456789", 10);
    said("cut", ftruncate(fd, 4));
    said("at", lseek(fd, 0, SEEK_CUR));
    write(fd, "abcdef", 6);
    said("cut by name", truncate("cut", 4));
    said("at", lseek(fd, 0, SEEK_CUR));
    close(fd);
    show("cut");
}

// What was written before times were set does not set them again.
static void dated(void) {
    const struct timespec times[] = {{1000, 0}, {2000, 0}};
    struct stat status;
    for (int i = 0; i < 5; i++) {
        int fd = open("dated", O_WRONLY | O_CREAT | O_TRUNC, 0644);
        write(fd, "old", 3);
        said("dated", utimensat(AT_FDCWD, "dated", times, 0));
        close(fd);
        stat("dated", &status);
        said("modified", status.st_mtime);
    }
}

// The position is given to the kernel with an append that nobody has asked for.
static void given_back(void) {
    char got[32] = "";
    int fd = open("given", O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    int other = open("given", O_WRONLY | O_APPEND | O_CLOEXEC);
    write(fd, "mine", 4);
    write(other, "theirs", 6);
    close(other);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        said("child reads on", read(fd, got, 2));
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    said("read on", read(fd, got, sizeof got));
    printf("%s\n", got);
    close(fd);
}

static void counts_and_pointers(void) {
    // The compiler is not to know them.
    void *volatile nowhere = NULL;
    volatile int less = -1;
    char got[8];
    struct iovec wrong[] = {{got, 4}, {got, (size_t)-1}}, null = {NULL, 4};
    int fd = open("counts", O_RDWR | O_CREAT | O_TRUNC, 0644);
    write(fd, "abcdef", 6);
    said("write none", writev(fd, wrong, 0));
    said("read none", readv(fd, nowhere, 0));
    said("read none there", preadv(fd, wrong, 0, 1));
    said("write less than none", writev(fd, wrong, less));
    said("write too much", writev(fd, wrong, 2));
    said("write nowhere", write(fd, nowhere, 3));
    said("write nowhere there", pwrite(fd, nowhere, 3, 0));
    said("read to nowhere", pread(fd, nowhere, 3, 0));
    said("write from no list", writev(fd, nowhere, 1));
    said("write from an empty one", writev(fd, &null, 1));
    said("read to an empty one", preadv(fd, &null, 1, 0));
    said("write beyond the end", pwrite(fd, "ab", 2, 0x7ffffffffffffffeL));
    said("at", lseek(fd, 0, SEEK_CUR));
    close(fd);
    show("counts");
}

// Who has no number left for a file neither makes nor truncates it.
static void no_number(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    rlim_t before = limit.rlim_cur;
    int fd = open("kept", O_WRONLY | O_CREAT | O_TRUNC, 0644), last = -1;
    write(fd, "still there", 11);
    close(fd);
    limit.rlim_cur = 64;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int more; (more = dup(2)) >= 0;) last = more;
    said("truncated", open("kept", O_WRONLY | O_CREAT | O_TRUNC, 0644));
    said("made", open("unmade", O_WRONLY | O_CREAT, 0644));
    limit.rlim_cur = before;
    setrlimit(RLIMIT_NOFILE, &limit);
    close_range(4, last, 0);
    show("kept");
    show("unmade");
}

// A file that had no name is given one by its number.
static void named_by_number(void) {
    char name[32];
    int fd = open(".", O_TMPFILE | O_RDWR, 0600);
    write(fd, "nameless", 8);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    said("named", linkat(AT_FDCWD, name, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
    write(fd, "!", 1);
    close(fd);
    show("named");
    unlink("named");
}

static void open_again(const char *name) {
    char got[16] = "";
    int again = open(name, O_RDONLY);
    said("again", read(again, got, sizeof got));
    printf("%s\n", got);
    close(again);
}

// A process finds its own files by their numbers, also those that it has shared with a child.
static void opened_by_number(void) {
    const char *folders[] = {"/proc/self/fd", "/proc/thread-self/fd", "/dev/fd"};
    char name[40];
    struct stat status;
    int fd = open("numbered", O_RDWR | O_CREAT | O_TRUNC, 0644);
    write(fd, "by number", 9);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s/%d", folders[i], fd);
        open_again(name);
        said("size", stat(name, &status) < 0 ? -1 : status.st_size);
    }
    said("at", lseek(fd, 0, SEEK_CUR));
    fflush(stdout);
    if (fork() == 0) _exit(0);
    wait(NULL);
    open_again(name);
    write(fd, "!", 1);
    open_again(name);
    close(fd);
}

// System calls by number mean the same files.
static void by_system_call(void) {
    struct stat status;
    struct statx extended;
    int fd = open("called", O_RDWR | O_CREAT | O_TRUNC, 0644);
    write(fd, "by number", 9);
    said("fstat", syscall(SYS_fstat, fd, &status) < 0 ? -1 : status.st_size);
    write(fd, "!", 1);
    int failed = syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_SIZE, &extended);
    said("statx", failed ? -1 : (long)extended.stx_size);
    said("rename", syscall(SYS_renameat2, AT_FDCWD, "called", AT_FDCWD, "renamed", 0));
    said("stat", syscall(SYS_newfstatat, AT_FDCWD, "renamed", &status, 0));
    said("size", status.st_size);
    close(fd);
}

// What is staged is there for them, and does not come over what they do.
static void by_other_system_calls(void) {
    char got[16] = "";
    struct stat status;
    struct iovec all = {got, 6}, again = {"SECOND", 6};
    int fd = open("others", O_RDWR | O_CREAT | O_TRUNC, 0644);
    write(fd, "first.", 6);
    said("preadv2", syscall(SYS_preadv2, fd, &all, 1, 0L, 0L, 0));
    printf("%s\n", got);
    pwrite(fd, "..", 2, 0);
    said("pwritev2", syscall(SYS_pwritev2, fd, &again, 1, 0L, 0L, 0));
    const char *mapped = (void *)syscall(SYS_mmap, NULL, 6, PROT_READ, MAP_SHARED, fd, 0L);
    printf("%.6s\n", mapped);
    munmap((void *)mapped, 6);
    close(fd);
    show("others");

    fd = open("punched", O_RDWR | O_CREAT | O_TRUNC, 0644);
    write(fd, "0123456789", 10);
    int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    said("fallocate", syscall(SYS_fallocate, fd, mode, 0L, 4L));
    said("read", pread(fd, got, 10, 0));
    printf("%d%s\n", got[0], got + 4);
    write(fd, "tail", 4);
    said("truncate", syscall(SYS_truncate, "punched", 12L));
    said("size", fstat(fd, &status) ? -1 : status.st_size);
    struct timespec times[2] = {{1, 0}, {2, 0}};
    write(fd, "!", 1);
    said("utimensat", syscall(SYS_utimensat, fd, NULL, times, 0));
    close(fd);
    said("time", stat("punched", &status) ? -1 : status.st_mtime);
}

// One request of the kernel's own asynchronous I/O, after another.
static void asynchronous(void) {
    char got[8] = "";
    aio_context_t context = 0;
    struct io_event event;
    int fd = open("asynchronous", O_RDWR | O_CREAT | O_TRUNC, 0644);
    write(fd, "before", 6);
    struct iocb requests[2] = {
        {.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_buf = (long)"BE", .aio_nbytes = 2},
        {.aio_lio_opcode = IOCB_CMD_PREAD, .aio_buf = (long)got, .aio_nbytes = 7},
    };
    said("setup", syscall(SYS_io_setup, 1, &context));
    said("less than none", syscall(SYS_io_submit, context, -1L, &context));
    for (int i = 0; i < 2; i++) {
        struct iocb *list[] = {&requests[i]};
        requests[i].aio_fildes = fd;
        if (said("submit", syscall(SYS_io_submit, context, 1L, list)) != 1) continue;
        syscall(SYS_io_getevents, context, 1L, 1L, &event, NULL);
        said("done", event.res);
    }
    printf("%s\n", got);
    syscall(SYS_io_destroy, context);
    write(fd, "!", 1);
    close(fd);
    show("asynchronous");
}

static void opened_by_system_call(void) {
    const char *names[] = {"plainly", "carefully", "created"};
    for (int way = 0; way < 3; way++) {
        struct open_how how = {.flags = O_WRONLY | O_TRUNC, .resolve = way * RESOLVE_NO_MAGICLINKS};
        int fd = open(names[way], O_RDWR | O_CREAT | O_TRUNC, 0644);
        write(fd, "what was before", 15);
#ifdef SYS_creat
        int other = way == 2 ? syscall(SYS_creat, names[way], 0644)
                             : syscall(SYS_openat2, AT_FDCWD, names[way], &how, sizeof how);
#else
        int other = syscall(SYS_openat2, AT_FDCWD, names[way], &how, sizeof how);
#endif
        // As programs do where there is no such call: for remote files there is none with a choice.
        if (other < 0 && errno == ENOSYS) other = open(names[way], O_WRONLY | O_TRUNC);
        said("other", write(other, "new", 3));
        close(other);
        close(fd);
        show(names[way]);
    }
#ifdef SYS_stat
    struct stat status;
    int fd = open("plainly", O_WRONLY | O_APPEND);
    write(fd, "er", 2);
    said("stat", syscall(SYS_stat, "plainly", &status) ? -1 : status.st_size);
    write(fd, "!", 1);
    said("lstat", syscall(SYS_lstat, "plainly", &status) ? -1 : status.st_size);
    close(fd);
    said("rename", syscall(SYS_rename, "plainly", "renamed too"));
    said("unlink", syscall(SYS_unlink, "carefully"));
    said("unlink", syscall(SYS_unlink, "carefully"));
#endif
}

static int cancelled_fd;

static void *write_for_ever(void *block) {
    while (cancelled_fd >= 0) {
        pwrite(cancelled_fd, block, 4096, 0);
        pread(cancelled_fd, block, 100, 0);
        pthread_testcancel();
    }
    return NULL;
}

// Of a thread that is cancelled in a call nothing stays locked.
static void cancelled(void) {
    static char block[4096];
    cancelled_fd = open("cancelled", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, write_for_ever, block);
        usleep(500);
        pthread_cancel(thread);
        pthread_join(thread, NULL);
    }
    said("write", pwrite(cancelled_fd, "x", 1, 4096));
    said("sync", fsync(cancelled_fd));
    said("close", close(cancelled_fd));
    unlink("cancelled");
}

static volatile sig_atomic_t signals;

static void count(int number) {
    (void)number;
    signals++;
}

// What a limit of file sizes leaves of a stream's bytes is told when it is closed.
static void limited(void) {
    struct rlimit limit;
    struct stat status;
    getrlimit(RLIMIT_FSIZE, &limit);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = 1000;
    signal(SIGXFSZ, count);
    setrlimit(RLIMIT_FSIZE, &limit);
    FILE *file = fopen("limited", "w");
    for (int i = 0; i < 30; i++) fprintf(file, "%0100d", i);
    said("close", fclose(file));
    limit.rlim_cur = before;
    setrlimit(RLIMIT_FSIZE, &limit);
    stat("limited", &status);
    said("size", status.st_size);
    said("signals", signals);
}

// A message that says of what comes with it that it is longer than the room for that.
static void too_long(void) {
    union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(int))]; } control = {0};
    struct iovec data = {"x", 1};
    struct msghdr message = {NULL, 0, &data, 1, &control, sizeof control, 0};
    int ends[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    control.head = (struct cmsghdr){(size_t)1 << 40, SOL_SOCKET, SCM_RIGHTS};
    said("too long", sendmsg(ends[0], &message, 0));
    close(ends[0]);
    close(ends[1]);
}

static void map_to(const char *what, int fd, int protection, int flags) {
    void *mapped = mmap(NULL, 4, protection, flags, fd, 0);
    said(what, mapped == MAP_FAILED ? -1 : 0);
    if (mapped != MAP_FAILED) munmap(mapped, 4);
}

// What the kernel refuses of any file, whoever has it.
static void refused(void) {
    int fd = open("refused", O_RDWR | O_CREAT | O_TRUNC, 0644), other = open("refused", O_WRONLY);
    write(fd, "kept", 4);
    said("flags", unlinkat(AT_FDCWD, "refused", 0x4000));
    said("whence", lseek(fd, 0, -1));
    said("whence", lseek(fd, 0, 256));
    said("advice", -posix_fadvise(fd, 0, 0, 99));
    said("advice", -posix_fadvise(fd, 0, -1, POSIX_FADV_NORMAL));
    said("readahead", readahead(other, 0, 1));
    said("range", sync_file_range(fd, -1, 0, 0));
    said("range", sync_file_range(fd, 0, 0, 99));
    said("mode's flags", fchmodat(AT_FDCWD, "refused", 0600, 0x4000));
    said("access's flags", faccessat(AT_FDCWD, "refused", R_OK, 0x4000));
    said("owner's flags", fchownat(AT_FDCWD, "refused", -1, -1, 0x4000));
    said("times' flags", utimensat(AT_FDCWD, "refused", NULL, 0x4000));
    said("no command", fcntl(fd, 9999));
    said("not to wait", fcntl(fd, F_SETFL, O_NONBLOCK));
    said("is not to", fcntl(fd, F_GETFL) & (O_NONBLOCK | O_ACCMODE));
    said("to wait", fcntl(fd, F_SETFL, 0));
    said("is to", fcntl(fd, F_GETFL) & (O_NONBLOCK | O_ACCMODE));
    int reader = open("refused", O_RDONLY);
    map_to("written only", other, PROT_READ, MAP_PRIVATE);
    map_to("read only", reader, PROT_WRITE, MAP_SHARED);
    map_to("written to a copy", reader, PROT_WRITE, MAP_PRIVATE);
    close(reader);
    close(other);
    close(fd);
    show("refused");
}

// A call that is refused changes nothing, and one of no bytes moves nothing.
static void without_effect(void) {
    int fd = open("kept", O_RDWR | O_CREAT | O_TRUNC, 0644);
    int other = open("other", O_RDWR | O_CREAT | O_TRUNC, 0644);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    write(fd, "abc", 3);
    said("flags of dup3", dup3(other, fd, 0x12345));
    said("dup3 to itself", dup3(fd, fd, 0));
    said("dup2 beyond the limit", dup2(other, (int)limit.rlim_cur));
    said("still open", write(fd, "def", 3));
    close(other);
    close(fd);
    fd = open("kept", O_RDWR | O_APPEND);
    write(fd, "ghi", 3);
    other = open("kept", O_WRONLY);
    said("nothing written", write(fd, "", 0));
    said("at", lseek(fd, 0, SEEK_CUR));
    close(other);
    close(fd);
    show("kept");
}

// What comes before a buffer that is nowhere is read and written.
static void nowhere(void) {
    char got[2];
    int fd = open("nowhere", O_RDWR | O_CREAT | O_TRUNC, 0644);
    struct iovec from[] = {{"xyz", 3}, {NULL, 5}, {"q", 1}}, into[] = {{got, 2}, {NULL, 5}};
    said("written", writev(fd, from, 3));
    said("written there", pwritev(fd, from, 2, 3));
    said("only nowhere", writev(fd, from + 1, 2));
    said("at", lseek(fd, 0, SEEK_CUR));
    said("read there", preadv(fd, into, 2, 0));
    close(fd);
    show("nowhere");
}

// Zeros in a file without bytes, and behind its end.
static void zeroed(void) {
    const int punch = 0x02 | 0x01; // PUNCH_HOLE | KEEP_SIZE
    int fd = open("zeroed", O_RDWR | O_CREAT | O_TRUNC, 0644);
    said("of nothing", fallocate(fd, punch, 0, 4096));
    write(fd, "kept", 4);
    said("behind the end", fallocate(fd, punch, 8192, 4096));
    said("within", fallocate(fd, punch, 1, 2));
    said("size", lseek(fd, 0, SEEK_END));
    close(fd);
}

// Where each of many files has been appended to, whatever was done to it since.
static void at_the_end(void) {
    enum { MANY = 200 };
    int fds[MANY], wrong = 0;
    char name[32];
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "end%d", i);
        fds[i] = open(name, O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
        write(fds[i], "abc", 3);
        ftruncate(fds[i], 50);
    }
    for (int i = 0; i < MANY; i++) {
        wrong += lseek(fds[i], 0, SEEK_CUR) != 3;
        close(fds[i]);
        snprintf(name, sizeof name, "end%d", i);
        unlink(name);
    }
    said("elsewhere", wrong);
}

// A path counts with all that it says.
static void long_path(void) {
    char path[4200] = "";
    for (int i = 0; i < 2050; i++) strcat(path, "./");
    strcat(path, "long");
    said("long", mkdir(path, 0755));
}

static int in_clone(void *fd) {
    write(*(int *)fd, "clone ", 6);
    *(int *)fd = open("cloned", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    for (int i = 0; i < 100; i++) write(*(int *)fd, "child ", 6);
    return *(int *)fd;
}

// A child with memory of its own, and this process's descriptors.
static void shared_numbers(void) {
    static char stack[1 << 16];
    int status, fd = open("shared", O_RDWR | O_CREAT | O_TRUNC, 0644), made;
    for (int i = 0; i < 100; i++) write(fd, "before ", 7);
    made = fd;
    pid_t child = clone(in_clone, stack + sizeof stack, SIGCHLD | CLONE_FILES, &made);
    waitpid(child, &status, 0);
    said("written by its number", write(WEXITSTATUS(status), "parent", 6));
    write(fd, "after", 5);
    said("shared", lseek(fd, 0, SEEK_CUR));
    said("cloned", lseek(WEXITSTATUS(status), 0, SEEK_END));
    close(WEXITSTATUS(status));
    close(fd);
}

int main(int argc, char **argv) {
    if (argc > 1 && chdir(argv[1]) < 0) return 1;
    if (argc == 1) {
        given_back();
        named_by_number();
        asynchronous();
    }
    reading_on("first", 0);
    reading_on("second", 1);
    cut();
    dated();
    counts_and_pointers();
    no_number();
    opened_by_number();
    by_system_call();
    by_other_system_calls();
    opened_by_system_call();
    cancelled();
    limited();
    too_long();
    refused();
    without_effect();
    nowhere();
    zeroed();
    at_the_end();
    long_path();
    if (argc == 1) shared_numbers();
    return 0;
}
