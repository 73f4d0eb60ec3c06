// Descriptors that come into the process past `open`: by a handle, from a process, by a message, or
// from the program before. Ends with 77 where handles cannot be had.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    struct file_handle head;
    char bytes[MAX_HANDLE_SZ];
} handle;

static void show(const char *what, int fd) {
    char all[64] = "";
    struct stat status;
    ssize_t len = pread(fd, all, sizeof all - 1, 0);
    fstat(fd, &status);
    printf("%s: %zd [%s] %ld %ld\n", what, len, all, (long)lseek(fd, 0, SEEK_END), (long)status.st_size);
}

static int by_handle(const char *name, int flags) {
    int mount;
    handle.head.handle_bytes = MAX_HANDLE_SZ;
    if (name_to_handle_at(AT_FDCWD, name, &handle.head, &mount, 0) < 0) return -1;
    return open_by_handle_at(AT_FDCWD, &handle.head, flags);
}

static int from_process(int fd) {
    int self = pidfd_open(getpid(), 0), other = pidfd_getfd(self, fd, 0);
    close(self);
    return other;
}

static int by_message(int fd) {
    union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(int))]; } control;
    struct iovec data = {"x", 1};
    struct msghdr message = {NULL, 0, &data, 1, &control, sizeof control, 0};
    int ends[2], got;
    char byte;
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    control.head = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
    sendmsg(ends[0], &message, 0);
    data.iov_base = &byte;
    recvmsg(ends[1], &message, 0);
    memcpy(&got, CMSG_DATA(&control.head), sizeof got);
    close(ends[0]);
    close(ends[1]);
    return got;
}

static int made(const char *name) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    write(fd, "accepted", 8);
    return fd;
}

// What was written before is read, and what is written then stays.
static void used(const char *what, int fd, int other) {
    printf("%s\n", what);
    show("read", other);
    write(fd, "+", 1);
    show("more", other);
    pwrite(other, "OTHER", 5, 2);
    show("own", fd);
    close(other);
    show("after", fd);
    close(fd);
}

// It was there first, and was used.
static void was_there(const char *name, int early) {
    show("before", early);
    int fd = open(name, O_RDWR);
    write(fd, "SINCE", 5);
    show("since", early);
    ftruncate(early, 3);
    show("cut", fd);
    close(early);
    close(fd);
}

static void truncated(const char *name) {
    int fd = made(name);
    int other = by_handle(name, O_WRONLY | O_TRUNC);
    show("truncated", fd);
    close(other);
    write(fd, "ab", 2);
    show("written", fd);
    close(fd);
}

static void mapped(const char *name) {
    int fd = made(name), other = by_handle(name, O_RDONLY);
    char *bytes = mmap(NULL, 8, PROT_READ, MAP_SHARED, other, 0);
    printf("mapped %.8s\n", bytes);
    close(fd);
    close(other);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        was_there("inherited", atoi(argv[1]));
        return 0;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    close(made("probe"));
    int fd = by_handle("probe", O_RDONLY);
    if (fd < 0) {
        printf("%s\n", strerror(errno));
        return 77;
    }
    close(fd);
    fd = made("handle");
    used("handle", fd, by_handle("handle", O_RDWR));
    fd = made("process");
    used("process", fd, from_process(fd));
    fd = made("message");
    int early = by_message(fd);
    close(fd);
    was_there("message", early);
    close(made("early"));
    was_there("early", by_handle("early", O_RDWR));
    truncated("truncated");
    mapped("map");
    fflush(stdout);
    fd = made("inherited");
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    execl(argv[0], argv[0], number, (char *)NULL);
    return 1;
}
