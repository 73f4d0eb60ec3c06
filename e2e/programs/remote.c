// Changes a folder in every way that must not happen twice, and checks what came of it.
//   remote DIR COUNT PROGRESS
// Appends COUNT numbered lines to DIR/log, and makes, renames, and removes files and folders beside
// it. After each round the number of rounds done is written to the local file PROGRESS. A call whose
// outcome is unknown (EIO) is looked into, and counted in the last line of output.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int unknown;

static void fail(const char *what, int round) {
    fprintf(stderr, "%s in round %d: %s\n", what, round, strerror(errno));
    exit(1);
}

// A call on a name that has to succeed, or of which it is unknown whether it has.
static void check(const char *what, int round, int result) {
    if (result == 0) return;
    if (errno != EIO) fail(what, round);
    unknown++;
}

static int exists(const char *name) {
    struct stat found;
    return lstat(name, &found) == 0;
}

int main(int argc, char **argv) {
    if (argc != 4 || chdir(argv[1]) != 0) fail("start", 0);
    int count = atoi(argv[2]);
    int progress = open(argv[3], O_CREAT | O_WRONLY, 0600);
    int log = open("log", O_CREAT | O_WRONLY | O_APPEND, 0600);
    int table = open("table", O_CREAT | O_RDWR, 0600);
    if (progress < 0 || log < 0 || table < 0) fail("open", 0);
    for (int round = 0; round < count; round++) {
        char line[16], made[32], renamed[32], folder[32];
        snprintf(line, sizeof line, "%07d\n", round);
        if (write(log, line, 8) != 8) fail("append", round);
        if (round % 4 == 0 && fsync(log) != 0) fail("fsync", round);
        if (pwrite(table, &round, sizeof round, (off_t)round * 4096) != sizeof round) fail("pwrite", round);

        snprintf(made, sizeof made, "new%d", round);
        snprintf(renamed, sizeof renamed, "file%d", round);
        snprintf(folder, sizeof folder, "folder%d", round);
        int file = open(made, O_CREAT | O_EXCL | O_WRONLY, 0600);
        if (file >= 0) {
            if (write(file, line, 8) != 8 || close(file) != 0) fail("write", round);
        } else {
            check("create", round, -1);
            file = open(made, O_CREAT | O_WRONLY, 0600);
            if (file < 0 || write(file, line, 8) != 8 || close(file) != 0) fail("write", round);
        }
        check("rename", round, rename(made, renamed));
        if (exists(made) || !exists(renamed)) fail("rename did not happen", round);
        check("mkdir", round, mkdir(folder, 0700));
        if (!exists(folder) && mkdir(folder, 0700) != 0) fail("mkdir again", round);
        if (round % 2) {
            check("rmdir", round, rmdir(folder));
            check("unlink", round, unlink(renamed));
            if (exists(folder) || exists(renamed)) fail("not removed", round);
        }
        int64_t done = round + 1;
        if (pwrite(progress, &done, sizeof done, 0) != sizeof done) fail("progress", round);
    }
    if (fsync(log) != 0 || close(log) != 0) fail("last fsync", count);
    for (int round = 0; round < count; round++) {
        int found = -1;
        if (pread(table, &found, sizeof found, (off_t)round * 4096) != sizeof found || found != round)
            fail("table", round);
    }
    printf("unknown %d\n", unknown);
    return 0;
}
