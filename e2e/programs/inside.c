// What libc does to files by itself, past every wrapper; with a folder's plugin, which is loaded.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

static int fresh(const char *name) {
    return open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
}

static void show(const char *name) {
    char all[256];
    int fd = open(name, O_RDONLY);
    ssize_t len = read(fd, all, sizeof all);
    printf("%s: [%.*s]\n", name, (int)len, all);
    close(fd);
}

// The addresses differ from run to run.
static void traced(void) {
    void *frames[8];
    char all[4096] = "";
    int fd = fresh("trace"), count = backtrace(frames, 8);
    write(fd, "=== report ===\n", 15);
    backtrace_symbols_fd(frames, count, fd);
    write(fd, "=== end ===\n", 12);
    ssize_t len = pread(fd, all, sizeof all - 1, 0);
    close(fd);
    int lines = 0;
    for (char *at = all; (at = strchr(at, '\n')); at++) lines++;
    printf("%.15s%d of %d: %s", all, lines, count + 2, len > 12 ? all + len - 12 : "short\n");
    unlink("trace");
}

int main(int count, char **arguments) {
    traced();
    return 0;
}
