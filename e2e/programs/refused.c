// A handler writes to the file that the code beneath it writes to, until it has been refused a few
// times; then says why, and how many bytes of the file nobody has written.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { ENOUGH = 5, LEN = 10, MOST = 3000000 };

static int fd;
static volatile sig_atomic_t handler_count, refusal_count, why;

static void handler(int signal) {
    (void)signal;
    int before = errno;
    if (write(fd, "S", 1) == 1) handler_count++;
    else refusal_count++, why = errno;
    errno = before;
}

int main(int argc, char **argv) {
    char block[4096];
    long count = 0, holes = 0, len = 0, got;
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    if (argc != 2 || (fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600)) < 0) return 2;
    signal(SIGALRM, handler);
    setitimer(ITIMER_REAL, &often, NULL);
    for (; refusal_count < ENOUGH && count < MOST; count++) {
        if (write(fd, "abcdefghij", LEN) != LEN) return 1;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    if (lseek(fd, 0, SEEK_SET)) return 1;
    while ((got = read(fd, block, sizeof block)) > 0) {
        for (long i = 0; i < got; i++) holes += !block[i];
        len += got;
    }
    if (len != count * LEN + handler_count + holes) printf("%ld bytes\n", len);
    printf("%s\n%ld holes\n", strerror(why), holes);
    return 0;
}
