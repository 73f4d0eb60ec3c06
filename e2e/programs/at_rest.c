/* Files at rest, which are read without a request.
 *   calls FOLDER: what open files are to their reader while another process changes them.
 *   replace FOLDER COUNT: replaces a file so often, by a rename.
 *   watch FOLDER COUNT: reads it until it has been replaced so often: each time all of it is of one
 *     generation, which is none before the last one.
 *   read FOLDER COUNT: reads files again and again, until one cannot be read; fails if what is
 *     read is not what was written.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int to_other, from_other;

/* Another process, which runs what it is told. It is there before any file is open. */
static void begin_other(void) {
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC)) err(1, "pipe");
    fflush(stdout);
    if (fork() == 0) {
        close(to[1]);
        char line[256];
        while (read(to[0], line, sizeof line) == sizeof line) {
            int status = system(line);
            if (write(from[1], &status, sizeof status) != sizeof status) break;
        }
        _exit(0);
    }
    close(to[0]);
    to_other = to[1], from_other = from[0];
}

static void other(const char *command) {
    char line[256] = "";
    int status = 1;
    strcpy(line, command);
    if (write(to_other, line, sizeof line) != sizeof line) err(1, "other");
    if (read(from_other, &status, sizeof status) != sizeof status || status) errx(1, "%s", command);
}

static void say_read(const char *what, int fd, off_t at) {
    char bytes[64];
    ssize_t len = at < 0 ? read(fd, bytes, sizeof bytes) : pread(fd, bytes, sizeof bytes, at);
    printf("%s: %.*s (%zd%s)\n", what, len > 0 ? (int)len : 0, bytes, len,
           len < 0 ? strerrorname_np(errno) : "");
}

static void say_status(const char *what, int fd, const char *path) {
    struct stat found;
    if (path ? stat(path, &found) : fstat(fd, &found)) {
        printf("%s: %s\n", what, strerrorname_np(errno));
        return;
    }
    printf("%s: %o %ld bytes %ld names", what, found.st_mode, (long)found.st_size,
           (long)found.st_nlink);
    printf("%s\n", found.st_mtime == 1000000000 ? ", as told" : "");
}

static void say_open(const char *what, const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        printf("%s: %s, access %d\n", what, strerrorname_np(errno), access(path, R_OK));
        return;
    }
    printf("%s: access %d %d %d, ", what, access(path, R_OK), access(path, R_OK | W_OK),
           access(path, X_OK));
    say_read("has", fd, -1);
    close(fd);
}

static int opened(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) err(1, "%s", path);
    return fd;
}

static void calls(const char *folder) {
    if (chdir(folder)) err(1, "%s", folder);
    begin_other();
    other("umask 022; printf hello >a; : >empty; mkdir d; printf inner >d/f");
    say_open("made", "a");
    int fd = opened("a"), second = opened("a");
    char two[2];
    if (read(fd, two, 2) != 2) err(1, "read");
    long at = lseek(fd, 0, SEEK_CUR);
    printf("%.2s at %ld of %ld\n", two, at, (long)lseek(fd, 0, SEEK_END));
    lseek(fd, 2, SEEK_SET);
    other("printf 'HELLO you' >a");
    say_read("rewritten", fd, -1);
    say_status("rewritten", second, NULL);
    say_read("from the start", second, -1);
    close(fd), close(second);

    say_status("again", -1, "a");
    fd = opened("a");
    other("printf ' and more' >>a");
    say_status("appended", fd, NULL);
    printf("end at %ld\n", (long)lseek(fd, 0, SEEK_END));
    close(fd);

    fd = opened("a");
    other("truncate -s 3 a");
    say_read("cut", fd, -1);
    close(fd);

    fd = opened("a");
    other("mv a b");
    say_read("moved", fd, 1);
    say_open("its old name", "a");
    say_open("its new name", "b");
    close(fd);

    fd = opened("b");
    other("rm b; printf other >b");
    say_read("removed", fd, 0);
    say_status("removed", fd, NULL);
    say_read("removed, at its position", fd, -1);
    say_open("made anew", "b");
    close(fd);

    fd = opened("b");
    other("chmod 000 b");
    say_open("forbidden", "b");
    say_read("open before", fd, -1);
    say_status("forbidden", -1, "b");
    other("chmod 751 b; touch -d @1000000000 b");
    say_open("allowed", "b");
    say_status("touched", fd, NULL);
    say_status("touched", -1, "b");
    close(fd);

    fd = opened("b");
    other("ln b c");
    say_status("two names", fd, NULL);
    say_status("two names", -1, "c");
    other("rm b");
    say_open("the other name", "c");
    close(fd);

    fd = opened("d/f");
    say_open("in a folder", "d/f");
    other("mv d e");
    say_read("in a folder that was moved", fd, -1);
    say_open("its old folder", "d/f");
    say_open("its new folder", "e/f");
    close(fd);
    other("mkdir d; printf another >d/f; chmod 0 e");
    say_open("another folder", "d/f");
    say_open("in a forbidden folder", "e/f");
    other("chmod 755 e");

    fd = opened("c");
    char first[3], rest[64];
    struct iovec pieces[] = {{first, 3}, {rest, sizeof rest}};
    ssize_t len = readv(fd, pieces, 2);
    printf("pieces: %.3s %.*s\n", first, (int)len - 3, rest);
    say_read("at the end", fd, -1);
    say_read("beyond", fd, 100);
    printf("flags %d, sought %ld\n", fcntl(fd, F_GETFL) & O_ACCMODE, (long)lseek(fd, -1, SEEK_CUR));
    int copy = dup(fd);
    say_read("a duplicate", copy, -1);
    char *mapped = mmap(NULL, 5, PROT_READ, MAP_PRIVATE, fd, 0);
    printf("mapped: %.5s\n", mapped == MAP_FAILED ? "not" : mapped);
    if (write(fd, "x", 1) < 0) printf("written: %s\n", strerrorname_np(errno));
    if (ftruncate(fd, 0) < 0) printf("cut: %s\n", strerrorname_np(errno));
    close(fd), close(copy);
    say_open("empty", "empty");
    say_status("empty", -1, "empty");

    /* Numbers that are closed are the program's alone. */
    fd = opened("c");
    closefrom(3);
    fd = opened("c");
    printf("number %d\n", fd);
    say_read("after closefrom", fd, -1);
    for (int number = 3; number < 1100; number++) close(number);
    fd = opened("e/f");
    say_read("after close of all", fd, -1);
    int over = open("/dev/null", O_RDONLY);
    for (int number = 890; number < 940; number++) dup2(over, number);
    fd = opened("c");
    say_read("after dup2 over many", fd, -1);
}

static void replace(long count) {
    for (long generation = 1; generation <= count; generation++) {
        char bytes[4000];
        size_t len = 1000 + (size_t)(generation % 3000);
        memset(bytes, (int)(generation % 251), len);
        memcpy(bytes, &generation, sizeof generation);
        int fd = open("new", O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (fd < 0 || write(fd, bytes, len) != (ssize_t)len || close(fd)) err(1, "new");
        if (rename("new", "watched")) err(1, "rename");
    }
}

static void watch(long count) {
    long last = 0, times = 0;
    while (last < count) {
        char bytes[5000];
        int fd = open("watched", O_RDONLY);
        if (fd < 0 && errno == ENOENT) continue;
        if (fd < 0) err(1, "watched");
        size_t done = 0;
        for (ssize_t part; (part = read(fd, bytes + done, times % 2 ? 700 : 5000)) > 0;) {
            done += (size_t)part;
        }
        close(fd);
        long generation;
        memcpy(&generation, bytes, sizeof generation);
        if (done != 1000 + (size_t)(generation % 3000) || generation < last) {
            errx(2, "%zu bytes of %ld after %ld", done, generation, last);
        }
        for (size_t at = sizeof generation; at < done; at++) {
            if (bytes[at] != (char)(generation % 251)) errx(2, "%ld is mixed", generation);
        }
        last = generation, times++;
    }
    printf("read %ld times\n", times);
}

static void read_on(long count) {
    for (long number = 0;; number = (number + 1) % count) {
        char path[64], bytes[10000];
        snprintf(path, sizeof path, "f.%06ld", number);
        size_t len = 100 + (size_t)(number * 37 % 9000);
        int fd = open(path, O_RDONLY);
        ssize_t found = fd < 0 ? -1 : read(fd, bytes, sizeof bytes);
        if (found < 0) {
            printf("%s\n", strerrorname_np(errno));
            return;
        }
        for (size_t i = 0; i < len; i++) {
            unsigned char expected = (unsigned char)((unsigned long)number * 31 + i * 7);
            if ((unsigned char)bytes[i] != expected) errx(2, "%s is not what was written", path);
        }
        if ((size_t)found != len) errx(2, "%s has %zd bytes", path, found);
        close(fd);
        if (number == 0) {
            printf("reads\n");
            fflush(stdout);
        }
    }
}

int main(int count, char **words) {
    if (count == 3 && !strcmp(words[1], "calls")) {
        calls(words[2]);
        return 0;
    }
    if (count != 4 || chdir(words[2])) errx(64, "at_rest WHAT FOLDER COUNT");
    if (!strcmp(words[1], "replace")) replace(atol(words[3]));
    if (!strcmp(words[1], "watch")) watch(atol(words[3]));
    if (!strcmp(words[1], "read")) read_on(atol(words[3]));
    return 0;
}
