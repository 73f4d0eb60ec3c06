// The aggregating preload that Kakehi has to bear comparison with: gathers what a program writes in
// 256 KiB of its own memory a descriptor. There is no daemon: what is gathered is lost when the
// program is killed, and nobody else sees it before the program closes the file, reads it, or ends.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NUMBERS = 1024, ROOM = 256 << 10 };
static struct { char *bytes; size_t len; char is_file; } files[NUMBERS];

static int flush(int fd) {
    size_t at = 0;
    while (at < files[fd].len) {
        ssize_t wrote = syscall(SYS_write, fd, files[fd].bytes + at, files[fd].len - at);
        if (wrote < 0 && errno != EINTR) return -1;
        if (wrote > 0) at += wrote;
    }
    files[fd].len = 0;
    return 0;
}

static int is_ours(int fd) { return fd >= 0 && fd < NUMBERS && files[fd].is_file; }

static int opened(int fd, int flags) {
    struct stat found;
    if (fd > 2 && fd < NUMBERS && (flags & O_ACCMODE) != O_RDONLY && fstat(fd, &found) == 0)
        files[fd].is_file = S_ISREG(found.st_mode);
    return fd;
}

#define OPEN(name, directory, ...)                                                                \
    int name(__VA_ARGS__ const char *path, int flags, ...) {                                      \
        va_list rest;                                                                             \
        va_start(rest, flags);                                                                    \
        mode_t mode = va_arg(rest, mode_t);                                                       \
        va_end(rest);                                                                             \
        return opened(syscall(SYS_openat, directory, path, flags, mode), flags);                  \
    }
OPEN(open, AT_FDCWD)
OPEN(open64, AT_FDCWD)
#define AT int directory,
OPEN(openat, directory, AT)
OPEN(openat64, directory, AT)

ssize_t write(int fd, const void *from, size_t len) {
    if (!is_ours(fd)) return syscall(SYS_write, fd, from, len);
    if (files[fd].len + len > ROOM && flush(fd) < 0) return -1;
    if (len >= ROOM) return syscall(SYS_write, fd, from, len);
    if (!files[fd].bytes && !(files[fd].bytes = malloc(ROOM)))
        return syscall(SYS_write, fd, from, len);
    memcpy(files[fd].bytes + files[fd].len, from, len);
    files[fd].len += len;
    return len;
}

ssize_t read(int fd, void *to, size_t len) {
    if (is_ours(fd) && flush(fd) < 0) return -1;
    return syscall(SYS_read, fd, to, len);
}

off_t lseek(int fd, off_t to, int whence) {
    if (is_ours(fd) && flush(fd) < 0) return -1;
    return syscall(SYS_lseek, fd, to, whence);
}

int close(int fd) {
    int failed = is_ours(fd) ? flush(fd) : 0;
    if (is_ours(fd)) files[fd].is_file = 0;
    return syscall(SYS_close, fd) < 0 ? -1 : failed;
}

__attribute__((destructor)) static void end(void) {
    for (int fd = 0; fd < NUMBERS; fd++) flush(fd);
}
