// Calls on little stack: of a thread that has no more than a thread must have, and of a handler on
// a stack of its own.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static void check(int outcome, const char *what) {
    if (outcome >= 0) return;
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    _exit(1);
}

static int opened(void) {
    int fd = open("file", O_RDWR | O_CREAT, 0644);
    check(fd, "open");
    return fd;
}

static void to_open(void) { close(opened()); }
static void to_write(void) {
    int fd = opened();
    check(write(fd, "text\n", 5), "write");
    check(lseek(fd, 0, SEEK_SET), "lseek");
    char byte;
    check(read(fd, &byte, 1), "read");
    check(fsync(fd), "fsync");
    check(ftruncate(fd, 1), "ftruncate");
    check(fchmod(fd, 0600), "fchmod");
    check(close(fd), "close");
}
static void to_write_pieces(void) {
    int fd = opened();
    struct iovec piece = {"text\n", 5};
    check(writev(fd, &piece, 1), "writev");
    check(preadv(fd, &piece, 0, 0), "preadv");
    check(close(fd), "close");
}
static void to_stat(void) {
    struct stat found;
    check(stat(".", &found), "stat");
    check(lstat(".", &found), "lstat");
    int fd = opened();
    check(fstat(fd, &found), "fstat");
    close(fd);
}
static void to_access(void) {
    check(access(".", R_OK), "access");
    char link[9];
    check(readlink("/proc/self/exe", link, sizeof link), "readlink");
    check(chmod(".", 0755), "chmod");
    check(chown(".", -1, -1), "chown");
    check(utimensat(AT_FDCWD, ".", NULL, 0), "utimensat");
}
static void to_name(void) {
    close(opened());
    check(mkdir("folder", 0755), "mkdir");
    check(rename("file", "folder/file"), "rename");
    check(link("folder/file", "file"), "link");
    check(symlink("file", "folder/link"), "symlink");
    check(truncate("file", 0), "truncate");
    check(unlink("folder/link"), "unlink");
    check(unlink("folder/file"), "unlink");
    check(rmdir("folder"), "rmdir");
}
static void to_exit(void) {
    check(write(opened(), "text\n", 5), "write");
    _exit(0);
}

static void (*const ways[])(void) = {
    to_open, to_write, to_write_pieces, to_stat, to_access, to_name, to_exit,
};
enum { WAYS = sizeof ways / sizeof *ways };

static void *run(void *way) {
    (*(void (*const *)(void))way)();
    return NULL;
}

static void on_thread(int way) {
    pthread_attr_t little;
    pthread_t thread;
    pthread_attr_init(&little);
    if (pthread_attr_setstacksize(&little, PTHREAD_STACK_MIN) != 0) _exit(1);
    if (pthread_create(&thread, &little, run, (void *)&ways[way]) != 0) _exit(1);
    pthread_join(thread, NULL);
}

// As one that reports why a program crashes.
static void to_report(void) {
    int fd = open("file", O_WRONLY | O_CREAT | O_APPEND, 0644);
    check(write(fd, "crashed\n", 8), "write");
    close(fd);
    check(write(opened(), "crashed\n", 8), "write");
}

static int handled;

static void handler(int signal) {
    (void)signal;
    if (handled < WAYS) (*ways[handled])();
    else to_report();
    _exit(0);
}

// 8 KiB, of which the kernel takes what the processor's registers need: 3632 B where there is
// AVX-512. Below is nothing.
static void on_stack_of_handler(int way) {
    enum { PAGE = 4096, OWN = 2 * PAGE - 3632 };
    size_t len = getauxval(AT_MINSIGSTKSZ) + OWN;
    char *room = mmap(NULL, len + PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED || mprotect(room, PAGE, PROT_NONE)) _exit(1);
    stack_t stack = {.ss_sp = room + PAGE, .ss_size = len};
    check(sigaltstack(&stack, NULL), "sigaltstack");
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    handled = way;
    raise(SIGUSR1);
    _exit(1);
}

// Each is a process of its own, and so connects by itself.
int main(void) {
    for (int way = 0; way <= 2 * WAYS; way++) {
        pid_t child = fork();
        if (child == 0) {
            if (way >= WAYS) on_stack_of_handler(way - WAYS);
            on_thread(way);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (status != 0) printf("way %d ended with %#x\n", way, status);
    }
    return 0;
}
