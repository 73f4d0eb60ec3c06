/* Writes numbered records as fast as it can, and logs which ones were accepted.
 *
 *   writer KIND PATH COUNT RECORD_LEN [LOG [WRITER]]
 *
 * KIND  blocks   write at the file position
 *       direct   as blocks, past the page cache where the file system can; RECORD_LEN of 4096
 *       append   write to a file opened with O_APPEND
 *       spread   pwrite in a scattered order
 *       stdio    fwrite and fflush
 *       files    a new file PATH.n of 16 records each, closed before they count as accepted
 *       checked  pwrite in a scattered order, and pread of one that was written before
 *       shared   as append, where others append, too: the number of this WRITER is in each record's
 *       renamed  a new file of 16 records each, closed, and renamed to PATH
 *       bodies   write of a record, then of a body of 300 KiB, which is its low byte again and again
 * COUNT records are written, or, when it is 0, as many as there is time for.
 *
 * A record of RECORD_LEN bytes (a multiple of 8, at least 16) is its number in all its 64-bit
 * words, the last one inverted. LOG is a file that is mapped, so that it outlives the writer and
 * slows it little: 64-bit words, the first one the number of records accepted so far, then for each
 * of them its number, and CLOCK_MONOTONIC in nanoseconds when the call had returned. A writer whose
 * log is full waits to be killed.
 * Exit status: 0; 1 after an error, which standard error names; 3 if what is read is not what was
 * written.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { RECORDS_PER_FILE = 16, SPREAD = 64, BODY_LEN = 300 << 10 };

static size_t record_len;
static uint64_t *record;
static uint64_t *record_log;
static uint64_t log_words;
static uint64_t writer;

static void fail(const char *call)
{
    fprintf(stderr, "writer: %s: %s\n", call, strerror(errno));
    _exit(1);
}

static void fill(uint64_t number)
{
    size_t words = record_len / 8;
    for (size_t i = 0; i + 1 < words; i++)
        record[i] = number;
    record[words - 1] = ~number;
}

static void map_log(const char *path)
{
    struct stat found;
    int fd = open(path, O_RDWR);
    if (fd < 0 || fstat(fd, &found) != 0)
        fail("log");
    record_log = mmap(NULL, (size_t)found.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (record_log == MAP_FAILED || close(fd) != 0)
        fail("log");
    log_words = (uint64_t)found.st_size / 8;
}

static void accepted(uint64_t number)
{
    struct timespec now;
    if (record_log == NULL)
        return;
    uint64_t count = record_log[0];
    while (2 * count + 2 >= log_words)
        pause();
    clock_gettime(CLOCK_MONOTONIC, &now);
    record_log[2 * count + 1] = number;
    record_log[2 * count + 2] = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    __atomic_store_n(&record_log[0], count + 1, __ATOMIC_RELEASE);
}

static void written(ssize_t len, const char *call)
{
    if (len != (ssize_t)record_len) {
        if (len >= 0)
            errno = EIO;
        fail(call);
    }
}

/* Within each group of SPREAD records, in a scattered order. */
static uint64_t scattered(uint64_t n)
{
    return n / SPREAD * SPREAD + n * 29 % SPREAD;
}

/* What was written before is there. */
static void read_back(int fd, uint64_t number)
{
    ssize_t len = pread(fd, record, record_len, (off_t)(number * record_len));
    if (len < 0)
        fail("pread");
    if (len != (ssize_t)record_len || record[0] != number
        || record[record_len / 8 - 1] != ~number) {
        fprintf(stderr, "writer: record %llu is not read back: %zd bytes, %llx\n",
                (unsigned long long)number, len, (unsigned long long)record[0]);
        _exit(3);
    }
}

static void to_one_file(const char *kind, const char *path, uint64_t count)
{
    int shared = strcmp(kind, "shared") == 0, append = shared || strcmp(kind, "append") == 0;
    int checked = strcmp(kind, "checked") == 0, spread = checked || strcmp(kind, "spread") == 0;
    int flags = (checked ? O_RDWR : O_WRONLY) | O_CREAT | (append ? O_APPEND : 0);
    int fd = open(path, flags | (strcmp(kind, "direct") == 0 ? O_DIRECT : 0), 0666);
    if (fd < 0 && errno == EINVAL)
        fd = open(path, flags, 0666);
    if (fd < 0)
        fail("open");
    for (uint64_t n = 0; count == 0 || n < count; n++) {
        uint64_t number = spread ? scattered(n) : n | writer << 48;
        fill(number);
        if (spread)
            written(pwrite(fd, record, record_len, (off_t)(number * record_len)), "pwrite");
        else
            written(write(fd, record, record_len), "write");
        accepted(number);
        if (checked)
            read_back(fd, scattered(n * 31 % (n + 1)));
    }
    if (close(fd) != 0)
        fail("close");
}

static void to_a_stream(const char *path, uint64_t count)
{
    FILE *file = fopen(path, "w");
    if (file == NULL)
        fail("fopen");
    for (uint64_t n = 0; count == 0 || n < count; n++) {
        fill(n);
        if (fwrite(record, record_len, 1, file) != 1)
            fail("fwrite");
        if (fflush(file) != 0)
            fail("fflush");
        accepted(n);
    }
    if (fclose(file) != 0)
        fail("fclose");
}

static void to_many_files(const char *path, uint64_t count, int renamed)
{
    for (uint64_t n = 0; count == 0 || n < count; n += RECORDS_PER_FILE) {
        char name[4096];
        snprintf(name, sizeof name, "%s.%06llu", path, (unsigned long long)(n / RECORDS_PER_FILE));
        if (renamed)
            snprintf(name, sizeof name, "%s.new", path);
        int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        if (fd < 0)
            fail("open");
        for (uint64_t i = n; i < n + RECORDS_PER_FILE; i++) {
            fill(i);
            written(write(fd, record, record_len), "write");
        }
        if (close(fd) != 0)
            fail("close");
        if (renamed && rename(name, path) != 0)
            fail("rename");
        for (uint64_t i = n; i < n + RECORDS_PER_FILE; i++)
            accepted(i);
    }
}

static void with_bodies(const char *path, uint64_t count)
{
    static char body[BODY_LEN];
    int fd = open(path, O_WRONLY | O_CREAT, 0666);
    if (fd < 0)
        fail("open");
    for (uint64_t n = 0; count == 0 || n < count; n++) {
        fill(n);
        memset(body, (int)(n & 0xff), sizeof body);
        written(write(fd, record, record_len), "write");
        for (size_t done = 0; done < sizeof body;) {
            ssize_t len = write(fd, body + done, sizeof body - done);
            if (len <= 0)
                fail("write of a body");
            done += (size_t)len;
        }
        accepted(n);
    }
    if (close(fd) != 0)
        fail("close");
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: writer KIND PATH COUNT RECORD_LEN [LOG [WRITER]]\n");
        return 2;
    }
    if (argc > 5)
        map_log(argv[5]);
    if (argc > 6)
        writer = strtoull(argv[6], NULL, 10);
    uint64_t count = strtoull(argv[3], NULL, 10);
    record_len = strtoull(argv[4], NULL, 10);
    record = aligned_alloc(4096, (record_len + 4095) / 4096 * 4096);
    if (record == NULL)
        fail("aligned_alloc");
    if (strcmp(argv[1], "stdio") == 0)
        to_a_stream(argv[2], count);
    else if (strcmp(argv[1], "files") == 0)
        to_many_files(argv[2], count, 0);
    else if (strcmp(argv[1], "renamed") == 0)
        to_many_files(argv[2], count, 1);
    else if (strcmp(argv[1], "bodies") == 0)
        with_bodies(argv[2], count);
    else
        to_one_file(argv[1], argv[2], count);
    return 0;
}
