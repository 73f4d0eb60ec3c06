/* Cancels threads that do nothing but calls on files, each a cancellation point. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int file;
static char byte;
static struct iovec one = {&byte, 1};

static void by_write(void) { write(file, "x", 1), lseek(file, 0, SEEK_SET); }
static void by_pwrite(void) { pwrite(file, "x", 1, 0); }
static void by_writev(void) { writev(file, &one, 1), lseek(file, 0, SEEK_SET); }
static void by_read(void) { read(file, &byte, 1), lseek(file, 0, SEEK_SET); }
static void by_pread(void) { pread(file, &byte, 1, 0); }
static void by_readv(void) { readv(file, &one, 1), lseek(file, 0, SEEK_SET); }
static void by_fsync(void) { fsync(file); }
static void by_fdatasync(void) { fdatasync(file); }
static void by_open(void) { close(open("file", O_RDONLY)); }
static void by_close(void) { close(dup(file)); }

static const struct {
    const char *name;
    void (*call)(void);
} ways[] = {
    {"write", by_write}, {"pwrite", by_pwrite}, {"writev", by_writev}, {"read", by_read},
    {"pread", by_pread}, {"readv", by_readv}, {"fsync", by_fsync}, {"fdatasync", by_fdatasync},
    {"open", by_open}, {"close", by_close},
};

static void *repeat(void *call)
{
    for (;;) ((void (*)(void))call)();
}

int main(void)
{
    file = open("file", O_RDWR | O_CREAT, 0644);
    write(file, "x", 1);
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        pthread_t thread;
        struct timespec until;
        pthread_create(&thread, NULL, repeat, (void *)ways[i].call);
        usleep(3000);
        pthread_cancel(thread);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 20;
        int failed = pthread_timedjoin_np(thread, NULL, &until);
        printf("%s: %s\n", ways[i].name, failed ? "goes on" : "cancelled");
        if (failed) break;
    }
    unlink("file");
    fflush(stdout);
    _exit(0); /* A thread that goes on has the file. */
}
