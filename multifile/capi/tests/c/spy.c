/* Counts the calls of libc that a preloaded library can see; the counts go to standard error. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/types.h>

static int opens, writes, reads, resizes, streams, syncs;

int openat(int folder, const char *path, int flags, ...) {
    int (*next)(int, const char *, int, ...) = dlsym(RTLD_NEXT, "openat");
    va_list rest;
    va_start(rest, flags);
    int mode = flags & O_CREAT ? va_arg(rest, int) : 0;
    va_end(rest);
    opens++;
    return next(folder, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, "open64");
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    opens++;
    return next(path, flags, mode);
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t at) {
    ssize_t (*next)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    writes++;
    return next(fd, bytes, len, at);
}

ssize_t pread64(int fd, void *bytes, size_t len, off64_t at) {
    ssize_t (*next)(int, void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pread64");
    reads++;
    return next(fd, bytes, len, at);
}

int ftruncate64(int fd, off64_t len) {
    int (*next)(int, off64_t) = dlsym(RTLD_NEXT, "ftruncate64");
    resizes++;
    return next(fd, len);
}

FILE *fdopen(int fd, const char *mode) {
    FILE *(*next)(int, const char *) = dlsym(RTLD_NEXT, "fdopen");
    streams++;
    return next(fd, mode);
}

int fsync(int fd) {
    int (*next)(int) = dlsym(RTLD_NEXT, "fsync");
    syncs++;
    return next(fd);
}

int fdatasync(int fd) {
    int (*next)(int) = dlsym(RTLD_NEXT, "fdatasync");
    syncs++;
    return next(fd);
}

__attribute__((destructor)) static void tell(void) {
    fprintf(stderr, "opens=%d writes=%d reads=%d resizes=%d streams=%d syncs=%d\n", opens, writes,
            reads, resizes, streams, syncs);
}
