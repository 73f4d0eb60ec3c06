/* A program that uses its file while a full disk refuses some of what it wrote.
 *
 *   cramped FILE FILLER ftruncate|truncate|punch|read|land [append]
 *
 * FILLER takes most of what the disk has, and is removed before FILE is closed or compared.
 * Exit status: 0 if each call does what it does natively, but for reads that fail with ENOSPC, and
 * FILE is what it is natively; 1 if not; 2 if the arguments are wrong.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 60, FILLED = 100, LEN = 4096, KEPT = LEN + 10, ROOM = BLOCKS * LEN + LEN };

static char wanted[ROOM], found[ROOM], block[LEN];
static size_t size;

static void require(int is_so, const char *what)
{
    if (is_so)
        return;
    fprintf(stderr, "cramped: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* Writes until the disk is full, or more than it has room for is accepted. */
static void fill(int fd)
{
    for (int i = 0; i < BLOCKS; i++, size += LEN) {
        memset(block, 'a' + i % 26, LEN);
        if (write(fd, block, LEN) != LEN)
            break;
        memcpy(wanted + size, block, LEN);
    }
}

/* What is accepted takes a while to be refused. */
static void rest(void)
{
    struct timespec time = {0, 30000000};
    nanosleep(&time, NULL);
}

static void cut(const char *path, int fd, int by_name)
{
    require((by_name ? truncate(path, KEPT) : ftruncate(fd, KEPT)) == 0, "truncate");
    require(lseek(fd, 0, SEEK_CUR) == (off_t)size, "position");
    size = KEPT;
    require(lseek(fd, 0, SEEK_END) == KEPT, "end");
    require(write(fd, "short\n", 6) == 6, "write");
    memcpy(wanted + size, "short\n", 6);
    size += 6;
}

static void punch(int fd)
{
    int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    require(fallocate(fd, mode, LEN, size - LEN) == 0, "fallocate");
    memset(wanted + LEN, 0, size - LEN);
}

static void overwrite(int fd)
{
    memset(block, 'W', LEN);
    if (pwrite(fd, block, LEN, 0) == LEN)
        memcpy(wanted, block, LEN);
    require(pread(fd, block, LEN, 0) < 0 ? errno == ENOSPC : block[0] == wanted[0], "pread");
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    const char *path = argv[1], *how = argv[3];
    int filler = open(argv[2], O_WRONLY | O_CREAT, 0600);
    require(filler >= 0 && posix_fallocate(filler, 0, LEN * FILLED) == 0, "filler");
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | (argc > 4 ? O_APPEND : 0), 0600);
    require(fd >= 0, "open");
    fill(fd);
    if (!strcmp(how, "read"))
        overwrite(fd);
    rest();
    if (!strcmp(how, "ftruncate") || !strcmp(how, "truncate"))
        cut(path, fd, how[0] == 't');
    else if (!strcmp(how, "punch"))
        punch(fd);
    else if (strcmp(how, "read") && strcmp(how, "land"))
        return 2;
    struct stat status;
    require(fstat(fd, &status) == 0 && status.st_size == (off_t)size, "size");
    require(lseek(fd, 0, SEEK_END) == (off_t)size, "end");
    require(unlink(argv[2]) == 0 && close(filler) == 0, "unlink");
    require(close(fd) == 0, "close");
    fd = open(path, O_RDONLY);
    require(fd >= 0 && read(fd, found, ROOM) == (ssize_t)size, "read");
    require(memcmp(wanted, found, size) == 0, "content");
    return 0;
}
