// Changes an open file by names that mean its number, in the folder given or here.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

static const char *folder;

static void said(const char *what, long value) {
    if (value < 0) printf("%s: %s\n", what, strerror(errno));
    else printf("%s: %ld\n", what, value);
}

static int made(const char *name, char *path, char *own) {
    sprintf(path, "%s/%s", folder, name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0640);
    said("written", write(fd, "01234567", 8));
    sprintf(own, "/proc/self/fd/%d", fd);
    return fd;
}

static void shown(const char *path) {
    struct stat status = {0};
    said("stat", stat(path, &status));
    printf("mode %o user %u group %u size %ld links %lu\n", status.st_mode, status.st_uid,
           status.st_gid, (long)status.st_size, (unsigned long)status.st_nlink);
    if (status.st_mtime < 9999) printf("time %ld\n", (long)status.st_mtime);
}

int main(int count, char **args) {
    char path[256], own[64], other[300];
    const struct timespec first[] = {{1000, 0}, {2000, 0}}, then[] = {{3000, 0}, {4000, 0}};
    struct stat status;
    struct statfs system;
    folder = count > 1 ? args[1] : ".";

    int fd = made("empty", path, own);
    said("owner", fchownat(fd, "", 1, 2, AT_EMPTY_PATH));
    said("times", utimensat(fd, "", first, AT_EMPTY_PATH));
    shown(path);

    fd = made("numbered", path, own);
    said("mode", chmod(own, 0600));
    said("owner", chown(own, 3, 4));
    said("times", utimensat(AT_FDCWD, own, then, 0));
    said("file system", statfs(own, &system));
    said("stat", stat(own, &status));
    printf("size %ld\n", (long)status.st_size);
    shown(path);

    made("cut", path, own);
    said("truncate", truncate(own, 5));
    shown(path);

    fd = made("asked", path, own);
    said("may read", faccessat(fd, "", R_OK, AT_EMPTY_PATH));
    said("may execute", faccessat(fd, "", X_OK, AT_EMPTY_PATH));
    made("asked again", path, own);
    said("may read", access(own, R_OK));
    said("may execute", access(own, X_OK));

    made("linked", path, own);
    sprintf(other, "%s.twin", path);
    said("link", linkat(AT_FDCWD, own, AT_FDCWD, other, AT_SYMLINK_FOLLOW));
    shown(path);
    return 0;
}
