// Two children made by clone(), which share this process's memory and descriptors and are no threads
// to libc, write records to one descriptor, as this process did before. Each record is in the file
// once.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEN = 64, BEFORE = 3000, EACH = 200000, STACK = 1 << 18 };

struct record {
    long child, number;
    char rest[LEN - 2 * sizeof(long)];
};

static int fd;
static volatile int may;

static int record(long child, long number) {
    struct record one = {child, number, ""};
    memset(one.rest, 'a' + (int)child, sizeof one.rest);
    return write(fd, &one, LEN) == LEN;
}

static int child(void *number) {
    while (!may) continue;
    for (long i = 0; i < EACH; i++)
        if (!record((long)number, i)) return 1;
    return 0;
}

int main(void) {
    static char seen[2][EACH];
    int status, failed = 0, wrong = 0, all = 0;
    fd = open("cloned-records", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (long i = 0; i < BEFORE; i++) record(2, i);
    for (long i = 0; i < 2; i++) {
        char *stack = malloc(STACK);
        clone(child, stack + STACK, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | SIGCHLD, (void *)i);
    }
    may = 1;
    while (wait(&status) > 0) failed += status != 0;
    lseek(fd, (off_t)BEFORE * LEN, SEEK_SET);
    for (struct record one; read(fd, &one, LEN) == LEN; all++) {
        int is_known = one.child >= 0 && one.child < 2 && one.number >= 0 && one.number < EACH;
        wrong += !is_known || seen[one.child][one.number]++ || one.rest[LEN / 2] != 'a' + (int)one.child;
    }
    printf("%d failed, %d records, %d wrong, at %ld\n", failed, all, wrong, (long)lseek(fd, 0, SEEK_END));
    close(fd);
    unlink("cloned-records"); // In an order that nobody knows.
    return 0;
}
