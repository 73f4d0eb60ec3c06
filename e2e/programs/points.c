/* Cancels threads that do nothing but calls on files, and before such a call; in FOLDER, if given:
     points [FOLDER] */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/file.h>
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
static void by_fallocate(void) { fallocate(file, 0, 0, 100); }
static void by_sync_file_range(void) { sync_file_range(file, 0, 1, SYNC_FILE_RANGE_WRITE); }
static void by_lockf(void) { lockf(file, F_LOCK, 1); }
static void by_flock(void) { flock(file, LOCK_EX), flock(file, LOCK_UN); }

static const struct {
    const char *name;
    void (*call)(void);
} ways[] = {
    {"write", by_write}, {"pwrite", by_pwrite}, {"writev", by_writev}, {"read", by_read},
    {"pread", by_pread}, {"readv", by_readv}, {"fsync", by_fsync}, {"fdatasync", by_fdatasync},
    {"open", by_open}, {"close", by_close}, {"fallocate", by_fallocate},
    {"sync_file_range", by_sync_file_range}, {"lockf", by_lockf},
    {"flock", by_flock}, /* No cancellation point. */
};
enum { WAYS = sizeof ways / sizeof *ways };

static int is_passed;

static void *pass(void *call)
{
    pthread_cancel(pthread_self());
    ((void (*)(void))call)();
    is_passed = 1;
    return NULL;
}

static void cancel_before(const char *name, void (*call)(void))
{
    pthread_t thread;
    is_passed = 0;
    pthread_create(&thread, NULL, pass, (void *)call);
    pthread_join(thread, NULL);
    printf("%s: %s\n", name, is_passed ? "passed" : "cancelled");
}

static void *repeat(void *call)
{
    while (call) ((void (*)(void))call)();
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc > 1 && chdir(argv[1])) return 1;
    file = open("file", O_RDWR | O_CREAT, 0644);
    write(file, "x", 1);
    for (int i = 0; i < WAYS; i++) cancel_before(ways[i].name, ways[i].call);
    for (int i = 0; i < WAYS - 1; i++) {
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
