// Asks of files whether they are ready, as of pipes: poll, select, epoll, and ioctl; with a folder,
// of files there.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

enum { ALL = POLLIN | POLLOUT | POLLPRI | POLLRDNORM | POLLWRNORM | POLLRDBAND | POLLRDHUP };

static int empty[2], full[2];

static long said(const char *what, long value) {
    if (value < 0) printf("%s: %s\n", what, strerror(errno));
    else printf("%s: %ld\n", what, value);
    return value;
}

// A file of five bytes, at the third.
static int file(const char *name, int flags) {
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    write(fd, "12345", 5);
    close(fd);
    fd = open(name, flags);
    lseek(fd, 2, SEEK_SET);
    return fd;
}

// By each of the functions in turn, and by system call.
static int any_poll(int way, struct pollfd *fds, int count, int ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    struct timespec *limit = ms < 0 ? NULL : &time;
    sigset_t none;
    sigemptyset(&none);
    switch (way) {
    case 0: return poll(fds, count, ms);
    case 1: return ppoll(fds, count, limit, NULL);
    case 2: return ppoll(fds, count, limit, &none);
#ifdef SYS_poll
    case 3: return syscall(SYS_poll, fds, (long)count, (long)ms);
#endif
    default: return syscall(SYS_ppoll, fds, (long)count, limit, NULL, 8L);
    }
}

static int any_select(int way, int count, fd_set *sets[3], int ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    struct timeval plain = {time.tv_sec, time.tv_nsec / 1000};
    struct timespec *limit = ms < 0 ? NULL : &time;
    struct timeval *plain_limit = ms < 0 ? NULL : &plain;
    sigset_t none;
    sigemptyset(&none);
    switch (way) {
    case 0: return select(count, sets[0], sets[1], sets[2], plain_limit);
    case 1: return pselect(count, sets[0], sets[1], sets[2], limit, NULL);
    case 2: return pselect(count, sets[0], sets[1], sets[2], limit, &none);
#ifdef SYS_select
    case 3: return syscall(SYS_select, (long)count, sets[0], sets[1], sets[2], plain_limit);
#endif
    default: return syscall(SYS_pselect6, (long)count, sets[0], sets[1], sets[2], limit, NULL);
    }
}

static void polled(int way, const char *what, const int *fds, int count, int events, int ms) {
    struct pollfd asked[8];
    for (int i = 0; i < count; i++)
        asked[i] = (struct pollfd){.fd = fds[i], .events = i ? POLLIN : events, .revents = 99};
    said(what, any_poll(way, asked, count, ms));
    for (int i = 0; i < count; i++)
        printf(" %s %x %x", asked[i].fd == fds[i] ? "same" : "OTHER", asked[i].events,
               asked[i].revents);
    printf("\n");
}

static void polls(int way) {
    int flags[] = {O_RDWR, O_RDONLY, O_WRONLY};
    printf("poll, way %d\n", way);
    for (int i = 0; i < 3; i++) {
        int fd = file("polled", flags[i] | O_CLOEXEC);
        polled(way, "all", (int[]){fd}, 1, ALL, -1);
        polled(way, "read", (int[]){fd}, 1, POLLIN, -1);
        polled(way, "write", (int[]){fd}, 1, POLLOUT, 1000);
        polled(way, "with an empty pipe", (int[]){fd, empty[0]}, 2, POLLIN, -1);
        polled(way, "with a full pipe", (int[]){fd, full[0]}, 2, POLLIN, -1);
        polled(way, "twice", (int[]){fd, empty[0], fd}, 3, POLLIN, -1);
        polled(way, "no number", (int[]){fd, -1, 41}, 3, POLLIN, -1);
        polled(way, "no event, with no number", (int[]){fd, -1, 41}, 3, 0, -1);
        polled(way, "no event", (int[]){fd, empty[0]}, 2, 0, 10);
        polled(way, "urgent", (int[]){fd, empty[0]}, 2, POLLPRI, 0);
        polled(way, "urgent, with a full pipe", (int[]){fd, full[0]}, 2, POLLPRI, -1);
        close(fd);
        polled(way, "closed", (int[]){fd}, 1, POLLIN, -1);
    }
}

static void selected(int way, const char *what, int bits, int fd, int pipe, int ms) {
    fd_set sets[3], *given[3];
    for (int i = 0; i < 3; i++) {
        FD_ZERO(&sets[i]);
        FD_SET(999, &sets[i]);
        if (bits & 1 << i && fd >= 0) FD_SET(fd, &sets[i]);
        given[i] = bits & 1 << i ? &sets[i] : NULL;
    }
    if (pipe >= 0 && given[0]) FD_SET(pipe, &sets[0]);
    int last = fd > pipe ? fd : pipe;
    said(what, any_select(way, last + 1, given, ms));
    for (int i = 0; i < 3; i++)
        if (given[i])
            printf(" %d %d %d", fd >= 0 && FD_ISSET(fd, given[i]),
                   pipe >= 0 && FD_ISSET(pipe, given[i]), FD_ISSET(999, given[i]));
    printf("\n");
}

static void selects(int way) {
    int fd = file("selected", O_RDWR | O_CLOEXEC);
    printf("select, way %d\n", way);
    for (int bits = 1; bits < 8; bits++) {
        int ms = bits == 4 ? 10 : -1;
        selected(way, "alone", bits, fd, -1, ms);
        if (bits & 1) {
            selected(way, "with an empty pipe", bits, fd, empty[0], ms);
            selected(way, "with a full pipe", bits, fd, full[0], ms);
            selected(way, "with no number", bits, fd, 40, ms);
        }
    }
    selected(way, "none", 5, -1, empty[0], 10);
    close(fd);
    selected(way, "closed", 1, fd, -1, -1);
}

// As old programs count, who have more numbers than a set has room for.
static void counts(void) {
    struct {
        fd_set set;
        unsigned char behind[64];
    } guarded;
    int fd = file("counted", O_RDONLY | O_CLOEXEC);
    memset(&guarded, 0xff, sizeof guarded);
    FD_ZERO(&guarded.set);
    FD_SET(fd, &guarded.set);
    said("as many as there may be", select(1 << 20, &guarded.set, NULL, NULL, NULL));
    for (int i = 0; i < 64; i++)
        if (guarded.behind[i] != 0xff) printf("OVERWRITTEN %d\n", i);
    printf("%d\n", FD_ISSET(fd, &guarded.set));
    said("none", select(-1, &guarded.set, NULL, NULL, NULL));
    said("not up to it", select(fd, &guarded.set, NULL, NULL, &(struct timeval){0, 10}));
    void *volatile nowhere = (void *)16;
    said("poll nowhere", poll(nowhere, 1, -1));

    struct timeval left = {5000, 0};
    FD_SET(fd, &guarded.set);
    said("in time", select(fd + 1, &guarded.set, NULL, NULL, &left));
    printf("left %d\n", left.tv_sec > 1000);
    close(fd);
}

// Where the room is known, which a compiler may have checked.
static void checked(void) {
    volatile int count = 2;
    int fd = file("checked", O_RDWR | O_CLOEXEC);
    struct pollfd asked[2] = {{.fd = fd, .events = POLLOUT}, {.fd = empty[0], .events = POLLIN}};
    said("poll", poll(asked, count, -1));
    printf("%x %x\n", asked[0].revents, asked[1].revents);
    asked[0].revents = 0;
    said("ppoll", ppoll(asked, count, NULL, NULL));
    printf("%x %x\n", asked[0].revents, asked[1].revents);
    close(fd);
}

static volatile sig_atomic_t signals;

static void count(int number) {
    (void)number;
    signals++;
}

static void interrupted(void) {
    int fd = file("interrupted", O_RDWR | O_CLOEXEC);
    struct sigaction action = {.sa_handler = count};
    struct itimerval often = {{0, 20000}, {0, 20000}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int way = 0; way < 5; way++) {
        polled(way, "interrupted", (int[]){fd, empty[0]}, 2, POLLPRI, -1);
        selected(way, "interrupted", 4, fd, -1, -1);
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    said("signals", signals > 0);
    // Ready is ready, whatever has come.
    sigset_t alarm, none;
    sigemptyset(&none);
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarm, NULL);
    signals = 0;
    raise(SIGALRM);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    said("pselect", pselect(fd + 1, &set, NULL, NULL, NULL, &none));
    struct pollfd asked = {.fd = fd, .events = POLLIN};
    said("ppoll", ppoll(&asked, 1, NULL, &none));
    said("signals", signals);
    sigprocmask(SIG_UNBLOCK, &alarm, NULL);
    close(fd);
}

static void epolls(void) {
    int fd = file("epolled", O_RDWR | O_CLOEXEC), many = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    void *volatile nowhere = NULL;
    said("add", epoll_ctl(many, EPOLL_CTL_ADD, fd, &event));
    said("modify", epoll_ctl(many, EPOLL_CTL_MOD, fd, &event));
    said("delete", epoll_ctl(many, EPOLL_CTL_DEL, fd, NULL));
    said("add nowhere", epoll_ctl(many, EPOLL_CTL_ADD, fd, nowhere));
    said("add by number", syscall(SYS_epoll_ctl, many, EPOLL_CTL_ADD, fd, &event));
    said("to no number", epoll_ctl(999, EPOLL_CTL_ADD, fd, &event));
    said("no number", epoll_ctl(many, EPOLL_CTL_ADD, 999, &event));
    said("a pipe", epoll_ctl(many, EPOLL_CTL_ADD, empty[0], &event));
    close(many);
    close(fd);
}

static void controlled(void) {
    int number = -1, on = 1, off = 0;
    struct termios terminal;
    struct winsize window;
    int fd = file("controlled", O_RDWR | O_CLOEXEC);
    said("terminal", ioctl(fd, TCGETS, &terminal));
    said("window", ioctl(fd, TIOCGWINSZ, &window));
    said("is a terminal", isatty(fd) ? 1 : -1);
    said("not to wait", ioctl(fd, FIONBIO, &on));
    said("to wait", ioctl(fd, FIONBIO, &off));
    said("nowhere", ioctl(fd, FIONBIO, NULL));
    said("kept", ioctl(fd, FIONCLEX));
    said("flag", fcntl(fd, F_GETFD));
    said("closed", ioctl(fd, FIOCLEX));
    said("flag", fcntl(fd, F_GETFD));
    said("to read", ioctl(fd, FIONREAD, &number));
    said("bytes", number);
    write(fd, "abcdefgh", 8);
    lseek(fd, 0, SEEK_SET);
    said("to read by number", syscall(SYS_ioctl, fd, FIONREAD, &number));
    said("bytes", number);
    said("to write", ioctl(fd, TIOCOUTQ, &number));
    lseek(fd, 100, SEEK_SET);
    said("to read beyond", ioctl(fd, FIONREAD, &number));
    printf("bytes: %d\n", number);
    said("nowhere", ioctl(fd, FIONREAD, NULL));
    char got[4] = "";
    said("read on", pread(fd, got, 3, 0));
    printf("%s\n", got);
    close(fd);
    said("none", ioctl(fd, FIONREAD, &number));
}

// What a parent has open and keeps.
static void in_a_child(void) {
    int fd = file("inherited", O_RDWR | O_CLOEXEC);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        polled(0, "child", (int[]){fd, empty[0]}, 2, POLLIN, -1);
        selected(0, "child", 7, fd, empty[0], -1);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    close(fd);
}

static int names(DIR *folder) {
    int found = 0;
    while (readdir(folder)) found++;
    return found;
}

// A folder that is listed again is listed as it is by then.
static void listed_again(void) {
    mkdir("listed", 0755);
    DIR *folder = opendir("listed");
    said("names", names(folder));
    close(open("listed/first", O_WRONLY | O_CREAT, 0644));
    rewinddir(folder);
    said("names", names(folder));
    close(open("listed/second", O_WRONLY | O_CREAT, 0644));
    unlink("listed/first");
    close(open("listed/third", O_WRONLY | O_CREAT, 0644));
    rewinddir(folder);
    said("names", names(folder));
    long start = (rewinddir(folder), telldir(folder));
    names(folder);
    unlink("listed/second");
    unlink("listed/third");
    seekdir(folder, start);
    said("names", names(folder));
    closedir(folder);
    rmdir("listed");
}

int main(int argc, char **argv) {
    if (argc > 1 && chdir(argv[1]) < 0) return 1;
    pipe2(empty, O_CLOEXEC);
    pipe2(full, O_CLOEXEC);
    write(full[1], "x", 1);
    for (int way = 0; way < 5; way++) polls(way);
    for (int way = 0; way < 5; way++) selects(way);
    counts();
    checked();
    interrupted();
    epolls();
    controlled();
    in_a_child();
    listed_again();
    return 0;
}
