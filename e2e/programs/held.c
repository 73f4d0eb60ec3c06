// Record locks of a process stay, whatever it does with another descriptor of the file; and go with
// the first that it closes.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int open_file(void) { return open("file", O_RDWR | O_CREAT | O_CLOEXEC, 0600); }

static int set(int fd, int command, int type, off_t start) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = 1};
    return fcntl(fd, command, &lock);
}

// Which of the first bytes another process finds locked.
static void show(const char *what) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int fd = open_file();
        printf("%s:", what);
        for (int byte = 0; byte < 3; byte++)
            printf(" %s", set(fd, F_SETLK, F_WRLCK, byte) ? "held" : "free");
        printf("\n");
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void nothing(int fd) { (void)fd; }

static void another_lock(int fd) { set(fd, F_SETLK, F_WRLCK, 2); }

static void a_lock_of_its_own(int fd) { set(fd, F_OFD_SETLK, F_WRLCK, 2); }

static void a_look(int fd) { set(fd, F_GETLK, F_WRLCK, 2); }

static void a_mapping(int fd) {
    void *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED) munmap(mapped, 4096);
}

static void space(int fd) { posix_fallocate(fd, 0, 8192); }

static void other_flags(int fd) { fcntl(fd, F_SETFL, O_APPEND); }

static void a_standard_stream(int fd) {
    int before = dup(0);
    dup2(fd, 0);
    dup2(before, 0);
}

static void a_request(int fd) {
    aio_context_t context = 0;
    struct io_event event;
    struct iocb request = {.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = fd,
                           .aio_buf = (long)"new", .aio_nbytes = 3}, *list[] = {&request};
    if (syscall(SYS_io_setup, 1, &context)) return;
    if (syscall(SYS_io_submit, context, 1L, list) == 1)
        syscall(SYS_io_getevents, context, 1L, 1L, &event, NULL);
    syscall(SYS_io_destroy, context);
}

static const struct {
    const char *name;
    void (*call)(int fd);
} ways[] = {
    {"nothing", nothing}, {"another lock", another_lock}, {"a lock of its own", a_lock_of_its_own},
    {"a look", a_look}, {"a mapping", a_mapping}, {"space", space}, {"other flags", other_flags},
    {"a standard stream", a_standard_stream}, {"a request", a_request},
};

int main(void) {
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        int one = open_file(), before = open_file();
        pwrite(before, "old", 3, 0);
        set(one, F_SETLK, F_WRLCK, 1);
        ways[i].call(before);
        show(ways[i].name);
        int after = open_file();
        pwrite(after, "old", 3, 0);
        ways[i].call(after);
        show("opened later");
        close(after);
        show("closed");
        close(before);
        close(one);
        unlink("file");
    }
    return 0;
}
