// Every call of kakehi.h, compared byte by byte with a model in memory.
//
//     capi check FILE DELEGATED   everything; DELEGATED is 1, 0, r (delegated, and a server's), or
//                                 p (there is a daemon, but not for this file)
//     capi among FILE             several threads, and two processes, use the file
//     capi going FILE             writes and reads until it has done its rounds
//     capi stands FILE            starts requests, says so, and waits for them once told to
//     capi lost FILE              the same, with a file that only the daemon knows the way to
//     capi left FILE DAEMON       leaves files before a daemon that stood still looks at requests
//
// Each prints what it found to be the same on every way of running it.
#include <errno.h>
#include <fcntl.h>
#include <kakehi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOT = 64 << 10, SLOTS = 64, DEPTH = 8 };

static unsigned char model[SLOT * SLOTS], back[SLOT * SLOTS];
static uint64_t random_state = 1;

#define CHECK(x) ((x) ? (void)0 : failed(__LINE__, #x))

static void failed(int line, const char *what) {
    fprintf(stderr, "capi.c:%d: %s (errno %d: %s)\n", line, what, errno, strerror(errno));
    exit(1);
}

static unsigned chance(unsigned below) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(random_state >> 33) % below;
}

static void fill(unsigned char *to, size_t len) {
    for (size_t i = 0; i < len; i++) to[i] = chance(256);
}

// Waits for all that are in flight, which have these tags and results.
static void reported(kakehi_queue *queue, int count, const uint64_t *tags, const int64_t *results) {
    kakehi_completion found[KAKEHI_DEPTH_MAX];
    int done = kakehi_queue_wait(queue, count, found, count);
    if (done != count) failed(__LINE__, "count");
    for (int i = 0; i < count; i++) {
        if (found[i].tag == tags[i] && found[i].result == results[i]) continue;
        fprintf(stderr, "request %d: tag %llu, result %lld, not %lld\n", i,
                (unsigned long long)found[i].tag, (long long)found[i].result,
                (long long)results[i]);
        exit(1);
    }
}

static void same(int fd, size_t len, int line) {
    CHECK(pread(fd, back, len, 0) == (ssize_t)len);
    if (memcmp(back, model, len) != 0) failed(line, "the file is not as the model");
}

// One round: up to DEPTH requests to parts of slots of their own, and calls besides.
static void round_of(kakehi_queue *queue, int fd, unsigned char *shared, unsigned char *own) {
    unsigned first = chance(SLOTS), count = 1 + chance(DEPTH);
    uint64_t tags[DEPTH];
    int64_t results[DEPTH];
    unsigned char *buffers[DEPTH];
    unsigned char is_write[DEPTH];
    off_t places[DEPTH];
    // What is read ahead here is older than what is written then.
    off_t near = (off_t)first * SLOT;
    CHECK(pread(fd, back, 200, near) == 200 && memcmp(back, model + near, 200) == 0);
    for (unsigned i = 0; i < count; i++) {
        unsigned slot = (first + 7 * i) % SLOTS, from = chance(2) ? chance(200) : chance(SLOT);
        unsigned len = chance(3) ? 1 + chance(SLOT - from) : SLOT - from;
        buffers[i] = (chance(4) ? shared : own) + i * SLOT + chance(SLOT - len + 1);
        places[i] = (off_t)slot * SLOT + from;
        tags[i] = ((uint64_t)chance(1 << 20) << 40) + i;
        results[i] = len;
        is_write[i] = chance(3) != 0;
        // What is staged for the place comes first.
        if (is_write[i] && chance(2)) {
            memset(back, 0xee, 100);
            CHECK(pwrite(fd, back, len < 100 ? len : 100, places[i]) > 0);
        }
        if (is_write[i]) {
            fill(buffers[i], len);
            memcpy(model + places[i], buffers[i], len);
            CHECK(kakehi_queue_write(queue, fd, buffers[i], len, places[i], tags[i]) == 0);
        } else {
            memset(buffers[i], 0, len);
            CHECK(kakehi_queue_read(queue, fd, buffers[i], len, places[i], tags[i]) == 0);
        }
    }
    reported(queue, count, tags, results);
    for (unsigned i = 0; i < count; i++)
        CHECK(is_write[i] || memcmp(buffers[i], model + places[i], results[i]) == 0);
    CHECK(pread(fd, back, 200, near) == 200 && memcmp(back, model + near, 200) == 0);
}

static int begun(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0);
    fill(model, sizeof model);
    CHECK(pwrite(fd, model, sizeof model, 0) == sizeof model);
    return fd;
}

static void works(kakehi_queue *queue, const char *path, unsigned char *shared,
                  unsigned char *own) {
    int fd = begun(path);
    for (int i = 0; i < 300; i++) round_of(queue, fd, shared, own);
    same(fd, sizeof model, __LINE__);
    CHECK(close(fd) == 0);
}

// The order of reports, and what is refused, and how.
static void answers(kakehi_queue *queue, const char *path, unsigned char *shared) {
    int fd = open(path, O_RDWR), reader = open(path, O_RDONLY), ends[2];
    CHECK(pipe(ends) == 0);
    uint64_t tags[] = {8, 7, 6, 5, 4, 3, 2};
    int64_t results[] = {SLOT, 10, 0, -EBADF, -EBADF, -EINVAL, -ESPIPE};
    CHECK(kakehi_queue_read(queue, fd, shared, SLOT, 0, 8) == 0);
    CHECK(kakehi_queue_read(queue, fd, shared + SLOT, SLOT, SLOT * SLOTS - 10, 7) == 0);
    CHECK(kakehi_queue_read(queue, fd, shared, 1, SLOT * SLOTS, 6) == 0);
    CHECK(kakehi_queue_write(queue, reader, shared, 1, 0, 5) == 0);
    CHECK(kakehi_queue_read(queue, -1, shared, 1, 0, 4) == 0);
    CHECK(kakehi_queue_write(queue, fd, shared, 1, -1, 3) == 0);
    CHECK(kakehi_queue_write(queue, ends[1], shared, 1, 0, 2) == 0);
    CHECK(kakehi_queue_read(queue, fd, shared + 2 * SLOT, 0, 0, 1) == 0);
    CHECK(kakehi_queue_read(queue, fd, shared, 1, 0, 0) == -1 && errno == EAGAIN);
    kakehi_completion found[2];
    CHECK(kakehi_queue_wait(queue, 3, found, 2) == -1 && errno == EINVAL);
    reported(queue, 7, tags, results);
    CHECK(kakehi_queue_wait(queue, 2, found, 2) == 1 && found[0].tag == 1 && found[0].result == 0);
    CHECK(kakehi_queue_wait(queue, 1, found, 2) == 0 && kakehi_queue_wait(queue, 0, NULL, 0) == 0);
    CHECK(memcmp(shared + SLOT, model + SLOT * SLOTS - 10, 10) == 0);
    CHECK(close(fd) == 0 && close(reader) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
}

// An append has no place.
static void appends(kakehi_queue *queue, const char *path, unsigned char *shared) {
    int fd = open(path, O_WRONLY | O_APPEND), reader = open(path, O_RDONLY);
    uint64_t tags[] = {1, 2};
    int64_t results[] = {5, 5};
    CHECK(ftruncate(fd, 3) == 0);
    memcpy(shared, "firstthere", 10);
    CHECK(kakehi_queue_write(queue, fd, shared, 5, 100, 1) == 0);
    CHECK(kakehi_queue_write(queue, fd, shared + 5, 5, 0, 2) == 0);
    reported(queue, 2, tags, results);
    CHECK(pread(reader, back, 100, 0) == 13 && memcmp(back + 3, "firstthere", 10) == 0);
    CHECK(close(fd) == 0 && close(reader) == 0);
}

// More queues than there can be lanes, and ordinary calls besides.
static void crowds(const char *path, unsigned char *shared) {
    enum { COUNT = 100 };
    kakehi_queue *queues[COUNT];
    uint64_t tag = 1;
    int64_t result = 1000;
    int fd = begun(path);
    fill(model, COUNT * 1000);
    memcpy(shared, model, COUNT * 1000);
    for (int i = 0; i < COUNT; i++) {
        CHECK((queues[i] = kakehi_queue_create(1)) != NULL);
        CHECK(kakehi_queue_write(queues[i], fd, shared + i * 1000, 1000, i * 1000, 1) == 0);
        int other = open(path, O_RDWR);
        CHECK(other >= 0 && pwrite(other, model + SLOT * 8, 1, SLOT * 8) == 1);
        CHECK(pread(other, back, 5, SLOT * 9) == 5 && close(other) == 0);
    }
    for (int i = 0; i < COUNT; i++) {
        reported(queues[i], 1, &tag, &result);
        CHECK(kakehi_queue_destroy(queues[i]) == 0);
    }
    same(fd, sizeof model, __LINE__);
    CHECK(close(fd) == 0);
}

// A file that the process leaves to the kernel, or closes, with requests in flight.
static void leaves(kakehi_queue *queue, const char *path, unsigned char *shared) {
    kakehi_completion found[DEPTH];
    for (int round = 0; round < 50; round++) {
        int fd = begun(path);
        uint64_t tags[DEPTH];
        int64_t results[DEPTH];
        for (int i = 0; i < DEPTH; i++) {
            fill(model + i * SLOT, SLOT);
            memcpy(shared + i * SLOT, model + i * SLOT, SLOT);
            CHECK(kakehi_queue_write(queue, fd, shared + i * SLOT, SLOT, i * SLOT, i) == 0);
            tags[i] = i, results[i] = SLOT;
        }
        if (round % 2 == 0) {
            // The other number is the kernel's from now on, and so is the file.
            int saved = dup(0);
            CHECK(dup2(fd, 0) == 0);
            reported(queue, DEPTH, tags, results);
            CHECK(dup2(saved, 0) == 0 && close(saved) == 0);
            same(fd, sizeof model, __LINE__);
            CHECK(close(fd) == 0);
        } else {
            close(fd);
            char other[4096];
            snprintf(other, sizeof other, "%s.other", path);
            int next = open(other, O_RDWR | O_CREAT | O_TRUNC, 0644);
            CHECK(next == fd && pwrite(next, "untouched", 9, 0) == 9);
            CHECK(kakehi_queue_wait(queue, DEPTH, found, DEPTH) == DEPTH);
            for (int i = 0; i < DEPTH; i++)
                CHECK(found[i].result == SLOT || found[i].result == -EBADF);
            CHECK(pread(next, back, sizeof back, 0) == 9 && memcmp(back, "untouched", 9) == 0);
            CHECK(close(next) == 0 && unlink(other) == 0);
        }
    }
}

// What a number has in the kernel, past every wrapper.
static long kernel(long number, long a, long b, long c, long d) {
#if defined(__x86_64__)
    long value;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(value) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return value;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c, x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
#endif
}

static void flushes(const char *path, int is_remote) {
    int fd = open(path, O_RDWR | O_TRUNC), ends[2];
    long past = kernel(SYS_openat, AT_FDCWD, (long)path, O_RDONLY, 0);
    CHECK(is_remote || past >= 0);
    for (int i = 0; i < 200; i++) {
        char byte = i, found;
        CHECK(pwrite(fd, &byte, 1, i) == 1 && kakehi_flush(fd) == 0);
        CHECK(is_remote || (kernel(SYS_pread64, past, (long)&found, 1, i) == 1 && found == byte));
    }
    if (past >= 0) kernel(SYS_close, past, 0, 0, 0);
    CHECK(pipe(ends) == 0 && kakehi_flush(ends[0]) == 0 && kakehi_is_delegated(ends[0]) == 0);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0 && close(fd) == 0);
    CHECK(kakehi_flush(fd) == -1 && errno == EBADF && kakehi_is_delegated(fd) == 0);
}

// Whether memory is in a segment that the daemon has, too.
static int is_shared(const void *memory) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int found = 0;
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx", &from, &to) == 2 && (uintptr_t)memory - from < to - from)
            found = strstr(line, "memfd:kakehi") != NULL;
    }
    fclose(maps);
    return found;
}

// More than the daemon shares, and what is freed is there again.
static void allocates(int has_daemon) {
    void *pieces[80];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 80; i++) {
            pieces[i] = kakehi_alloc(1 << 20);
            CHECK(pieces[i] != NULL && (uintptr_t)pieces[i] % 4096 == 0);
            memset(pieces[i], i, 1 << 20);
        }
        CHECK(is_shared(pieces[0]) == has_daemon && !is_shared(pieces[79]));
        for (int i = 0; i < 80; i++) {
            CHECK(*(unsigned char *)pieces[i] == i);
            kakehi_free(pieces[i]);
        }
    }
    kakehi_free(NULL);
    CHECK(kakehi_alloc(SIZE_MAX) == NULL && errno == ENOMEM);
}

static int ended(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return status;
}

static void forks(kakehi_queue *queue, const char *path, unsigned char *shared) {
    int fd = begun(path);
    uint64_t tags[DEPTH];
    int64_t results[DEPTH];
    for (int i = 0; i < DEPTH; i++) {
        fill(model + i * SLOT, SLOT);
        memcpy(shared + i * SLOT, model + i * SLOT, SLOT);
        CHECK(kakehi_queue_write(queue, fd, shared + i * SLOT, SLOT, i * SLOT, i) == 0);
        tags[i] = i, results[i] = SLOT;
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        kakehi_completion one;
        CHECK(kakehi_queue_wait(queue, 1, &one, 1) == -1 && errno == EPERM);
        CHECK(kakehi_queue_write(queue, fd, "x", 1, 0, 0) == -1 && errno == EPERM);
        CHECK(kakehi_queue_destroy(queue) == 0);
        kakehi_free(shared);
        kakehi_queue *own = kakehi_queue_create(1);
        unsigned char *memory = kakehi_alloc(SLOT);
        CHECK(own != NULL && memory != NULL);
        memcpy(memory, "child", 5);
        char name[4096];
        snprintf(name, sizeof name, "%s.child", path);
        int written = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
        CHECK(kakehi_queue_write(own, written, memory, 5, 0, 1) == 0);
        memset(back, 0, 5);
        CHECK(kakehi_queue_wait(own, 1, &one, 1) == 1 && one.result == 5);
        CHECK(pread(written, back, 9, 0) == 5 && memcmp(back, "child", 5) == 0);
        CHECK(close(written) == 0 && unlink(name) == 0 && kakehi_queue_destroy(own) == 0);
        kakehi_free(memory);
        _exit(7);
    }
    int status = ended(child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        shared[0] = 1;
        _exit(0);
    }
    status = ended(child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    reported(queue, DEPTH, tags, results);
    same(fd, sizeof model, __LINE__);
    CHECK(close(fd) == 0);
}

static void check(const char *path, const char *delegated) {
    int is_remote = *delegated == 'r', has_daemon = *delegated != '0';
    kakehi_queue *queue = kakehi_queue_create(DEPTH);
    unsigned char *shared = kakehi_alloc(SLOT * DEPTH), *own = malloc(SLOT * DEPTH);
    CHECK(queue != NULL && shared != NULL && own != NULL);
    CHECK(kakehi_queue_create(0) == NULL && errno == EINVAL);
    CHECK(kakehi_queue_create(KAKEHI_DEPTH_MAX + 1) == NULL && errno == EINVAL);
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    CHECK(kakehi_is_delegated(fd) == (*delegated == '1' || is_remote));
    CHECK(is_shared(shared) == has_daemon);
    CHECK(close(fd) == 0);
    works(queue, path, shared, own);
    answers(queue, path, shared);
    crowds(path, shared);
    flushes(path, is_remote);
    appends(queue, path, shared);
    if (!is_remote) leaves(queue, path, shared);
    allocates(has_daemon);
    if (!is_remote) forks(queue, path, shared);
    CHECK(kakehi_queue_write(queue, -1, shared, 1, 0, 0) == 0);
    CHECK(kakehi_queue_destroy(queue) == -1 && errno == EBADF);
    kakehi_free(shared);
    queue = kakehi_queue_create(KAKEHI_DEPTH_MAX);
    shared = kakehi_alloc(SLOT * DEPTH);
    CHECK(is_shared(shared) == has_daemon);
    random_state = 2; // What comes before is not the same everywhere.
    works(queue, path, shared, own);
    CHECK(kakehi_queue_destroy(queue) == 0);
    printf("version %s\n", kakehi_version());
}

// The daemon may die at any moment of this.
static void going(const char *path) {
    kakehi_queue *queue = kakehi_queue_create(DEPTH);
    unsigned char *shared = kakehi_alloc(SLOT * DEPTH), *own = malloc(SLOT * DEPTH);
    int fd = begun(path);
    int was_delegated = kakehi_is_delegated(fd);
    for (int i = 0; i < 2000; i++) {
        round_of(queue, fd, shared, own);
        if (i == 20) puts("going"), fflush(stdout);
    }
    same(fd, sizeof model, __LINE__);
    printf("delegated %d %d\n", was_delegated, kakehi_is_delegated(fd));
    CHECK(close(fd) == 0 && kakehi_queue_destroy(queue) == 0);
    kakehi_free(shared);
}

// The daemon stands still meanwhile, or dies.
static void stands(const char *path, int is_lost) {
    kakehi_queue *queue = kakehi_queue_create(KAKEHI_DEPTH_MAX);
    unsigned char *shared = kakehi_alloc(sizeof model);
    char line[8];
    int fd = begun(path);
    CHECK(kakehi_is_delegated(fd) == 1);
    CHECK(kakehi_queue_write(queue, fd, shared, 1, 0, 0) == 0);
    kakehi_completion found[KAKEHI_DEPTH_MAX];
    CHECK(kakehi_queue_wait(queue, 1, found, 1) == 1 && found[0].result == 1);
    for (int i = 0; i < SLOTS; i += 2) fill(model + i * SLOT, SLOT);
    memcpy(shared, model, sizeof model);
    puts("ready"), fflush(stdout);
    CHECK(read(0, line, sizeof line) == 1);
    for (unsigned i = 0; i < KAKEHI_DEPTH_MAX; i++) {
        // Every other one is to be read.
        int is_read = i % 2;
        if (is_read) memset(shared + i * SLOT, 0, SLOT);
        CHECK((is_read ? kakehi_queue_read(queue, fd, shared + i * SLOT, SLOT, i * SLOT, i)
                       : kakehi_queue_write(queue, fd, shared + i * SLOT, SLOT, i * SLOT, i)) == 0);
    }
    CHECK(kakehi_queue_wait(queue, 0, found, 1) == 0);
    puts("started"), fflush(stdout);
    CHECK(read(0, line, sizeof line) == 1);
    CHECK(kakehi_queue_wait(queue, 64, found, 64) == 64);
    for (unsigned i = 0; i < KAKEHI_DEPTH_MAX; i++) {
        CHECK(found[i].tag == i && found[i].result == (is_lost ? -EIO : SLOT));
        CHECK(is_lost || memcmp(shared + i * SLOT, model + i * SLOT, SLOT) == 0);
    }
    if (is_lost) CHECK(kakehi_flush(fd) == -1 && errno == EIO);
    else same(fd, sizeof model, __LINE__);
    CHECK(kakehi_is_delegated(fd) == 0);
    // The memory outlives the daemon, too.
    kakehi_free(shared);
    CHECK((shared = kakehi_alloc(SLOT)) != NULL);
    memset(shared, 1, SLOT);
    CHECK((close(fd) == 0 || is_lost) && kakehi_queue_destroy(queue) == 0);
    puts("done");
}

static int shared_fd;

// Each thread has slots of its own in one file.
static void *in_thread(void *number) {
    enum { COUNT = 4, ROUNDS = 200 };
    unsigned first = (unsigned)(uintptr_t)number * COUNT;
    unsigned char *shared = kakehi_alloc(SLOT * COUNT), *found = malloc(SLOT);
    kakehi_queue *queue = kakehi_queue_create(COUNT);
    kakehi_completion done[COUNT];
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < COUNT; i++) {
            memset(shared + i * SLOT, round * 31 + first + i, SLOT);
            CHECK(kakehi_queue_write(queue, shared_fd, shared + i * SLOT, SLOT,
                                     (off_t)(first + i) * SLOT, i) == 0);
        }
        for (unsigned left = COUNT; left > 0;) {
            int count = kakehi_queue_wait(queue, 1, done, COUNT);
            CHECK(count > 0);
            for (int i = 0; i < count; i++, left--)
                CHECK(done[i].tag == COUNT - left && done[i].result == SLOT);
        }
        for (unsigned i = 0; i < COUNT; i++) {
            CHECK(pread(shared_fd, found, SLOT, (off_t)(first + i) * SLOT) == SLOT);
            CHECK(memcmp(found, shared + i * SLOT, SLOT) == 0);
        }
    }
    CHECK(kakehi_queue_destroy(queue) == 0);
    kakehi_free(shared);
    free(found);
    return NULL;
}

static void threads(const char *path) {
    enum { COUNT = 6 };
    pthread_t all[COUNT];
    shared_fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (uintptr_t i = 0; i < COUNT; i++)
        CHECK(pthread_create(&all[i], NULL, in_thread, (void *)i) == 0);
    for (int i = 0; i < COUNT; i++) CHECK(pthread_join(all[i], NULL) == 0);
    CHECK(close(shared_fd) == 0);
}

// What another process has staged for the place comes first, whoever opened the file first.
static void meets(const char *path) {
    for (int round = 0; round < 40; round++) {
        int to[2], from[2], fd = -1;
        char byte, old[100], new[100];
        CHECK(pipe(to) == 0 && pipe(from) == 0);
        pid_t child = fork();
        if (child == 0) {
            int own = open(path, O_RDWR | O_CREAT, 0644);
            CHECK(read(to[0], &byte, 1) == 1);
            memset(old, 'o', sizeof old);
            CHECK(pwrite(own, old, sizeof old, 0) == sizeof old && write(from[1], "", 1) == 1);
            CHECK(read(to[0], &byte, 1) == 1);
            CHECK(pread(own, old, sizeof old, 0) == sizeof old && old[0] == 'n' && old[99] == 'n');
            CHECK(pwrite(own, "last", 4, 0) == 4 && close(own) == 0);
            _exit(0);
        }
        kakehi_queue *queue = kakehi_queue_create(1);
        char *shared = kakehi_alloc(sizeof new);
        kakehi_completion done;
        memset(shared, 'n', sizeof new);
        if (round % 2) fd = open(path, O_RDWR | O_CREAT, 0644);
        CHECK(write(to[1], "", 1) == 1 && read(from[0], &byte, 1) == 1);
        if (fd < 0) fd = open(path, O_RDWR);
        CHECK(kakehi_queue_write(queue, fd, shared, sizeof new, 0, 1) == 0);
        CHECK(kakehi_queue_wait(queue, 1, &done, 1) == 1 && done.result == sizeof new);
        if (round % 4 > 1) usleep(5000);
        CHECK(write(to[1], "", 1) == 1 && ended(child) == 0);
        CHECK(pread(fd, new, sizeof new, 0) == sizeof new && memcmp(new, "lastn", 5) == 0);
        CHECK(new[99] == 'n' && close(fd) == 0 && kakehi_queue_destroy(queue) == 0);
        kakehi_free(shared);
        for (int i = 0; i < 2; i++) CHECK(close(to[i]) == 0 && close(from[i]) == 0);
    }
}

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all;
static const char *left_path;
static pid_t daemon_id;

static void *goes_on(void *unused) {
    usleep(20000);
    CHECK(kill(daemon_id, SIGCONT) == 0);
    return unused;
}

// Which requests the daemon finds before the one to close the file depends on their lanes, and so
// on where the thread's stack is: of neighbours one has its lanes in the upper half.
static void *leaves_in_turn(void *unused) {
    enum { COUNT = 31 };
    kakehi_queue *queues[COUNT];
    uint64_t tag = 1;
    int64_t result = SLOT;
    pthread_t other;
    pthread_mutex_lock(&turn);
    unsigned char *shared = kakehi_alloc(SLOT * COUNT);
    CHECK(is_shared(shared));
    int fd = begun(left_path);
    CHECK(kakehi_flush(fd) == 0 && kakehi_is_delegated(fd) == 1);
    fill(model, SLOT * COUNT);
    memcpy(shared, model, SLOT * COUNT);
    CHECK(kill(daemon_id, SIGSTOP) == 0 && pthread_create(&other, NULL, goes_on, NULL) == 0);
    for (int i = 0; i < COUNT; i++) {
        CHECK((queues[i] = kakehi_queue_create(1)) != NULL);
        CHECK(kakehi_queue_write(queues[i], fd, shared + i * SLOT, SLOT, i * SLOT, 1) == 0);
    }
    CHECK(dup2(fd, 0) == 0 && kakehi_is_delegated(fd) == 0 && pthread_join(other, NULL) == 0);
    for (int i = 0; i < COUNT; i++) {
        reported(queues[i], 1, &tag, &result);
        CHECK(kakehi_queue_destroy(queues[i]) == 0);
    }
    same(fd, sizeof model, __LINE__);
    CHECK(close(fd) == 0 && close(0) == 0 && open("/dev/null", O_RDONLY) == 0);
    kakehi_free(shared);
    pthread_mutex_unlock(&turn);
    pthread_barrier_wait(&all);
    return unused;
}

static void left(const char *path, pid_t process) {
    enum { COUNT = 8 };
    pthread_t threads[COUNT];
    left_path = path, daemon_id = process;
    CHECK(pthread_barrier_init(&all, NULL, COUNT) == 0);
    for (int i = 0; i < COUNT; i++)
        CHECK(pthread_create(&threads[i], NULL, leaves_in_turn, NULL) == 0);
    for (int i = 0; i < COUNT; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    puts("done");
}

int main(int count, char **words) {
    CHECK(count >= 3);
    if (strcmp(words[1], "check") == 0 && count == 4) check(words[2], words[3]);
    else if (strcmp(words[1], "among") == 0) threads(words[2]), meets(words[2]);
    else if (strcmp(words[1], "going") == 0) going(words[2]);
    else if (strcmp(words[1], "stands") == 0) stands(words[2], 0);
    else if (strcmp(words[1], "lost") == 0) stands(words[2], 1);
    else if (strcmp(words[1], "left") == 0 && count == 4) left(words[2], atoi(words[3]));
    else return 2;
    return 0;
}
