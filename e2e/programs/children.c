// Processes that share files, replace each other, and end in every way.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int fresh(const char *name) {
    return open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
}

static void ended(const char *what, pid_t child) {
    int status;
    waitpid(child, &status, 0);
    printf("%s: %s %d\n", what, WIFEXITED(status) ? "exit" : "signal", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    fflush(stdout);
}

static void size(const char *name) {
    struct stat st;
    printf("%s: %ld\n", name, stat(name, &st) ? -1L : (long)st.st_size);
    fflush(stdout);
}

static void sharing(void) {
    int fd = fresh("shared");
    write(fd, "parent ", 7);
    pid_t child = fork();
    if (!child) {
        write(fd, "child ", 6);
        int own = fresh("child");
        write(own, "own", 3);
        _exit(3);
    }
    ended("fork", child);
    write(fd, "parent again", 12);
    printf("at %ld\n", (long)lseek(fd, 0, SEEK_CUR));
    size("shared");
    size("child");
    int mine = fresh("mine");
    write(mine, "after fork", 10);
    size("mine");
    close(mine);
    FILE *stream = fopen("stream", "w");
    fputs("before ", stream);
    fflush(stream);
    child = fork();
    if (!child) {
        fputs("child ", stream);
        exit(0);
    }
    ended("stream", child);
    fputs("parent\n", stream);
    fclose(stream);
    size("stream");
}

static int cloned(void *argument) {
    int fd = *(int *)argument, own = fresh("clones-own");
    write(fd, "clone ", 6);
    write(own, "own", 3);
    return close(own) == 0 ? 8 : 9;
}

static void cloning(void) {
    static char stack[1 << 16];
    int fd = fresh("cloned");
    for (int way = 0; way < 2; way++) {
        write(fd, "parent ", 7);
        pid_t child = way ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : clone(cloned, stack + sizeof stack, SIGCHLD, &fd);
        if (!child) _exit(cloned(&fd));
        ended("clone", child);
        write(fd, "again ", 6);
        printf("at %ld\n", (long)lseek(fd, 0, SEEK_CUR));
        size("clones-own");
    }
    close(fd);
    size("cloned");
}

static void replacing(void) {
    int fd = fresh("exec");
    dup2(fd, 9);
    write(9, "before ", 7);
    pid_t child = fork();
    if (!child) execl("/bin/sh", "sh", "-c", "echo in shell >&9; exit 4", (char *)NULL);
    ended("execl", child);
    if (!(child = vfork())) {
        execlp("sh", "sh", "-c", "echo \"$0 $1 $2 $3 $4 $5 $6 $7\" >&9; exit 5", "a", "b", "c", "d", "e", "f", "g", "h", (char *)NULL);
        _exit(127);
    }
    ended("execlp", child);
    char *variables[] = {"NAME=value", NULL};
    if (!(child = fork())) execle("/bin/sh", "sh", "-c", "echo $NAME$HOME >&9", "x", "y", "z", "u", (char *)NULL, variables);
    ended("execle", child);
    char *listed[] = {"sh", "-c", "echo listed >&9", NULL};
    if (!(child = fork())) execv("/bin/sh", listed);
    ended("execv", child);
    if (!(child = vfork())) {
        execvp("sh", listed);
        _exit(127);
    }
    ended("execvp", child);
    if (!(child = fork())) {
        execl("/no/such/program", "x", (char *)NULL);
        write(9, "still here ", 11);
        _exit(errno == ENOENT ? 6 : 7);
    }
    ended("missing", child);
    posix_spawnp(&child, "sh", NULL, NULL, listed, environ);
    ended("spawn", child);
    // glibc has this since 2.39.
    int (*by_handle)(int *, const char *, void *, void *, char **, char **) =
        dlsym(RTLD_DEFAULT, "pidfd_spawnp");
    write(9, "by handle ", 10);
    siginfo_t info = {0};
    int handle, failed = by_handle ? by_handle(&handle, "sh", NULL, NULL, listed, environ) : ENOSYS;
    if (!failed) waitid(P_PIDFD, handle, &info, WEXITED);
    printf("by handle %d %d\n", failed, info.si_status);
    write(9, "after", 5);
    size("exec");
}

static void helpers(void) {
    FILE *stream = fopen("read-by-cat", "w");
    fputs("for the shell\n", stream);
    fflush(stream);
    printf("system %d\n", system("cat read-by-cat > copied"));
    size("copied");
    FILE *pipe = popen("cat read-by-cat; echo popen", "r");
    char line[100];
    while (fgets(line, sizeof line, pipe)) printf("popen: %s", line);
    printf("pclose %d\n", pclose(pipe));
    pipe = popen("cat > from-pipe", "w");
    fprintf(pipe, "to the shell\n");
    printf("pclose %d\n", pclose(pipe));
    size("from-pipe");
    fclose(stream);
    fflush(stdout);
}

static void binaries(char *self) {
    int from = open(self, O_RDONLY), to = open("copy", O_WRONLY | O_CREAT | O_TRUNC, 0755);
    char some[8192];
    ssize_t len;
    while ((len = read(from, some, sizeof some)) > 0) write(to, some, len);
    close(from);
    close(to);
    pid_t child = fork();
    if (!child) {
        execl("./copy", "copy", "short", (char *)NULL);
        _exit(errno);
    }
    ended("own binary", child);
    unlink("copy");
}

static void endings(void) {
    for (int way = 0; way < 5; way++) {
        pid_t child = fork();
        if (!child) {
            char name[20];
            sprintf(name, "ending%d", way);
            FILE *stream = fopen(name, "w");
            fputs("flushed ", stream);
            fflush(stream);
            int fd = fileno(stream);
            write(fd, "written ", 8);
            fputs("buffered", stream);
            switch (way) {
            case 0: exit(0);
            case 1: _exit(1);
            case 2: _Exit(2);
            case 3: quick_exit(3);
            default: abort();
            }
        }
        ended("ending", child);
    }
}

static void mapping(void) {
    int fd = fresh("mapped");
    for (int i = 0; i < 1000; i++) write(fd, "0123456789", 10);
    char *map = mmap(NULL, 10000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    printf("mapped %.10s %.5s\n", map, map + 9995);
    map[3] = 'X';
    write(fd, "end", 3);
    pwrite(fd, "PPP", 3, 100);
    printf("seen %.3s\n", map + 100);
    char got[11] = "";
    pread(fd, got, 10, 0);
    printf("read %s\n", got);
    msync(map, 10000, MS_SYNC);
    munmap(map, 10000);
    close(fd);
    int again = open("mapped", O_RDONLY);
    map = mmap(NULL, 10003, PROT_READ, MAP_PRIVATE, again, 0);
    printf("private %.10s %.3s\n", map, map + 10000);
}

int main(int count, char **arguments) {
    if (count > 1) return 9;
    sharing();
    cloning();
    replacing();
    helpers();
    binaries(arguments[0]);
    endings();
    mapping();
    return 0;
}
