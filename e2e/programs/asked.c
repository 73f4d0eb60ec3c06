// What programs seldom ask of open files, of names, and of the folder they are in; with a folder, there.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <termios.h>
#include <unistd.h>

static long said(const char *what, long value) {
    if (value < 0) printf("%s: %s\n", what, strerror(errno));
    else printf("%s: %ld\n", what, value);
    return value;
}

// Says whether a call that allocates a name has found this one.
static void found(const char *what, char *name, const char *expected) {
    if (!name) printf("%s: %s\n", what, strerror(errno));
    else printf("%s: %s\n", what, strcmp(name, expected) ? name : "expected");
    free(name);
}

// An open file is where its name is.
static void file_systems(void) {
    int fd = open("held", O_RDWR | O_CREAT | O_TRUNC, 0644);
    struct statfs named = {0}, held = {0}, by_number = {0};
    struct statvfs named_too = {0}, held_too = {0};
    said("write", write(fd, "12345", 5));
    said("statfs", statfs("held", &named));
    said("fstatfs", fstatfs(fd, &held));
    said("by number", syscall(SYS_fstatfs, fd, &by_number));
    said("statvfs", statvfs("held", &named_too));
    said("fstatvfs", fstatvfs(fd, &held_too));
    printf("%d %d %d %d\n", held.f_type == named.f_type, held.f_blocks == named.f_blocks,
           held.f_bsize == named.f_bsize, held.f_namelen == named.f_namelen);
    printf("%d %d\n", by_number.f_type == named.f_type, by_number.f_blocks == named.f_blocks);
    printf("%d %d\n", held_too.f_blocks == named_too.f_blocks, held_too.f_bsize == named_too.f_bsize);
    unlink("held");
    said("fstatfs", fstatfs(fd, &held));
    printf("%d\n", held.f_type == named.f_type);
    close(fd);
    said("fstatfs", fstatfs(fd, &held));
}

static void terminals(void) {
    int fd = open("plain", O_RDWR | O_CREAT | O_TRUNC, 0644);
    struct termios settings = {0};
    char name[64];
    said("isatty", isatty(fd));
    said("tcgetattr", tcgetattr(fd, &settings));
    said("tcsetattr", tcsetattr(fd, TCSANOW, &settings));
    said("tcgetpgrp", tcgetpgrp(fd));
    said("tcsetpgrp", tcsetpgrp(fd, getpgrp()));
    said("tcgetsid", tcgetsid(fd));
    said("tcdrain", tcdrain(fd));
    said("tcflush", tcflush(fd, TCIFLUSH));
    said("tcflow", tcflow(fd, TCOON));
    said("tcsendbreak", tcsendbreak(fd, 0));
    found("ttyname", ttyname(fd), "none");
    printf("ttyname_r: %s\n", strerror(ttyname_r(fd, name, sizeof name)));
    said("write", write(fd, "still", 5));
    close(fd);
    said("tcgetattr", tcgetattr(fd, &settings));
    unlink("plain");
}

int main(int argc, char **argv) {
    if (argc > 1 && chdir(argv[1]) < 0) return 1;
    umask(022);
    file_systems();
    terminals();
    return 0;
}
