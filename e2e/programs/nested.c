// A handler uses the file that the code it interrupts is writing: cuts it and goes back to its
// start; writes over what was written before; reads that. Prints how often it was not as natively.
//   nested FILE
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

enum { ROUNDS = 150 };
static const char line[] = "0123456789abcde\n";

static int fd, unread;
static volatile sig_atomic_t done;

static void cut(int signal) {
    (void)signal;
    done = ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0 ? 1 : -1;
}

static void overwrite(int signal) {
    (void)signal;
    char found = 0;
    done = pread(fd, &found, 1, 0) >= 0 && pwrite(fd, "h", 1, 0) == 1 ? 1 : -1;
    unread += found != 'm';
}

static void start(void (*handler)(int), int after_us) {
    struct itimerval timer = {.it_value.tv_usec = after_us};
    done = 0;
    signal(SIGALRM, handler);
    setitimer(ITIMER_REAL, &timer, NULL);
}

static int was_cut_badly(const char *path, int round) {
    char found[16] = "";
    struct stat now;
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    start(cut, 1000 + round * 7);
    while (!done) (void)!write(fd, line, 16);
    (void)!write(fd, line, 16);
    fstat(fd, &now);
    (void)!pread(fd, found, 16, 0);
    close(fd);
    return done < 0 || memcmp(found, line, 16) != 0 || now.st_size > 32;
}

static int was_lost(const char *path, int round) {
    static const char block[4096];
    char found = 0;
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    (void)!pwrite(fd, "x", 1, 8192);
    (void)!pwrite(fd, "m", 1, 0);
    start(overwrite, 100 + round);
    while (!done) (void)!pwrite(fd, block, sizeof block, 4096);
    (void)!pread(fd, &found, 1, 0);
    close(fd);
    return done < 0 || found != 'h';
}

int main(int argc, char **argv) {
    int badly = 0, lost = 0;
    if (argc != 2) return 1;
    for (int round = 0; round < ROUNDS; round++) {
        badly += was_cut_badly(argv[1], round);
        lost += was_lost(argv[1], round);
    }
    printf("cut: %d, written: %d, read: %d\n", badly, lost, unread);
    return 0;
}
