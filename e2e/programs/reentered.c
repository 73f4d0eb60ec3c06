// A handler opens and closes a file that its thread is opening and closing, while other processes
// have every core: so it interrupts that anywhere. Says how often it could not, and why.
//   reentered FOLDER
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <unistd.h>

enum { ENOUGH = 10000, SPINNERS = 3 };

static volatile sig_atomic_t handler_count, refusal_count, why;

static void handler(int signal) {
    int before = errno, fd = open("file", O_RDONLY);
    (void)signal;
    handler_count++;
    if (fd < 0 || close(fd) != 0) refusal_count++, why = errno;
    errno = before;
}

int main(int argc, char **argv) {
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    for (int i = 0; i < SPINNERS; i++) {
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;) continue;
        }
    }
    if (argc != 2 || chdir(argv[1]) != 0) return 2;
    close(open("file", O_WRONLY | O_CREAT, 0600));
    signal(SIGALRM, handler);
    setitimer(ITIMER_REAL, &often, NULL);
    while (handler_count < ENOUGH) {
        int fd = open("file", O_RDONLY);
        if (fd < 0 || close(fd) != 0) return 1;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    printf("refused: %d, %s\n", (int)refusal_count, strerror(why));
    return 0;
}
