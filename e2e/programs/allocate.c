/* Says what posix_fallocate comes to, and what is in the file afterwards.
 *
 *   allocate FOLDER
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[PATH_MAX];

static void show(int fd, const char *name, int outcome)
{
    static unsigned char bytes[1 << 20];
    struct stat st;
    unsigned sum = 0;
    fstat(fd, &st);
    int reader = open(path, O_RDONLY);
    ssize_t len = read(reader, bytes, sizeof bytes);
    for (ssize_t at = 0; at < len; at++)
        sum = sum * 31 + bytes[at];
    close(reader);
    printf("%s: %d, size %ld, read %zd, sum %u\n", name, outcome, (long)st.st_size, len, sum);
}

static void with(int flags, const char *name)
{
    int fd = open(path, flags);
    show(fd, name, posix_fallocate(fd, 5000, 90000));
    close(fd);
}

int main(int argc, char **argv)
{
    char data[10000];
    if (argc != 2)
        return 2;
    snprintf(path, sizeof path, "%s/file", argv[1]);
    memset(data, 'd', sizeof data);
    memset(data + 4000, 0, 200);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
    if (fd < 0 || write(fd, data, sizeof data) != sizeof data) {
        perror(path);
        return 1;
    }
    int outcome = fallocate(fd, 0, 0, 100);
    show(fd, "fallocate", outcome == 0 ? 0 : errno);
    show(fd, "inside", posix_fallocate(fd, 0, 5000));
    show(fd, "past the end", posix_fallocate(fd, 9000, 50001));
    show(fd, "far away", posix_fallocate(fd, 200000, 1));
    show(fd, "negative", posix_fallocate(fd, -1, 5));
    show(fd, "too long", posix_fallocate(fd, 1, LONG_MAX));
    close(fd);
    with(O_RDWR | O_APPEND, "to append");
    with(O_RDONLY, "to read");
    with(O_WRONLY, "to write");
    return 0;
}
