/* Moves bytes through the folder argv[1], and prints how many seconds each kind took: one file
   written and read by 1 MiB, argv[2] times, and argv[3] files of 4 KiB made and read back. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LARGE = 1 << 20, SMALL = 4096 };

static char bytes[LARGE], found[LARGE];

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static void put(const char *name, int flags, long times, size_t len) {
    int fd = open(name, O_WRONLY | O_CREAT | flags, 0644);
    if (fd < 0) fail(name);
    for (long i = 0; i < times; i++)
        if (write(fd, bytes, len) != (ssize_t)len) fail("write");
    if (close(fd)) fail("close");
}

static void get(const char *name, long times, size_t len) {
    int fd = open(name, O_RDONLY);
    if (fd < 0) fail(name);
    for (long i = 0; i < times; i++)
        if (read(fd, found, len) != (ssize_t)len) fail("read");
    if (memcmp(found, bytes, len)) fail("other bytes");
    if (close(fd)) fail("close");
}

int main(int count, char **words) {
    if (count != 4 || chdir(words[1])) fail("DIR MIB FILES");
    long mib = atol(words[2]), files = atol(words[3]);
    char name[32];
    for (size_t i = 0; i < LARGE; i++) bytes[i] = (char)(i * 31 >> 3);
    put("large", O_TRUNC, 1, LARGE);
    double begun = now();
    put("large", O_TRUNC, mib, LARGE);
    double written = now();
    get("large", mib, LARGE);
    double read = now();
    for (long i = 0; i < files; i++) {
        snprintf(name, sizeof name, "small%ld", i);
        put(name, O_EXCL, 1, SMALL);
    }
    double made = now();
    for (long i = 0; i < files; i++) {
        snprintf(name, sizeof name, "small%ld", i);
        get(name, 1, SMALL);
    }
    double opened = now();
    for (long i = 0; i < files; i++) {
        snprintf(name, sizeof name, "small%ld", i);
        if (unlink(name)) fail(name);
    }
    double removed = now();
    printf("write %.6f\nread %.6f\nmake %.6f\nopen %.6f\nremove %.6f\n", written - begun,
           read - written, made - read, opened - made, removed - opened);
    return unlink("large");
}
