/* Two threads of one process write and check files of their own until they are told to end.
 *
 *   crowd FOLDER NAME RECORD_LEN
 *
 * Says "ready\n" on standard output, starts when a byte comes on standard input, and ends when
 * standard input is closed. Each thread writes records of RECORD_LEN bytes to FOLDER/NAME.0 or .1
 * from the start to FILE_LEN and over again. Every second time through, and at the end, what it has
 * written since the start is read back and compared.
 * Prints the bytes both threads have written and the bytes they have checked.
 * Exit status: 0; 1 after an error or a wrong byte, which standard error names.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 2, FILE_LEN = 1 << 20 };

static size_t record_len;
static const char *folder, *name;
static atomic_bool is_over;
static atomic_ullong written, checked;
static pthread_barrier_t barrier;

static void fail(const char *call)
{
    fprintf(stderr, "crowd: %s: %s\n", call, strerror(errno));
    exit(1);
}

static void fill(uint64_t *record, uint64_t seed)
{
    for (size_t i = 0; i < record_len / 8; i++)
        record[i] = seed * 0x9e3779b97f4a7c15u + i;
}

/* Returns where it has ended. */
static size_t write_all(int fd, uint64_t round, uint64_t *record)
{
    size_t at = 0;
    if (lseek(fd, 0, SEEK_SET) != 0)
        fail("lseek");
    for (; at + record_len <= FILE_LEN && !is_over; at += record_len) {
        fill(record, round << 32 | at);
        if (write(fd, record, record_len) != (ssize_t)record_len)
            fail("write");
        written += record_len;
    }
    return at;
}

static void check_all(int fd, uint64_t round, size_t end, uint64_t *record, uint64_t *found)
{
    for (size_t at = 0; at < end; at += record_len) {
        fill(record, round << 32 | at);
        if (pread(fd, found, record_len, (off_t)at) != (ssize_t)record_len)
            fail("pread");
        if (memcmp(found, record, record_len) != 0) {
            fprintf(stderr, "crowd: %s: wrong data at %zu in round %llu\n", name, at,
                    (unsigned long long)round);
            exit(1);
        }
        checked += record_len;
    }
}

static void *work(void *argument)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%d", folder, name, (int)(intptr_t)argument);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    if (fd < 0)
        fail("open");
    uint64_t *record = malloc(record_len), *found = malloc(record_len);
    if (record == NULL || found == NULL)
        fail("malloc");
    pthread_barrier_wait(&barrier);
    for (uint64_t round = 0; !is_over; round++) {
        size_t end = write_all(fd, round, record);
        if (round % 2 == 1 || is_over)
            check_all(fd, round, end, record, found);
    }
    if (close(fd) != 0)
        fail("close");
    free(record);
    free(found);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: crowd FOLDER NAME RECORD_LEN\n");
        return 2;
    }
    folder = argv[1];
    name = argv[2];
    record_len = strtoull(argv[3], NULL, 10);
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i) != 0)
            fail("pthread_create");
    char byte;
    if (write(1, "ready\n", 6) != 6 || read(0, &byte, 1) != 1)
        fail("start");
    pthread_barrier_wait(&barrier);
    if (read(0, &byte, 1) != 0)
        fail("end");
    is_over = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("%llu %llu\n", (unsigned long long)written, (unsigned long long)checked);
    return 0;
}
