/* A program that meets a full disk, waits for room, and writes the same block again.
 *
 *   full FILE FILLER [append]
 *
 * FILLER takes what the disk has, and is removed once FILE was refused a few times.
 * Exit status: 0 if FILE has each block once; 1 if not, or after another error, which standard
 * error names.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 50, FILLED = 40, LEN = 4096, ENOUGH = 5, MOST = 2000 };

static char block[LEN];

static void fail(const char *call)
{
    fprintf(stderr, "full: %s: %s\n", call, strerror(errno));
    exit(1);
}

static void fill(int number)
{
    memset(block, 'A' + number % 26, LEN);
    block[snprintf(block, LEN, "%06d", number)] = ' ';
}

static void rest(void)
{
    struct timespec time = {0, 5000000};
    nanosleep(&time, NULL);
}

static int check(const char *path)
{
    int fd = open(path, O_RDONLY), count = 0, wrong = 0;
    if (fd < 0)
        fail("open to read");
    for (; read(fd, block, LEN) == LEN; count++)
        wrong += atoi(block) != count || block[LEN - 1] != 'A' + count % 26;
    close(fd);
    if (count != BLOCKS || wrong)
        fprintf(stderr, "full: %d blocks of %d, %d of them wrong\n", count, BLOCKS, wrong);
    return count != BLOCKS || wrong;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    int refused = 0, filler = open(argv[2], O_WRONLY | O_CREAT, 0600);
    /* Leaves room for a part of FILE. */
    if (filler < 0 || posix_fallocate(filler, 0, LEN * FILLED) != 0 || close(filler) != 0)
        fail("filler");
    int fd = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | (argc > 3 ? O_APPEND : 0), 0600);
    if (fd < 0)
        fail("open");
    for (int i = 0; i < BLOCKS; i++) {
        fill(i);
        rest();
        while (write(fd, block, LEN) != LEN) {
            if (errno != ENOSPC || refused == MOST)
                fail("write");
            if (++refused == ENOUGH && unlink(argv[2]) != 0)
                fail("unlink");
            rest();
        }
    }
    /* What is staged at the end may be refused for the first time here. */
    while (fsync(fd) != 0) {
        if (errno != ENOSPC || refused == MOST)
            fail("fsync");
        if (++refused >= ENOUGH && access(argv[2], F_OK) == 0 && unlink(argv[2]) != 0)
            fail("unlink");
        rest();
    }
    if (close(fd) != 0)
        fail("close");
    return check(argv[1]);
}
