// A handler opens and closes a file that its thread is opening and closing. Says how often it could
// not, and why.
//   reentered FOLDER
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { ENOUGH = 5000 };

// Once: the next handler is as long after the end of this one, however long it has taken.
static const struct itimerval soon = {{0, 0}, {0, 100}};

static volatile sig_atomic_t handler_count, refusal_count, why;

static void handler(int signal) {
    int before = errno, fd = open("file", O_RDONLY);
    (void)signal;
    handler_count++;
    if (fd < 0 || close(fd) != 0) refusal_count++, why = errno;
    if (handler_count < ENOUGH) setitimer(ITIMER_REAL, &soon, NULL);
    errno = before;
}

int main(int argc, char **argv) {
    if (argc != 2 || chdir(argv[1]) != 0) return 2;
    close(open("file", O_WRONLY | O_CREAT, 0600));
    signal(SIGALRM, handler);
    setitimer(ITIMER_REAL, &soon, NULL);
    while (handler_count < ENOUGH) {
        int fd = open("file", O_RDONLY);
        if (fd < 0 || close(fd) != 0) return 1;
    }
    printf("refused: %d, %s\n", (int)refusal_count, strerror(why));
    return 0;
}
