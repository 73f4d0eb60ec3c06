// Calls that the compiler replaces by checked ones when it knows a buffer's size but not the length.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **arguments) {
    volatile size_t len = 12 + count;
    volatile int flags = O_RDWR;
    char got[32] = "";
    int fd = open("checked", O_RDWR | O_CREAT | O_TRUNC, 0644);
    write(fd, "0123456789abcdefghij", 20);
    int again = open("checked", flags);
    printf("read %zd %s\n", read(again, got, len), got);
    printf("pread %zd %s\n", pread(again, got, len, 5), got);
    int relative = openat(AT_FDCWD, "checked", flags);
    printf("openat %d\n", relative > 0);
    FILE *stream = fopen("checked", "r+");
    printf("fgets %s\n", fgets(got, len, stream));
    fprintf(stream, "%s %d\n", arguments[0] ? "printed" : "", count);
    fclose(stream);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        len = 100;
        freopen("/dev/null", "w", stderr);
        read(again, got, len);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    printf("overflow ends by signal %d\n", WTERMSIG(status) == SIGABRT);
    return 0;
}
