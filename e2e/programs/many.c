/* As many processes as are asked for, each with a file open for as long as all others have one.
 *
 *   many COUNT FOLDER
 *
 * Each process writes 64 lines to FOLDER/NUMBER. Once all have, "ready\n" is on standard output; when
 * standard input is closed each writes 64 more, and closes. Exit status: 0; 1 if a call failed.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINES = 64 };

static int failed(const char *call)
{
    perror(call);
    return 1;
}

static int lines(int fd, int number)
{
    char line[32];
    int len = snprintf(line, sizeof line, "process %d\n", number);
    for (int i = 0; i < LINES; i++)
        if (write(fd, line, len) != len)
            return failed("write");
    return 0;
}

static int work(int number, int told, int awaited)
{
    char name[32], byte = 'x';
    snprintf(name, sizeof name, "%d", number);
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || lines(fd, number))
        return failed(name);
    if (write(told, &byte, 1) != 1 || read(awaited, &byte, 1) != 0)
        return failed("a pipe");
    return lines(fd, number) || (close(fd) && failed("close"));
}

int main(int argc, char **argv)
{
    int count = argc > 2 ? atoi(argv[1]) : 0, told[2], go[2], wrong = 0;
    char byte;
    if (count < 1 || chdir(argv[2]) || pipe(told) || pipe(go))
        return failed("many");
    for (int number = 0; number < count; number++) {
        pid_t child = fork();
        if (child < 0)
            return failed("fork");
        if (child == 0) {
            close(go[1]);
            return work(number, told[1], go[0]);
        }
    }
    close(told[1]);
    for (int number = 0; number < count; number++)
        if (read(told[0], &byte, 1) != 1)
            return failed("a process");
    puts("ready");
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    close(go[1]);
    for (int status; wait(&status) > 0;)
        wrong |= status;
    return wrong != 0;
}
