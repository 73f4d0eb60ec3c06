// Functions that libc runs at each fork, and that use files.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <pty.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 2 };

static int round_number, kept, opened = -1;
static FILE *stream;

static int make(const char *name) {
    char path[40];
    sprintf(path, "%s%d", name, round_number);
    return open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
}

static void say(int fd, const char *text) { write(fd, text, strlen(text)); }

static void before(void) {
    say(kept, "before ");
    opened = make("opened");
    say(opened, "before ");
    fputs("before ", stream);
    fflush(stream);
}

static void in_parent(void) {
    int own = make("parent");
    say(own, "parent");
    close(own);
}

static void in_child(void) {
    say(kept, "child ");
    say(opened, "child ");
    int own = make("child");
    say(own, "handler ");
    // The handler's descriptor is used on.
    dup2(own, 77);
    close(own);
}

// Before any library's functions run, as those of libraries are that start first.
static void first_of_all(void) { pthread_atfork(before, in_parent, in_child); }

__attribute__((section(".preinit_array"), used)) static void (*const start)(void) = first_of_all;

static pid_t start_child(int how) {
    int terminal;
    return how == 0 ? fork() : forkpty(&terminal, NULL, NULL, NULL);
}

int main(void) {
    kept = open("kept", O_RDWR | O_CREAT | O_TRUNC, 0600);
    stream = fopen("stream", "w");
    for (round_number = 0; round_number < ROUNDS; round_number++) {
        say(kept, "program ");
        fputs("program ", stream);
        fflush(stream);
        pid_t child = start_child(round_number);
        if (child == 0) {
            say(kept, "in child ");
            say(opened, "in child ");
            say(77, "in child");
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        say(opened, "in parent");
        close(opened);
        printf("status %d, kept %ld\n", status, (long)lseek(kept, 0, SEEK_CUR));
    }
    return 0;
}
