// A handler writes to the file that the code beneath it writes to.
//   refused FILE: until it has come a few times; says how often it was refused, and how many bytes
//     of the file nobody has written
//   refused FILE long: in the midst of a write that waits for long, once it is told to; says why it
//     was refused
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { ENOUGH = 200, LEN = 10, MOST = 3000000 };

static int fd, is_long;
static volatile sig_atomic_t count, refusal_count;

static void handler(int signal) {
    int before = errno;
    (void)signal;
    if (write(fd, "S", 1) == 1) {
        count++;
    } else {
        refusal_count++;
        if (is_long) puts(strerror(errno)), fflush(stdout);
    }
    errno = before;
}

static int wait_for_long(void) {
    static char block[1 << 20];
    char line[8];
    signal(SIGALRM, handler);
    if (write(fd, "a", 1) != 1 || fsync(fd)) return 1;
    puts("begun"), fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    alarm(1);
    if (write(fd, block, sizeof block) != sizeof block) return 1;
    return 0;
}

int main(int argc, char **argv) {
    char block[4096];
    long written = 0, holes = 0, len = 0, got;
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    if (argc < 2 || (fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600)) < 0) return 2;
    if ((is_long = argc > 2)) return wait_for_long();
    signal(SIGALRM, handler);
    setitimer(ITIMER_REAL, &often, NULL);
    for (; count + refusal_count < ENOUGH && written < MOST; written++) {
        if (write(fd, "abcdefghij", LEN) != LEN) return 1;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    if (lseek(fd, 0, SEEK_SET)) return 1;
    while ((got = read(fd, block, sizeof block)) > 0) {
        for (long i = 0; i < got; i++) holes += !block[i];
        len += got;
    }
    if (len != written * LEN + count + holes) printf("%ld bytes\n", len);
    printf("%d refused, %ld holes\n", (int)refusal_count, holes);
    return 0;
}
