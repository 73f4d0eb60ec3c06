/* Threads with descriptor tables of their own, in which a number is another file. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int file;
static const char *name;
static pthread_barrier_t parted;

/* Puts another file beneath the number, here alone. */
static void part(void)
{
    int other = open(name, O_RDWR | O_CREAT, 0644);
    dup2(other, file);
    close(other);
    write(file, "the thread's ", 13);
}

static void *by_unshare(void *unused)
{
    printf("unshare: %d\n", unshare(CLONE_FILES));
    part();
    pthread_barrier_wait(&parted);
    pthread_barrier_wait(&parted);
    write(file, "file", 4);
    close(file);
    return unused;
}

static void *by_close_range(void *unused)
{
    printf("close_range: %ld\n", (long)close_range(1000, ~0u, CLOSE_RANGE_UNSHARE));
    part();
    pthread_barrier_wait(&parted);
    pthread_barrier_wait(&parted);
    write(file, "file", 4);
    close(file);
    return unused;
}

static int by_clone(void *unused)
{
    (void)unused;
    part();
    write(file, "file", 4);
    close(file);
    return 0;
}

int main(void)
{
    struct {
        const char *mine, *theirs;
        void *(*run)(void *);
        int flags;
    } ways[] = {
        {"unshare-1", "unshare-2", by_unshare, 0},
        {"range-1", "range-2", by_close_range, 0},
        {"clone-1", "clone-2", NULL, CLONE_VM},
        {"vfork-1", "vfork-2", NULL, CLONE_VM | CLONE_VFORK},
    };
    for (int i = 0; i < 4; i++) {
        pid_t child = fork(); /* Each way in a process that is served. */
        if (child == 0) {
            file = open(ways[i].mine, O_RDWR | O_CREAT, 0644);
            name = ways[i].theirs;
            write(file, "the process's ", 14);
            if (ways[i].run) {
                pthread_t thread;
                pthread_barrier_init(&parted, NULL, 2);
                pthread_create(&thread, NULL, ways[i].run, NULL);
                pthread_barrier_wait(&parted);
                write(file, "own ", 4);
                pthread_barrier_wait(&parted);
                pthread_join(thread, NULL);
            } else {
                char *stack = malloc(1 << 18);
                int made = clone(by_clone, stack + (1 << 18), ways[i].flags | SIGCHLD, NULL);
                write(file, "own ", 4);
                waitpid(made, NULL, 0);
            }
            write(file, "file", 4);
            close(file);
            fflush(stdout);
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    return 0;
}
