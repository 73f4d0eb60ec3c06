// What a ring of io_uring does to files that were open before it, and to one opened after it: by
// liburing, which makes its system calls by instruction, or by libc's `syscall`.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct io_uring ring;

// As `io_uring_queue_init`, with libc's calls alone.
static int set_up(unsigned entries) {
    struct io_uring_params params = {0};
    int fd = syscall(SYS_io_uring_setup, entries, &params);
    if (fd < 0) return -errno;
    return io_uring_queue_mmap(fd, &params, &ring);
}

static int submit(int by_libc) {
    if (!by_libc) return io_uring_submit(&ring);
    atomic_store_explicit((_Atomic unsigned *)ring.sq.ktail, ring.sq.sqe_tail, memory_order_release);
    return syscall(SYS_io_uring_enter, ring.ring_fd, 1, 0, 0, NULL, 0);
}

static void exchange(const char *name, int fd, int by_libc) {
    char got[32] = "";
    printf("%s: wrote %zd", name, write(fd, "written", 7));
    for (int what = 0; what < 3; what++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
        struct io_uring_cqe *cqe;
        if (what == 0) io_uring_prep_read(sqe, fd, got, sizeof got - 1, 0);
        if (what == 1) io_uring_prep_write(sqe, fd, "RING", 4, 3);
        if (what == 2) io_uring_prep_fsync(sqe, fd, 0);
        ring.sq.array[sqe - ring.sq.sqes] = sqe - ring.sq.sqes;
        if (submit(by_libc) != 1 || io_uring_wait_cqe(&ring, &cqe)) {
            perror("submit");
            return;
        }
        printf(", ring %d", cqe->res);
        io_uring_cqe_seen(&ring, cqe);
    }
    printf(" '%s'", got);
    memset(got, 0, sizeof got);
    printf(", read %zd", pread(fd, got, sizeof got - 1, 0));
    printf(" '%s', at %ld\n", got, (long)lseek(fd, 0, SEEK_CUR));
}

int main(int argc, char **argv) {
    int by_libc = argc > 1 && !strcmp(argv[1], "libc");
    if (argc > 2 && chdir(argv[2])) return 1;
    int before = open("before", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (write(before, "first ", 6) != 6) return 1;
    int again = dup(before);
    int made = by_libc ? set_up(4) : io_uring_queue_init(4, &ring, 0);
    if (made < 0) {
        printf("no ring: %s\n", strerror(-made));
        return 77;
    }
    exchange("before", before, by_libc);
    exchange("again", again, by_libc);
    for (int round = 0; round < 3; round++) {
        int after = open("after", O_RDWR | O_CREAT | O_TRUNC, 0600);
        exchange("after", after, by_libc);
        close(after);
    }
    return 0;
}
