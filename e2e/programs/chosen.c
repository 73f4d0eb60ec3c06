// Chooses the numbers of its descriptors, as shells do, and uses numbers that it never opened.
// While a thread of it writes files, every number is chosen, whatever else may have it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

// Of the numbers that there are in the child, those that its thread does not get.
enum { FIRST = 20, COUNT = 64, ROUNDS = 40 };

static volatile int is_done;

static void said(const char *what, long value) {
    if (value < 0) printf("%s: %s\n", what, strerror(errno));
    else printf("%s: %ld\n", what, value);
}

static int made(const char *name) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, name, strlen(name)) < 0 || fsync(fd)) said(name, -1);
    return fd;
}

static void show(const char *name) {
    char text[64] = "";
    int fd = open(name, O_RDONLY);
    said(name, read(fd, text, sizeof text - 1));
    printf("[%s]\n", text);
    close(fd);
}

// To the program, a number that it has not opened refers to nothing.
static void unopened(int fd) {
    char byte = 'x';
    int is_open = write(fd, &byte, 1) != -1 || errno != EBADF;
    is_open |= read(fd, &byte, 1) != -1 || errno != EBADF;
    is_open |= fcntl(fd, F_GETFD) != -1 || errno != EBADF;
    is_open |= dup(fd) != -1 || errno != EBADF;
    if (is_open) printf("%d is open\n", fd);
}

static void high(void) {
    int fd = made("high");
    for (int number = 900; number < 905; number++) unopened(number);
    for (int number = 900; number < 905; number++) {
        if (dup2(fd, number) != number || write(number, "+", 1) != 1) said("high", -1);
    }
    for (int number = 900; number < 905; number++) close(number);
    said("more", write(fd, ".", 1));
    close(fd);
    show("high");
}

static void *writes(void *argument) {
    do close(made("other"));
    while (!is_done);
    return argument;
}

static void all(void) {
    struct rlimit limit = {COUNT, COUNT};
    int ends[2], fd;
    pthread_t thread;
    setrlimit(RLIMIT_NOFILE, &limit);
    fd = made("all");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends)) said("pair", -1);
    pthread_create(&thread, NULL, writes, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        // Up without the last, and down without the first: somebody else has that.
        for (int step = 0; step < COUNT - FIRST - 1; step++) {
            int number = round % 2 ? COUNT - 1 - step : FIRST + step;
            if (dup2(ends[0], number) != number) said("chosen", -1);
        }
        for (int number = FIRST; number < COUNT; number++) close(number);
        for (int number = FIRST; number < COUNT; number++) unopened(number);
    }
    is_done = 1;
    pthread_join(thread, NULL);
    said("sent by others", recv(ends[1], ends, sizeof ends, MSG_DONTWAIT));
    said("more", write(fd, ".", 1));
    close(fd);
    show("all");
    show("other");
}

// A child that chooses a parent's numbers has the parent's files all the same.
static void inherited(void) {
    int fd = open("inherited", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), status;
    if (write(fd, "parent", 6) != 6) said("parent", -1);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        for (int number = 900; number < 905; number++) {
            if (close(number) != -1 || errno != EBADF) said("closed", number);
            if (dup2(0, number) != number) said("child", -1);
        }
        _exit(write(fd, "child", 5) != 5);
    }
    waitpid(child, &status, 0);
    said("status", status);
    close(fd);
    show("inherited");
}

int main(int argc, char **argv) {
    if (argc > 1 && chdir(argv[1])) return 1;
    high();
    inherited();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        all();
        return 0;
    }
    int status;
    waitpid(child, &status, 0);
    said("child", status);
    return 0;
}
