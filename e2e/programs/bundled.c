/* Many small files.
 *   make FOLDER FIRST COUNT: makes files whose content their numbers tell; says the number of each
 *     and when it was closed.
 *   fill FOLDER COUNT: the same, and says of each file which call has failed. The others go on.
 *   sync FOLDER COUNT: the same, and syncs each before it is closed.
 *   paths FOLDER OTHER COUNT: the same by two paths of one folder in turn, without a word.
 *   check FOLDER COUNT: names those that are missing, and fails if one is not whole.
 *   lost FOLDER COUNT: names those that are missing, or not whole.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static unsigned char data[10000];

static size_t fill(long number) {
    size_t len = 100 + (size_t)(number * 37 % 9000);
    for (size_t i = 0; i < len; i++) {
        data[i] = (unsigned char)((unsigned long)number * 31 + i * 7);
    }
    return len;
}

static void make(const char *folder, long number) {
    char path[4096];
    snprintf(path, sizeof path, "%s/f.%06ld", folder, number);
    size_t len = fill(number), done = 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (fd < 0) err(1, "%s", path);
    while (done < len) {
        size_t part = len - done < 4000 ? len - done : 4000;
        ssize_t wrote = write(fd, data + done, part);
        if (wrote < 0) err(1, "write %s", path);
        done += (size_t)wrote;
    }
    if (close(fd)) err(1, "close %s", path);
}

/* Makes a file whatever fails; returns the call that has. */
static const char *try_to_make(const char *folder, long number, int is_synced) {
    char path[4096];
    snprintf(path, sizeof path, "%s/f.%06ld", folder, number);
    size_t len = fill(number);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (fd < 0) return "open";
    const char *failed = NULL;
    int why = 0;
    if (write(fd, data, len) != (ssize_t)len) failed = "write", why = errno;
    if (!failed && is_synced && fsync(fd)) failed = "fsync", why = errno;
    if (close(fd) && !failed) failed = "close", why = errno;
    if (failed) errno = why;
    return failed;
}

static int check(const char *folder, long number) {
    static unsigned char found[sizeof data + 1];
    char path[4096];
    snprintf(path, sizeof path, "%s/f.%06ld", folder, number);
    size_t len = fill(number), done = 0;
    int fd = open(path, O_RDONLY);
    if (fd < 0 && errno == ENOENT) {
        printf("%ld\n", number);
        return 0;
    }
    if (fd < 0) err(1, "%s", path);
    for (ssize_t part; (part = read(fd, found + done, sizeof found - done)) > 0;) {
        done += (size_t)part;
    }
    close(fd);
    return done != len || memcmp(found, data, len);
}

int main(int count, char **words) {
    if (count == 5 && !strcmp(words[1], "make")) {
        long first = atol(words[3]), end = first + atol(words[4]);
        for (long number = first; number < end; number++) {
            make(words[2], number);
            struct timespec now;
            clock_gettime(CLOCK_MONOTONIC, &now);
            char line[64];
            int len = snprintf(line, sizeof line, "%ld %ld%09ld\n", number, now.tv_sec, now.tv_nsec);
            if (write(1, line, (size_t)len) != len) err(1, "output");
        }
    } else if (count == 4 && (!strcmp(words[1], "fill") || !strcmp(words[1], "sync"))) {
        for (long number = 0, end = atol(words[3]); number < end; number++) {
            const char *failed = try_to_make(words[2], number, *words[1] == 's');
            if (failed) printf("%ld %s %s\n", number, failed, strerrorname_np(errno));
        }
    } else if (count == 5 && !strcmp(words[1], "paths")) {
        for (long number = 0, end = atol(words[4]); number < end; number++) {
            make(words[2 + number % 2], number);
        }
    } else if (count == 4 && !strcmp(words[1], "check")) {
        for (long number = 0, end = atol(words[3]); number < end; number++) {
            if (check(words[2], number)) errx(2, "%ld is not what was written", number);
        }
    } else if (count == 4 && !strcmp(words[1], "lost")) {
        for (long number = 0, end = atol(words[3]); number < end; number++) {
            if (check(words[2], number)) printf("%ld\n", number);
        }
    } else {
        errx(64, "make FOLDER FIRST COUNT, or check FOLDER COUNT");
    }
    return 0;
}
