// Threads on one file and on many, cancelled waits, and handlers that write.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

enum { THREADS = 8, RECORDS = 500 };
static int shared, appended;

static void *writer(void *argument) {
    long self = (long)argument;
    char name[20], record[16];
    sprintf(name, "own%ld", self);
    FILE *stream = fopen(name, "w");
    for (int i = 0; i < RECORDS; i++) {
        sprintf(record, "%02ld:%08d\n", self, i);
        pwrite(shared, record, 12, (self * RECORDS + i) * 12);
        write(appended, "0123456789a\n", 12);
        fprintf(stream, "%s", record);
        int other = open(name, O_RDONLY);
        int copy = dup(other);
        close(other);
        close(copy);
    }
    fclose(stream);
    return NULL;
}

static void together(void) {
    pthread_t threads[THREADS];
    shared = open("shared", O_RDWR | O_CREAT | O_TRUNC, 0644);
    appended = open("appended", O_WRONLY | O_CREAT | O_APPEND, 0644);
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, writer, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    struct stat st;
    fstat(appended, &st);
    printf("appended %ld\n", (long)st.st_size);
    close(shared);
    close(appended);
}

static int ends[2];

static void *waiter(void *unused) {
    char byte;
    read(ends[0], &byte, 1);
    return unused;
}

static void cancelled(void) {
    pthread_t thread;
    void *result;
    pipe(ends);
    pthread_create(&thread, NULL, waiter, NULL);
    usleep(20000);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    printf("cancelled %d\n", result == PTHREAD_CANCELED);
}

static int log_fd, same_fd;
static volatile sig_atomic_t handled;

static void handler(int signal) {
    int saved = errno;
    write(log_fd, "tick\n", 5);
    write(same_fd, "sig\n", 4);
    handled++;
    errno = saved;
    (void)signal;
}

static void interrupted(void) {
    log_fd = open("ticks", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    same_fd = open("same", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
    signal(SIGALRM, handler);
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    long written = 0;
    while (handled < 200) {
        written += write(same_fd, "abc\n", 4) == 4;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    long ticks = handled;
    struct stat st;
    fstat(log_fd, &st);
    printf("ticks all there %d\n", st.st_size == 5 * ticks);
    fstat(same_fd, &st);
    printf("same all there %d\n", st.st_size == 4 * (written + ticks));
    // How many there were differs from run to run.
    ftruncate(log_fd, 0);
    ftruncate(same_fd, 0);
}

static volatile sig_atomic_t hits;

static void hit(int signal) {
    int saved = errno;
    if (write(same_fd, "h", 1) == 1) hits++;
    errno = saved;
    (void)signal;
}

// A handler's bytes and those of the calls that it interrupts have their places, each its own.
static void side_by_side(size_t len, int enough) {
    static unsigned char block[300000];
    long written = 0, counts[256] = {0};
    memset(block, 'w', sizeof block);
    same_fd = open("sides", O_RDWR | O_CREAT | O_TRUNC, 0644);
    hits = 0;
    signal(SIGALRM, hit);
    struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    written += write(same_fd, block, 1);
    while (hits < enough) written += write(same_fd, block, len);
    setitimer(ITIMER_REAL, &never, NULL);
    printf("at the end %d\n", lseek(same_fd, 0, SEEK_CUR) == written + hits);
    lseek(same_fd, 0, SEEK_SET);
    for (ssize_t got; (got = read(same_fd, block, sizeof block)) > 0;)
        for (ssize_t i = 0; i < got; i++) counts[block[i]]++;
    printf("side by side %d %d\n", counts['w'] == written, counts['h'] == hits);
    // How many there were differs from run to run.
    ftruncate(same_fd, 0);
    close(same_fd);
}

static void locked(void) {
    int fd = open("locked", O_RDWR | O_CREAT | O_TRUNC, 0644);
    write(fd, "0123456789", 10);
    printf("flock %d\n", flock(fd, LOCK_EX));
    write(fd, "more", 4);
    close(fd);
    fd = open("locked", O_RDWR);
    printf("flock again %d\n", flock(fd, LOCK_EX | LOCK_NB));
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_CUR, .l_start = 2, .l_len = 3};
    lseek(fd, 4, SEEK_SET);
    printf("range %d\n", fcntl(fd, F_SETLK, &range));
    printf("lockf %d\n", lockf(fd, F_TLOCK, 5));
    write(fd, "WW", 2);
    range.l_type = F_UNLCK;
    printf("unlock %d\n", fcntl(fd, F_SETLK, &range));
    close(fd);
}

static void passed(void) {
    int pair[2], fd = open("passed", O_RDWR | O_CREAT | O_TRUNC, 0644);
    write(fd, "sender ", 7);
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    char room[CMSG_SPACE(sizeof(int))] = {0}, byte = 'x';
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    printf("sent %zd\n", sendmsg(pair[0], &message, 0));
    close(fd);
    printf("got %zd\n", recvmsg(pair[1], &message, 0));
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    write(fd, "receiver", 8);
    printf("at %ld\n", (long)lseek(fd, 0, SEEK_CUR));
    close(fd);
}

int main(void) {
    together();
    cancelled();
    interrupted();
    side_by_side(1, 1000);
    side_by_side(300000, 200);
    locked();
    passed();
    return 0;
}
