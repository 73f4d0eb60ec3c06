// Locks of files, in every way there is to take them.
//   locks count FILE N KIND   N times under a lock: reads a number, adds one, writes it
//   locks hold FILE KIND      takes a lock, says so, and waits to be killed
//   locks keep FILE KIND      takes a lock, says so, waits for a line, and says what came of it
//   locks leave FILE KIND     takes a lock, and ends with it
//   locks again FILE KIND     whether nobody has the lock
//   locks try FILE KIND       says so for each line
//   locks ask FILE KIND       tries to take a lock, over and over
//   locks rules FILE          says what is refused and granted, and when
// KIND: posix, ofd, flock, lockf.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *path;

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static int open_file(int mode) {
    int fd = open(path, mode | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) fail("open");
    return fd;
}

static int set(int fd, int command, int type, off_t start, off_t len) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
    return fcntl(fd, command, &lock);
}

static int lock(int fd, const char *kind) {
    if (!strcmp(kind, "posix")) return set(fd, F_SETLKW, F_WRLCK, 0, 0);
    if (!strcmp(kind, "ofd")) return set(fd, F_OFD_SETLKW, F_WRLCK, 0, 0);
    if (!strcmp(kind, "flock")) return flock(fd, LOCK_EX);
    lseek(fd, 0, SEEK_SET);
    return lockf(fd, F_LOCK, 0);
}

static int try(int fd, const char *kind) {
    if (!strcmp(kind, "posix")) return set(fd, F_SETLK, F_WRLCK, 0, 0);
    if (!strcmp(kind, "ofd")) return set(fd, F_OFD_SETLK, F_WRLCK, 0, 0);
    if (!strcmp(kind, "flock")) return flock(fd, LOCK_EX | LOCK_NB);
    lseek(fd, 0, SEEK_SET);
    return lockf(fd, F_TLOCK, 0);
}

static int unlock(int fd, const char *kind) {
    if (!strcmp(kind, "posix")) return set(fd, F_SETLK, F_UNLCK, 0, 0);
    if (!strcmp(kind, "ofd")) return set(fd, F_OFD_SETLK, F_UNLCK, 0, 0);
    if (!strcmp(kind, "flock")) return flock(fd, LOCK_UN);
    lseek(fd, 0, SEEK_SET);
    return lockf(fd, F_ULOCK, 0);
}

static void count(int rounds, const char *kind) {
    int fd = open_file(O_RDWR);
    for (int round = 0; round < rounds; round++) {
        char text[32] = "";
        if (lock(fd, kind)) fail("lock");
        if (pread(fd, text, sizeof text - 1, 0) < 0) fail("read");
        int len = snprintf(text, sizeof text, "%d", atoi(text) + 1);
        if (pwrite(fd, text, len, 0) != len) fail("write");
        if (unlock(fd, kind)) fail("unlock");
    }
}

static void say(const char *text) {
    printf("%s\n", text);
    fflush(stdout);
}

static void keep(const char *kind) {
    char line[8];
    int fd = open_file(O_RDWR);
    if (lock(fd, kind)) fail("lock");
    say("locked");
    if (!fgets(line, sizeof line, stdin)) return;
    int wrote = pwrite(fd, "x", 1, 0) == 1 && fsync(fd) == 0;
    printf("write: %s\n", wrote ? "done" : strerror(errno));
    printf("unlock: %s\n", unlock(fd, kind) == 0 ? "done" : strerror(errno));
}

// What another process finds: 0 granted, else the error.
static int other(int command, int type, off_t start, off_t len) {
    pid_t child = fork();
    if (child == 0) {
        int fd = open_file(O_RDWR);
        int done = command < 0 ? flock(fd, type | LOCK_NB) : set(fd, command, type, start, len);
        _exit(done == 0 ? 0 : errno == EACCES ? EAGAIN : errno);
    }
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

static void tell(const char *what, int error) {
    printf("%s: %s\n", what, error ? strerror(error) : "granted");
}

static void told(const char *what, int done) { tell(what, done == 0 ? 0 : errno); }

static void find(const char *what, int command, int type, off_t start, off_t len) {
    pid_t child = fork();
    if (child == 0) {
        int fd = open_file(O_RDWR);
        struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
        int done = fcntl(fd, command, &lock);
        const char *found = lock.l_type == F_UNLCK ? "none" : lock.l_type == F_RDLCK ? "read" : "write";
        printf("%s: %d %s", what, done, found);
        if (lock.l_type != F_UNLCK) printf(" %ld+%ld", (long)lock.l_start, (long)lock.l_len);
        printf("\n");
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void records(void) {
    int fd = open_file(O_RDWR), second = open_file(O_RDWR);
    told("write lock", set(fd, F_SETLK, F_WRLCK, 10, 10));
    told("own again, by another descriptor", set(second, F_SETLK, F_RDLCK, 12, 2));
    tell("other, the same", other(F_SETLK, F_WRLCK, 10, 10));
    tell("other, beside", other(F_SETLK, F_WRLCK, 20, 0));
    tell("other, to read what is shared", other(F_SETLK, F_RDLCK, 12, 2));
    tell("other, to read what is not", other(F_SETLK, F_RDLCK, 14, 1));
    find("found", F_GETLK, F_WRLCK, 0, 0);
    find("found in the middle", F_GETLK, F_WRLCK, 12, 1);
    find("found beside", F_GETLK, F_WRLCK, 30, 1);
    tell("other's open file", other(F_OFD_SETLK, F_WRLCK, 10, 1));
    told("unlock a part", set(fd, F_SETLK, F_UNLCK, 0, 15));
    tell("other, that part", other(F_SETLK, F_WRLCK, 0, 15));
    tell("other, the rest", other(F_SETLK, F_WRLCK, 15, 1));
    close(second);
    tell("other, after a close", other(F_SETLK, F_WRLCK, 0, 0));
    told("lock", set(fd, F_SETLK, F_WRLCK, 0, 0));
    close(dup(fd));
    tell("other, after the close of a duplicate", other(F_SETLK, F_WRLCK, 0, 0));
    if (pwrite(fd, "0123456789", 10, 0) != 10) fail("write");
    struct flock tail = {.l_type = F_WRLCK, .l_whence = SEEK_END, .l_start = 0, .l_len = -4};
    told("the last bytes", fcntl(fd, F_SETLK, &tail));
    find("found at the end", F_GETLK, F_WRLCK, 0, 0);
    struct flock bad = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = -1};
    told("before the start", fcntl(fd, F_SETLK, &bad));
    bad.l_type = 77;
    told("of no type", fcntl(fd, F_SETLK, &bad));
    close(fd);
    int reader = open_file(O_RDONLY);
    told("write lock of a reader", set(reader, F_SETLK, F_WRLCK, 0, 1));
    told("read lock of a reader", set(reader, F_SETLK, F_RDLCK, 0, 1));
    tell("other, to read", other(F_SETLK, F_RDLCK, 0, 1));
    tell("other, to write", other(F_SETLK, F_WRLCK, 0, 1));
    close(reader);
    int writer = open_file(O_WRONLY);
    told("read lock of a writer", set(writer, F_SETLK, F_RDLCK, 0, 1));
    close(writer);
}

static void open_files(void) {
    int fd = open_file(O_RDWR), second = open_file(O_RDWR), copy = dup(fd);
    told("open file's lock", set(fd, F_OFD_SETLK, F_WRLCK, 0, 0));
    told("another open file of the process", set(second, F_OFD_SETLK, F_RDLCK, 0, 1));
    told("the process", set(second, F_SETLK, F_RDLCK, 0, 1));
    told("a duplicate", set(copy, F_OFD_SETLK, F_WRLCK, 0, 0));
    close(fd);
    tell("other, after the close of a duplicate", other(F_OFD_SETLK, F_WRLCK, 0, 0));
    find("found", F_OFD_GETLK, F_RDLCK, 5, 5);
    close(copy);
    told("after the last close", set(second, F_OFD_SETLK, F_WRLCK, 0, 0));
    close(second);
}

static void wholes(void) {
    int fd = open_file(O_RDONLY), second = open_file(O_RDONLY);
    told("shared", flock(fd, LOCK_SH));
    told("shared by another", flock(second, LOCK_SH | LOCK_NB));
    told("alone", flock(fd, LOCK_EX | LOCK_NB));
    told("unlocked by the other", flock(second, LOCK_UN));
    told("alone, then", flock(fd, LOCK_EX | LOCK_NB));
    tell("other", other(-1, LOCK_SH, 0, 0));
    tell("other's record", other(F_SETLK, F_WRLCK, 0, 0));
    close(fd);
    tell("other, after the close", other(-1, LOCK_EX, 0, 0));
    told("nonsense", flock(second, 77));
    close(second);
}

// The lock of a process that has ended, however it did, is free for whoever has waited for that.
static void ends(void) {
    static const char *const kinds[] = {"posix", "ofd", "flock", "lockf"};
    static const char *const ways[] = {"ended", "was killed", "is another program"};
    int fd = open_file(O_RDWR);
    for (int index = 0; index < 4 * 3 * 3; index++) {
        const char *kind = kinds[index / 9], *way = ways[index / 3 % 3];
        pid_t child = fork();
        if (child == 0) {
            if (lock(open_file(O_RDWR), kind)) _exit(1);
            if (way == ways[1]) raise(SIGKILL);
            if (way == ways[2]) execl("/proc/self/exe", "locks", "again", path, kind, NULL);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        printf("%s, its owner %s: ", kind, way);
        told(WIFEXITED(status) && WEXITSTATUS(status) ? "refused, then" : "then", try(fd, kind));
        unlock(fd, kind);
    }
    close(fd);
}

static volatile sig_atomic_t rung;

static void ring(int number) {
    (void)number;
    rung++;
}

static void nap(int ms) {
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    while (nanosleep(&left, &left) != 0) {}
}

static void waits(void) {
    int ready[2], go[2];
    char byte = 0;
    if (pipe2(ready, O_CLOEXEC) || pipe2(go, O_CLOEXEC)) fail("pipe");
    pid_t holder = fork();
    if (holder == 0) {
        int fd = open_file(O_RDWR);
        if (set(fd, F_SETLKW, F_WRLCK, 0, 0) || write(ready[1], &byte, 1) != 1) _exit(1);
        if (read(go[0], &byte, 1) != 1) _exit(2);
        nap(300);
        _exit(0); // And so unlocks.
    }
    if (read(ready[0], &byte, 1) != 1) fail("holder");
    int fd = open_file(O_RDWR);
    struct sigaction action = {.sa_handler = ring};
    sigaction(SIGALRM, &action, NULL);
    // Again and again: the first may come before the wait.
    struct itimerspec often = {{.tv_nsec = 200000000}, {.tv_nsec = 200000000}};
    struct itimerspec soon = {.it_value = {.tv_nsec = 200000000}}, never = {0};
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, NULL, &timer)) fail("timer");
    timer_settime(timer, 0, &often, NULL);
    told("interrupted", set(fd, F_SETLKW, F_WRLCK, 0, 0));
    timer_settime(timer, 0, &never, NULL);
    rung = 0;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    timer_settime(timer, 0, &soon, NULL);
    if (write(go[1], &byte, 1) != 1) fail("holder");
    told("not interrupted", set(fd, F_SETLKW, F_WRLCK, 0, 0));
    printf("alarms: %d\n", rung);
    waitpid(holder, NULL, 0);
    close(fd);
}

// Processes that have a byte each and want the next one's: one of them is refused, and ends.
static void circle(int count, int type) {
    int ready[2], go[2], refused = 0, granted = 0;
    char byte = 0;
    if (pipe2(ready, O_CLOEXEC) || pipe2(go, O_CLOEXEC)) fail("pipe");
    for (int member = 0; member < count; member++) {
        if (fork() == 0) {
            // To share, all have one byte.
            int fd = open_file(O_RDWR), own = type == F_RDLCK ? 0 : member;
            int next = type == F_RDLCK ? 0 : (member + 1) % count;
            if (set(fd, F_SETLK, type, own, 1) || write(ready[1], &byte, 1) != 1) _exit(1);
            if (read(go[0], &byte, 1) != 1) _exit(2);
            _exit(set(fd, F_SETLKW, F_WRLCK, next, 1) == 0 ? 0 : errno);
        }
    }
    for (int member = 0; member < count; member++)
        if (read(ready[0], &byte, 1) != 1) fail("circle");
    for (int member = 0; member < count; member++)
        if (write(go[1], &byte, 1) != 1) fail("circle");
    for (int status; wait(&status) > 0;) {
        granted += status == 0;
        refused += WIFEXITED(status) && WEXITSTATUS(status) == EDEADLK;
    }
    printf("circle of %d: %d refused, %d granted\n", count, refused, granted);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    path = argv[2];
    if (!strcmp(argv[1], "count") && argc == 5) count(atoi(argv[3]), argv[4]);
    if (!strcmp(argv[1], "hold") && argc == 4) {
        if (lock(open_file(O_RDWR), argv[3])) fail("lock");
        say("locked");
        for (;;) pause();
    }
    if (!strcmp(argv[1], "keep") && argc == 4) keep(argv[3]);
    if (!strcmp(argv[1], "leave") && argc == 4) return lock(open_file(O_RDWR), argv[3]) != 0;
    if (!strcmp(argv[1], "again") && argc == 4) return try(open_file(O_RDWR), argv[3]) != 0;
    if (!strcmp(argv[1], "ask") && argc == 4) {
        for (int fd = open_file(O_RDWR);; unlock(fd, argv[3])) try(fd, argv[3]);
    }
    if (!strcmp(argv[1], "try") && argc == 4) {
        char line[8];
        int fd = open_file(O_RDWR);
        while (fgets(line, sizeof line, stdin)) {
            say(try(fd, argv[3]) == 0 ? "free" : strerror(errno));
            unlock(fd, argv[3]);
        }
    }
    if (!strcmp(argv[1], "rules")) {
        setvbuf(stdout, NULL, _IOLBF, 0);
        records();
        open_files();
        wholes();
        ends();
        waits();
        circle(2, F_WRLCK);
        circle(3, F_WRLCK);
        circle(2, F_RDLCK);
    }
    return 0;
}
