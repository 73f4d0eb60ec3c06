// Goes on with files that children had, too, opened to be read and written without close-on-exec.
//   shared FOLDER
// Prints what it finds; run by itself as `shared child WAY FD` it is such a child.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *self;

static void ended(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    if (status) printf("status %x\n", status);
}

static void by_system(int fd) {
    (void)fd;
    if (system("true")) printf("system\n");
}

static void by_popen(int fd) {
    (void)fd;
    char line[10] = "";
    FILE *pipe = popen("echo popen", "r");
    if (!pipe || !fgets(line, sizeof line, pipe) || pclose(pipe)) printf("popen\n");
}

static void by_fork(int fd) {
    (void)fd;
    pid_t child = fork();
    if (!child) _exit(0);
    ended(child);
}

static void by_exec(int fd) {
    (void)fd;
    pid_t child = fork();
    if (!child) {
        execlp("true", "true", (char *)NULL);
        _exit(127);
    }
    ended(child);
}

static void by_vfork(int fd) {
    (void)fd;
    pid_t child = vfork();
    if (!child) {
        execlp("true", "true", (char *)NULL);
        _exit(127);
    }
    ended(child);
}

static void by_spawn(int fd) {
    (void)fd;
    pid_t child;
    char *words[] = {"true", NULL};
    if (posix_spawnp(&child, "true", NULL, NULL, words, environ)) printf("spawn\n");
    ended(child);
}

static void by_actions(int fd) {
    (void)fd;
    pid_t child;
    char *words[] = {"true", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (posix_spawnp(&child, "true", &actions, NULL, words, environ)) printf("spawn\n");
    ended(child);
}

// The child writes at the position that it shares with its parent.
static void by_writer(int fd) {
    pid_t child = fork();
    if (!child) _exit(write(fd, "child", 5) != 5);
    ended(child);
}

static void by_other_program(int fd) {
    char command[50];
    sprintf(command, "printf child 2>/dev/null >&%d", fd);
    if (system(command)) printf("system\n");
}

// Its child is there for as long as its parent uses the file.
static void by_idler(int fd) {
    (void)fd;
    static int hold[2];
    if (hold[1]) close(hold[1]);
    if (pipe2(hold, O_CLOEXEC)) printf("pipe\n");
    if (!fork()) {
        char end;
        close(hold[1]);
        _exit(read(hold[0], &end, 1) != 0);
    }
    close(hold[0]);
}

static const struct {
    const char *name;
    void (*make)(int);
} ways[] = {
    {"system", by_system}, {"popen", by_popen}, {"fork", by_fork},
    {"exec", by_exec}, {"vfork", by_vfork}, {"spawn", by_spawn},
    {"actions", by_actions}, {"writer", by_writer}, {"program", by_other_program},
    {"idler", by_idler}, {"system again", by_system},
};

static void look(int fd, const char *what) {
    char found[200] = "";
    struct stat status;
    ssize_t len = pread(fd, found, sizeof found - 1, 0);
    if (fstat(fd, &status)) status.st_size = -1;
    printf("%s: %zd %s at %ld of %ld, %d %o\n", what, len, found, (long)lseek(fd, 0, SEEK_CUR),
           (long)status.st_size, S_ISREG(status.st_mode),
           fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND));
}

static void numbers(int way, int flags) {
    char found[20] = "";
    int fd = open("numbers", O_CREAT | O_TRUNC | flags, 0644);
    int other = dup(fd);
    printf("%s %o: %zd\n", ways[way].name, flags, write(fd, "0123456789", 10));
    ways[way].make(fd);
    look(fd, "first");
    printf("%zd\n", pwrite(fd, "PP", 2, 3));
    printf("%zd\n", write(other, "more", 4));
    look(other, "wrote");
    ways[way].make(fd);
    printf("to %ld\n", (long)lseek(fd, 2, SEEK_SET));
    printf("%zd %s\n", read(fd, found, 4), found);
    look(fd, "read");
    ways[way].make(fd);
    printf("%zd %s\n", read(other, found, 3), found);
    printf("%zd\n", write(fd, "xyz", 3));
    // Behind what was appended a position is wherever the end is.
    if (flags & O_APPEND) printf("to %ld\n", (long)lseek(fd, 5, SEEK_SET));
    printf("%d\n", ftruncate(fd, 12));
    look(fd, "cut");
    printf("to %ld\n", (long)lseek(fd, -3, SEEK_END));
    ways[way].make(fd);
    printf("%zd\n", write(fd, "LAST", 4));
    ways[way].make(fd);
    look(fd, "last");
    if (fsync(fd) || close(other) || close(fd)) printf("close\n");
}

static void stream(int way) {
    char line[20] = "";
    FILE *file = fopen("stream", "w+");
    fputs("first line\nsecond line\n", file);
    fflush(file);
    ways[way].make(fileno(file));
    rewind(file);
    printf("%s", fgets(line, sizeof line, file) ? line : "nothing\n");
    fseek(file, 6, SEEK_SET);
    ways[way].make(fileno(file));
    fputs("LINE", file);
    fseek(file, 0, SEEK_END);
    ways[way].make(fileno(file));
    fputs("third", file);
    printf("%d\n", fflush(file));
    printf("at %ld\n", (long)lseek(fileno(file), 0, SEEK_CUR));
    printf("%d\n", fclose(file));
}

// What is neither read nor write.
static void others(int way) {
    char line[30] = "";
    int fd = open("others", O_CREAT | O_TRUNC | O_RDWR, 0644);
    ways[way].make(fd);
    dprintf(fd, "printed %d\n", 1);
    struct pollfd ready = {fd, POLLOUT, 0};
    printf("poll %d\n", poll(&ready, 1, 1000));
    printf("ready %x\n", (unsigned)ready.revents);
    printf("allocate %d\n", posix_fallocate(fd, 0, 5000));
    printf("advise %d\n", posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM));
    printf("end at %ld\n", (long)lseek(fd, 0, SEEK_END));
    lseek(fd, 4990, SEEK_SET);
    FILE *file = fdopen(fd, "r+");
    if (!file) return (void)printf("fdopen\n");
    ways[way].make(fd);
    fputs("by a stream", file);
    rewind(file);
    printf("%s", fgets(line, sizeof line, file) ? line : "nothing\n");
    char *map = mmap(NULL, 5001, PROT_READ, MAP_PRIVATE, fd, 0);
    printf("map %.3s\n", map == MAP_FAILED ? "-" : map + 4998);
    printf("lock %d\n", lockf(fd, F_TLOCK, 0));
    printf("%d\n", fclose(file));
}

// The child has the file, whatever the parent does with its own.
static void closing(void) {
    int gate[2], fd = open("closed", O_CREAT | O_TRUNC | O_RDWR, 0644);
    if (write(fd, "parent ", 7) != 7 || pipe(gate)) printf("closed\n");
    pid_t child = fork();
    if (!child) {
        char number[20], go;
        sprintf(number, "%d", fd);
        close(gate[1]);
        if (read(gate[0], &go, 1)) _exit(1);
        execl(self, self, "child", number, (char *)NULL);
        _exit(127);
    }
    close(fd);
    close(gate[1]);
    ended(child);
    fd = open("closed", O_RDWR);
    look(fd, "closed");
    close(fd);
    close(gate[0]);
}

static void *make_children(void *unused) {
    for (int i = 0; i < 20; i++) by_exec(-1);
    for (int i = 0; i < 5; i++) by_system(-1);
    return unused;
}

// Threads make children while another uses a file.
static void threads(void) {
    enum { COUNT = 3000 };
    pthread_t makers[3];
    int fd = open("threads", O_CREAT | O_TRUNC | O_RDWR, 0644), wrong = 0;
    for (int i = 0; i < 3; i++) pthread_create(&makers[i], NULL, make_children, NULL);
    for (int i = 0; i < COUNT; i++) {
        int found = -1;
        if (write(fd, &i, sizeof i) != sizeof i) wrong++;
        if (pread(fd, &found, sizeof found, i * sizeof i) != sizeof found || found != i) wrong++;
        if (i % 7 == 0 && pwrite(fd, &i, sizeof i, i * sizeof i) != sizeof i) wrong++;
        if (lseek(fd, 0, SEEK_CUR) != (off_t)((i + 1) * sizeof i)) wrong++;
    }
    for (int i = 0; i < 3; i++) pthread_join(makers[i], NULL);
    lseek(fd, 0, SEEK_SET);
    for (int i = 0; i < COUNT; i++) {
        int found = -1;
        if (read(fd, &found, sizeof found) != sizeof found || found != i) wrong++;
    }
    if (close(fd)) wrong++;
    printf("threads: %d wrong\n", wrong);
}

int main(int count, char **words) {
    if (count == 3) return dprintf(atoi(words[2]), "late child") != 10;
    self = realpath(words[0], NULL);
    if (count != 2 || chdir(words[1])) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int way = 0; way < (int)(sizeof ways / sizeof *ways); way++) {
        numbers(way, O_RDWR);
        numbers(way, O_RDWR | O_APPEND);
        numbers(way, O_RDWR | O_CLOEXEC);
        numbers(way, O_WRONLY);
        stream(way);
        others(way);
    }
    closing();
    threads();
    return 0;
}
