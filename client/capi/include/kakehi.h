/**
 * @file kakehi.h
 * What POSIX lacks, for programs whose file I/O runs under `kakehi run`: memory from which nothing
 * is copied on the way to the daemon, and several transfers in flight at a time.
 *
 *     cc app.c $(pkg-config --cflags --libs kakehi)
 *
 * POSIX and stdio calls need nothing of this: they are delegated as they are. A program that uses
 * it does the same without `kakehi run`, or where the daemon has died, only slower.
 *
 * Sizes and offsets are bytes. What fails returns -1, or NULL, and sets `errno`. No call may be
 * made in a signal handler. All but those of one queue may be made by any threads at a time.
 *
 * After `fork`, the child has none of its parent's memory from kakehi_alloc: to touch it there ends
 * the child with SIGSEGV (on every system, with Kakehi and without). kakehi_free does nothing there
 * that could be noticed. Of a queue that its parent made the child may only call
 * kakehi_queue_destroy; what is in flight is the parent's. It may make all calls anew with memory
 * and queues of its own.
 */
#ifndef KAKEHI_H
#define KAKEHI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Most requests of a queue. */
#define KAKEHI_DEPTH_MAX 64

/** Version of the library, like "0.1.0". Never fails. */
const char *kakehi_version(void);

/**
 * Memory that the daemon shares, at the start of a page, with any contents. Never fails for want of
 * a daemon: then, and when the process has its share, it is ordinary memory.
 *
 * The share is half of KAKEHI_STAGING, which is 16 MiB if nobody sets that, and 32 MiB at most;
 * each piece takes a power of two of 64 KiB or more of it, so ask for few and large ones. What is
 * shared leaves less to stage in. The memory stays valid when the daemon dies. It may be used like
 * any other, too, and by any call.
 *
 * NULL: ENOMEM.
 */
void *kakehi_alloc(size_t bytes);

/**
 * Frees what kakehi_alloc gave; NULL is allowed. No request that uses it may be in flight: what the
 * daemon moves to or from it then is whoever's the memory is next.
 */
void kakehi_free(void *memory);

/**
 * 1 if the calls on `fd` are delegated to a daemon, else 0: also for what is no open file. It may
 * become 0 by any call, as by `mmap` or `fork`, and never 1 again.
 */
int kakehi_is_delegated(int fd);

/**
 * Has everything that was accepted for `fd` in the file, where every program finds it, when it
 * returns: what was written, and what kakehi_queue_wait has reported. That is less than `fsync`,
 * which has it on the disk. What stdio holds back is for `fflush`.
 *
 * -1: EBADF; or what an accepted write has failed with since, as ENOSPC, which is told once.
 */
int kakehi_flush(int fd);

/** Requests to read and to write, of one thread at a time. */
typedef struct kakehi_queue kakehi_queue;

/** What came of a request. */
typedef struct kakehi_completion {
    /** What the program called it. */
    uint64_t tag;
    /** Bytes moved, as `pread` and `pwrite` return them, or a negative error number. */
    int64_t result;
} kakehi_completion;

/**
 * A queue for up to `depth` requests that are not reported yet, 1 to KAKEHI_DEPTH_MAX.
 *
 * NULL: EINVAL, another depth.
 */
kakehi_queue *kakehi_queue_create(unsigned depth);

/**
 * Starts a `pread` or `pwrite` of `bytes` at `offset` from the start of the file. `buffer` and `fd`
 * have to stay until kakehi_queue_wait has reported it, `buffer` unchanged and unread.
 *
 * The daemon does it if `fd` is delegated and takes no appends, and all of `buffer` is shared
 * memory (kakehi_alloc): then this does not wait for it. Everything else is done at once, and may
 * wait for as long as `pread` and `pwrite` do. Either is reported by kakehi_queue_wait, and by that alone:
 * also why it failed, as EBADF or EINVAL.
 *
 * What was written before, by whatever call, comes before it. Between requests that are not
 * reported, and calls meanwhile, no order is promised: give those that overlap one after the other.
 *
 * -1: EAGAIN, `depth` requests are not reported; EPERM, the queue is a parent's; EINVAL, no queue.
 */
int kakehi_queue_read(kakehi_queue *queue, int fd, void *buffer, size_t bytes, int64_t offset,
                      uint64_t tag);
int kakehi_queue_write(kakehi_queue *queue, int fd, const void *buffer, size_t bytes,
                       int64_t offset, uint64_t tag);

/**
 * Reports requests in the order they were started: waits for the oldest `at_least`, or for all if
 * there are fewer, and adds those behind them that are finished, up to `max` in all. 0 for
 * `at_least` only looks. Returns how many it has put into `completions`.
 *
 * A write is *accepted* when it is reported, as when `write` returns: it survives the end of this
 * process and of the daemon. A daemon that dies with requests in flight is noticed within a tenth
 * of a second, one that stands still is killed after KAKEHI_FENCE_TIMEOUT (30 s); this process then
 * does, in this call, what had not been answered. No write is done by both at a time; what the
 * daemon had begun is written again to the same place. On remote files requests then fail (EIO).
 *
 * What is not reported when the process ends, executes another program, or closes `fd` may or may
 * not be in the file.
 *
 * -1: EINVAL, `at_least` is more than `max`, or no queue; EPERM, the queue is a parent's.
 */
int kakehi_queue_wait(kakehi_queue *queue, unsigned at_least, kakehi_completion *completions,
                      unsigned max);

/**
 * Waits for every request and frees the queue, whatever it returns. In a child of the process that
 * made it, it only frees. NULL is allowed.
 *
 * -1: what the first request failed with that was not reported.
 */
int kakehi_queue_destroy(kakehi_queue *queue);

#ifdef __cplusplus
}
#endif

#endif
