// Writes and reads a few files by calls of 8 bytes to 1 MiB, in several processes, until standard
// input ends, and compares what it reads with what it has written.
//   transfers NAME PROGRESS
// The files are NAME.0.0, and so on. How many transfers each process has done is written to the
// local file PROGRESS, 8 bytes for each process. Exit status: 0; 1 after an error, which standard
// error names.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 3, FILES = 4, LEN_MAX = 1 << 20 };

static const size_t lens[] = {8, LEN_MAX, 300, 4096, 300000, 70000, 20000};
static char wrote[LEN_MAX], found[LEN_MAX];

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    _exit(1);
}

static void transfer(const char *name, int progress, int process) {
    int files[FILES];
    for (int i = 0; i < FILES; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s.%d.%d", name, process, i);
        files[i] = open(path, O_CREAT | O_RDWR, 0600);
        if (files[i] < 0) fail(path);
    }
    struct pollfd input = {.fd = 0, .events = POLLIN};
    for (int64_t done = 0; poll(&input, 1, 0) == 0;) {
        // Each process begins with another length.
        size_t len = lens[((size_t)done / 2 + (size_t)process * 2) % (sizeof lens / sizeof *lens)];
        int file = files[done / 2 % FILES];
        memset(wrote, 'a' + (int)(done % 26), len);
        if (pwrite(file, wrote, len, 0) != (ssize_t)len) fail("pwrite");
        if (pread(file, found, len, 0) != (ssize_t)len) fail("pread");
        if (memcmp(wrote, found, len) != 0) fail("other bytes than were written");
        done += 2;
        if (pwrite(progress, &done, sizeof done, process * 8) != sizeof done) fail("progress");
    }
    for (int i = 0; i < FILES; i++)
        if (close(files[i]) != 0) fail("close");
    _exit(0);
}

int main(int argc, char **argv) {
    int progress = argc == 3 ? open(argv[2], O_CREAT | O_WRONLY, 0600) : -1;
    if (progress < 0) fail("start");
    for (int process = 0; process < PROCESSES; process++) {
        pid_t child = fork();
        if (child < 0) fail("fork");
        if (child == 0) transfer(argv[1], progress, process);
    }
    int status, is_failed = 0;
    while (wait(&status) > 0) is_failed |= status != 0;
    return is_failed;
}
