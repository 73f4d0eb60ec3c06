/* Gives up being root, or its root folder, and tries what it can no longer do. Status 77 unless it
 * is root.
 *
 *   dropped            as another user: by libc, for now, and by the system call alone
 *   dropped FOLDER     with FOLDER for its root */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOBODY = 65534 };

static void try(const char *secret)
{
    int file = open(secret, O_RDONLY);
    printf("read: %s\n", file < 0 ? strerror(errno) : "done");
    file = open("made", O_WRONLY | O_CREAT, 0644);
    printf("make: %s\n", file < 0 ? strerror(errno) : "done");
    fflush(stdout);
}

static int by_function(void) { return setuid(NOBODY); }
static int for_now(void) { return seteuid(NOBODY); }
static int by_number(void) { return syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY); }

int main(int argc, char **argv)
{
    int (*const ways[])(void) = {by_function, for_now, by_number};
    char secret[4096];
    if (geteuid() != 0) {
        puts("not root");
        return 77;
    }
    getcwd(secret, sizeof secret - 8);
    strcat(secret, "/secret");
    int file = open(secret, O_WRONLY | O_CREAT, 0600);
    write(file, "secret", 6);
    close(file);
    if (argc > 1) {
        if (chroot(argv[1]) != 0) return 1;
        try(secret);
        return 0;
    }
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0) {
            close(open(secret, O_RDONLY)); /* It has a session. */
            if (ways[i]() != 0) _exit(1);
            try(secret);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        printf("status %d\n", status);
    }
    return 0;
}
