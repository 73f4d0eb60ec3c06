// Writes files after everything else has ended: a function of an exit that was given first is
// called last, after the destructors of all libraries. And ends while threads have streams.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int written, fresh;
static FILE *closed, *held;

static int make(const char *name) { return open(name, O_RDWR | O_CREAT | O_TRUNC, 0644); }

static void say(int fd, const char *text) { write(fd, text, strlen(text)); }

static void last(int status, void *unused) {
    say(written, " late");
    say(fresh, "late");
    fputs(" late", closed);
    fclose(closed);
    int new = make("new");
    say(new, "late");
    say(new, " and later");
    lseek(new, 0, SEEK_SET);
    say(new, "LATE");
    fputs("not closed", fopen("open", "w"));
    (void)status, (void)unused;
}

static void first_of_all(void) { on_exit(last, NULL); }

__attribute__((section(".preinit_array"), used)) static void (*const start)(void) = first_of_all;

// Waits for what never comes, and has the stream meanwhile.
static void *read_on(void *unused) { return getchar(), unused; }

static void *hold(void *unused) {
    flockfile(held);
    fputs("held", held);
    pause();
    return unused;
}

// A thread that sleeps has come to where it stays.
static void wait_for_threads(int count) {
    for (int asleep = 0; asleep < count; usleep(1000)) {
        char command[99], line[99];
        snprintf(command, sizeof command, "grep -l ' S ' /proc/%d/task/*/stat | wc -l", getpid());
        FILE *found = popen(command, "r");
        asleep = fgets(line, sizeof line, found) ? atoi(line) : 0;
        pclose(found);
    }
}

int main(void) {
    int ends[2];
    pthread_t thread;
    if (pipe(ends) || dup2(ends[0], 0)) return 2;
    written = make("written");
    say(written, "early");
    fresh = make("fresh");
    closed = fopen("closed", "w");
    fputs("early", closed);
    held = fopen("held", "w");
    pthread_create(&thread, NULL, read_on, NULL);
    pthread_create(&thread, NULL, hold, NULL);
    wait_for_threads(2);
    fputs("buffered", fopen("buffered", "w"));
    puts("ends");
    return 3;
}
