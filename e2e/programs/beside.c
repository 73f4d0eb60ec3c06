// A handler writes to one file while the code beneath it writes to another, until it has interrupted
// a write a few times; then says how often it was refused, and how many bytes are missing.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

enum { ENOUGH = 50, LEN = 10, MOST = 3000000 };

static int other, in_write;
static volatile sig_atomic_t handler_count, refusal_count, beneath_count;

static void handler(int signal) {
    (void)signal;
    int before = errno;
    if (write(other, "S", 1) == 1) handler_count++;
    else refusal_count++;
    beneath_count += in_write;
    errno = before;
}

int main(int argc, char **argv) {
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    struct stat found;
    long count = 0;
    int fd;
    if (argc != 3 || (fd = open(argv[1], O_WRONLY | O_CREAT, 0600)) < 0) return 2;
    if ((other = open(argv[2], O_WRONLY | O_CREAT, 0600)) < 0) return 2;
    signal(SIGALRM, handler);
    setitimer(ITIMER_REAL, &often, NULL);
    for (; beneath_count < ENOUGH && count < MOST; count++) {
        in_write = 1;
        if (write(fd, "abcdefghij", LEN) != LEN) return 1;
        in_write = 0;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    if (close(fd) || close(other)) return 1;
    if (stat(argv[1], &found)) return 1;
    count = count * LEN - found.st_size;
    if (stat(argv[2], &found)) return 1;
    printf("%d refused, %ld missing\n", (int)refusal_count,
           count + handler_count - (long)found.st_size);
    return 0;
}
