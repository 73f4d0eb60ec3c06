// The kernel's asynchronous I/O without calls: a thread of its own looks for requests in a ring, and
// what it reads and writes is what the program has written and reads.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ROUNDS = 20 };

static int ring_fd;
static struct io_uring_params params;
static char *ring;
static struct io_uring_sqe *requests;

static _Atomic unsigned *word(unsigned at) { return (_Atomic unsigned *)(ring + at); }

static int set_up(void) {
    // As long as the thread does not sleep, which a busy machine may have it do, no call wakes it.
    params.flags = IORING_SETUP_SQPOLL;
    params.sq_thread_idle = 10000;
    int fd = ring_fd = syscall(SYS_io_uring_setup, 4, &params);
    if (fd < 0) return fd;
    size_t len = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    size_t other = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    int flags = MAP_SHARED | MAP_POPULATE, rights = PROT_READ | PROT_WRITE;
    ring = mmap(NULL, len > other ? len : other, rights, flags, fd, IORING_OFF_SQ_RING);
    len = params.sq_entries * sizeof *requests;
    requests = mmap(NULL, len, rights, flags, fd, IORING_OFF_SQES);
    return ring == MAP_FAILED || (void *)requests == MAP_FAILED ? -1 : fd;
}

// Has the kernel's thread do one thing; its result.
static int ask(int what, int fd, void *bytes, unsigned len) {
    unsigned tail = *word(params.sq_off.tail), index = tail & *word(params.sq_off.ring_mask);
    requests[index] = (struct io_uring_sqe){.opcode = what, .fd = fd, .addr = (long)bytes, .len = len};
    ((unsigned *)(ring + params.sq_off.array))[index] = index;
    atomic_store(word(params.sq_off.tail), tail + 1);
    unsigned head = *word(params.cq_off.head);
    while (atomic_load(word(params.cq_off.tail)) == head) {
        if (atomic_load(word(params.sq_off.flags)) & IORING_SQ_NEED_WAKEUP)
            syscall(SYS_io_uring_enter, ring_fd, 0, 0, IORING_ENTER_SQ_WAKEUP, NULL, 0);
        sched_yield();
    }
    unsigned place = head & *word(params.cq_off.ring_mask);
    int result = ((struct io_uring_cqe *)(ring + params.cq_off.cqes))[place].res;
    atomic_store(word(params.cq_off.head), head + 1);
    return result;
}

static void exchange(const char *name, int fd) {
    char got[16] = "";
    printf("%s: wrote %zd", name, write(fd, "written", 7));
    printf(", read %d", ask(IORING_OP_READ, fd, got, sizeof got));
    printf(" '%s'", got);
    printf(", wrote %d", ask(IORING_OP_WRITE, fd, "WRITTEN", 7));
    printf(", read %zd", pread(fd, got, sizeof got, 0));
    printf(" '%s', at %ld\n", got, (long)lseek(fd, 0, SEEK_CUR));
}

int main(void) {
    int before = open("before", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (write(before, "first ", 6) != 6) return 1;
    if (set_up() < 0) {
        printf("no ring: %s\n", strerror(errno));
        return 77;
    }
    exchange("before", before);
    for (int round = 0; round < ROUNDS; round++) {
        int after = open("after", O_RDWR | O_CREAT | O_TRUNC, 0600);
        exchange("after", after);
        close(after);
    }
    return 0;
}
