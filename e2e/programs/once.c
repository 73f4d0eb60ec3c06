// Files that a program opens and hardly uses: `read COUNT FILE` and `write COUNT FILE` open, use
// once, and close it so often; `mixed FOLDER` uses some in every way that shares them, and says
// what came of it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void check(int holds, const char *what) {
    if (!holds) {
        perror(what);
        exit(1);
    }
}

static int opened(const char *path, int flags) {
    int fd = open(path, flags, 0600);
    check(fd >= 0, path);
    return fd;
}

static void put(int fd, const char *text) {
    check(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "write");
}

static void say(const char *what, int fd) {
    char found[256];
    ssize_t len = pread(fd, found, sizeof found, 0);
    if (len < 0) printf("%s: %s\n", what, strerror(errno));
    else printf("%s: [%.*s]\n", what, (int)len, found);
}

// What another process sees of the file.
static void say_elsewhere(const char *what, const char *path) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        say(what, opened(path, O_RDONLY));
        fflush(stdout);
        _exit(0);
    }
    check(waitpid(child, NULL, 0) == child, "waitpid");
}

static void many(const char *what, long count, const char *path) {
    char byte[64] = "byte";
    for (long i = 0; i < count; i++) {
        int writes = !strcmp(what, "write");
        int fd = opened(path, writes ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY);
        check((writes ? write(fd, byte, 4) : read(fd, byte, sizeof byte)) >= 0, what);
        check(close(fd) == 0, "close");
    }
}

static void readers(void) {
    int before = opened("readers", O_RDWR | O_CREAT);
    int writer = opened("readers", O_WRONLY);
    for (int i = 0; i < 4; i++) {
        put(writer, "line ");
        say("a reader opened before", before);
    }
    int after = opened("readers", O_RDONLY);
    put(writer, "end");
    say("a reader opened after", after);
    say("a reader opened before", before);
    close(before), close(writer), close(after);
}

static void numbers(void) {
    int fd = opened("numbers", O_RDWR | O_CREAT), copy = dup(fd);
    put(fd, "a"), put(copy, "b"), put(fd, "c"), put(copy, "d");
    printf("position %ld\n", (long)lseek(copy, 0, SEEK_CUR));
    say("two numbers", fd);
    close(fd), put(copy, "e"), say("one number", copy), close(copy);
}

static void appends(void) {
    int one = opened("appends", O_RDWR | O_CREAT | O_APPEND);
    int two = opened("appends", O_RDWR | O_APPEND);
    for (int i = 0; i < 3; i++) put(one, "1"), put(two, "2");
    say("two that append", one);
    close(one), close(two);
}

static void children(void) {
    int fd = opened("children", O_RDWR | O_CREAT);
    put(fd, "1");
    char command[64];
    snprintf(command, sizeof command, "echo 2 >&%d", fd);
    char *args[] = {"sh", "-c", command, NULL};
    pid_t child;
    check(posix_spawnp(&child, "sh", NULL, NULL, args, environ) == 0, "posix_spawn");
    check(waitpid(child, NULL, 0) == child, "waitpid");
    put(fd, "3");
    fflush(stdout);
    if ((child = fork()) == 0) put(fd, "4"), _exit(0);
    check(waitpid(child, NULL, 0) == child, "waitpid");
    put(fd, "5");
    say("shared with children", fd);
    close(fd);
    say_elsewhere("seen elsewhere", "children");
}

static void locks(void) {
    int locked = opened("locks", O_RDWR | O_CREAT);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    check(fcntl(locked, F_SETLK, &lock) == 0, "F_SETLK");
    close(opened("locks", O_RDONLY));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        check(fcntl(locked, F_GETLK, &lock) == 0, "F_GETLK");
        printf("locked after another number was closed: %d\n", lock.l_type != F_UNLCK);
        fflush(stdout);
        _exit(0);
    }
    check(waitpid(child, NULL, 0) == child, "waitpid");
    close(locked);
}

static void others(void) {
    check(mkfifo("fifo", 0600) == 0, "mkfifo");
    int fifo = opened("fifo", O_RDWR);
    char byte = 0;
    put(fifo, "f");
    check(read(fifo, &byte, 1) == 1, "read");
    printf("a pipe: %c\n", byte);
    close(fifo);
    int folder = opened(".", O_RDONLY);
    printf("a folder: %s\n", read(folder, &byte, 1) < 0 ? strerror(errno) : "read");
    close(folder);
    int fd = opened("mapped", O_RDWR | O_CREAT);
    put(fd, "mapped file");
    char *map = mmap(NULL, 11, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    check(map != MAP_FAILED, "mmap");
    map[0] = 'M';
    check(pwrite(fd, "F", 1, 7) == 1, "pwrite");
    printf("a mapping: %.11s\n", map);
    say("a mapped file", fd);
    check(ftruncate(fd, 6) == 0, "ftruncate");
    put(fd, "!");
    struct stat status;
    check(fstat(fd, &status) == 0, "fstat");
    printf("length %ld, position %ld\n", (long)status.st_size, (long)lseek(fd, 0, SEEK_CUR));
    close(fd);
}

int main(int argc, char **argv) {
    if (argc == 4) return many(argv[1], atol(argv[2]), argv[3]), 0;
    if (argc != 3 || chdir(argv[2]) < 0) return 2;
    readers(), numbers(), appends(), children(), locks(), others();
    return 0;
}
