/* A program that counts its numbers, uses them up, and ends with none free. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT = 64, RECORDS = 4000 };

static void records(int fd)
{
    for (int i = 0; i < RECORDS; i++)
        if (write(fd, "0123456789abcdef", 16) != 16)
            perror("write");
}

static int made(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    records(fd);
    return fd;
}

/* As programs do that close, or count, what they have inherited. */
static void scan(void)
{
    int by_status = 0, by_flags = 0;
    struct stat found;
    for (int fd = 0; fd < LIMIT; fd++) {
        by_status += fstat(fd, &found) == 0;
        by_flags += fcntl(fd, F_GETFD) >= 0;
    }
    printf("open: %d, %d\n", by_status, by_flags);
}

/* Numbers are the program's to choose, the last one, too. */
static void use_up(void)
{
    int count = 0;
    while (dup(0) >= 0)
        count++;
    perror("dup");
    printf("free: %d\n", count);
    for (int fd = LIMIT - 8; fd < LIMIT; fd++)
        if (dup2(0, fd) != fd)
            perror("dup2");
}

static void limit(rlim_t soft, rlim_t hard)
{
    struct rlimit limit = {soft, hard};
    if (setrlimit(RLIMIT_NOFILE, &limit))
        perror("setrlimit");
}

int main(void)
{
    struct rlimit before;
    struct stat found;
    getrlimit(RLIMIT_NOFILE, &before);
    limit(LIMIT, before.rlim_max);
    int fd = made("first");
    scan();
    use_up();
    records(fd);
    printf("close: %d\n", close(fd));
    stat("first", &found);
    printf("size: %ld\n", (long)found.st_size);
    fd = made("second");
    dup(0);
    records(fd);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        /* There is no way to one number more. */
        for (int i = 3; i < LIMIT; i++)
            close(i);
        limit(LIMIT, LIMIT);
        fd = made("third");
        while (dup(0) >= 0)
            ;
        records(fd);
        exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    printf("child: %d\n", status);
    return 0;
}
