// A lock is gone with its owner, which was killed or has become another program, also where every
// core is busy: who starts the program again at once must not be told that it is taken.
//   outlived FILE
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HOGS = 4, ROUNDS = 40 };

int main(int count, char **arguments) {
    if (count != 2) return 2;
    pid_t hogs[HOGS];
    for (int i = 0; i < HOGS; i++)
        if ((hogs[i] = fork()) == 0)
            for (;;) {}
    int taken = 0;
    for (int i = 0; i < ROUNDS; i++) {
        pid_t child = fork();
        if (child == 0) {
            int file = open(arguments[1], O_RDWR | O_CREAT | O_CLOEXEC, 0644);
            for (int k = 0; k < 10; k++)
                if (write(file, "abc", 3) != 3) _exit(3);
            struct flock whole = {.l_type = F_WRLCK};
            if (i % 4 < 2 ? flock(file, LOCK_EX) : fcntl(file, F_OFD_SETLKW, &whole)) _exit(4);
            for (int k = 0; k < 10; k++)
                if (write(file, "def", 3) != 3) _exit(3);
            if (i % 2) execl("/bin/true", "true", (char *)NULL);
            raise(SIGKILL);
        }
        waitpid(child, NULL, 0);
        int file = open(arguments[1], O_RDWR);
        struct flock whole = {.l_type = F_WRLCK};
        taken += i % 4 < 2 ? flock(file, LOCK_EX | LOCK_NB) != 0 : fcntl(file, F_OFD_SETLK, &whole) != 0;
        close(file);
    }
    for (int i = 0; i < HOGS; i++) kill(hogs[i], SIGKILL);
    while (wait(NULL) > 0) {}
    printf("%d\n", taken);
    return 0;
}
