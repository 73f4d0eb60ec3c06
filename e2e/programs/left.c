// A handler leaves writes to some files by a jump. Then another thread uses other files. Says
// whether it came to an end.
//   left FOLDER
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { FILES = 20, WRITES = 2000, PATIENCE_S = 10 };

static sigjmp_buf out;

static void handler(int signal) {
    (void)signal;
    siglongjmp(out, 1);
}

static void leave_a_write(volatile int number) {
    struct itimerval soon = {{0, 0}, {0, 30 + 7 * number}};
    char name[16];
    snprintf(name, sizeof name, "left%d", number);
    volatile int fd = open(name, O_WRONLY | O_CREAT, 0600);
    for (int i = 0; i < WRITES; i++) write(fd, "abcd", 4);
    if (sigsetjmp(out, 1)) return;
    setitimer(ITIMER_REAL, &soon, NULL);
    for (;;) write(fd, "abcd", 4);
}

static void *use_others(void *failed) {
    struct stat status;
    int fd = open("other", O_RDWR | O_CREAT, 0600), *why = failed;
    for (int i = 0; i < WRITES; i++) *why |= write(fd, "abcd", 4) != 4;
    *why |= rename("other", "renamed") || fstat(fd, &status) || status.st_size != 4 * WRITES;
    *why |= lockf(fd, F_LOCK, 1) || close(fd) || stat("renamed", &status) || unlink("renamed");
    for (int i = 0; i < 100; i++) *why |= mkdir("folder", 0700) || rmdir("folder");
    return NULL;
}

int main(int argc, char **argv) {
    int failed = 0;
    pthread_t thread;
    struct timespec until;
    if (argc != 2 || chdir(argv[1]) != 0) return 2;
    signal(SIGALRM, handler);
    for (int i = 0; i < FILES; i++) leave_a_write(i);
    pthread_create(&thread, NULL, use_others, &failed);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    int waits = pthread_timedjoin_np(thread, NULL, &until);
    printf("%s\n", waits ? "waits for ever" : failed ? "failed" : "done");
    fflush(stdout);
    _exit(0);
}
