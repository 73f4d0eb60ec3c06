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
    said("pathconf", pathconf("held", _PC_NAME_MAX));
    said("fpathconf", fpathconf(fd, _PC_NAME_MAX));
    said("no pathconf", pathconf("none", _PC_NAME_MAX));
    unlink("held");
    said("fstatfs", fstatfs(fd, &held));
    printf("%d\n", held.f_type == named.f_type);
    close(fd);
    said("fstatfs", fstatfs(fd, &held));
}

static void current(void) {
    char here[4096], room[4096];
    if (!getcwd(here, sizeof here)) return;
    size_t len = strlen(here);
    found("any length", getcwd(NULL, 0), here);
    found("long", getcwd(NULL, sizeof here), here);
    found("just long enough", getcwd(NULL, len + 1), here);
    found("too short", getcwd(NULL, len), here);
    found("far too short", getcwd(NULL, 1), here);
    printf("%s\n", getcwd(room, len + 1) ? "enough" : strerror(errno));
    printf("%s\n", getcwd(room, len) ? "enough" : strerror(errno));
    printf("%s\n", getcwd(room, 0) ? "enough" : strerror(errno));
    found("get_current_dir_name", get_current_dir_name(), here);
    setenv("PWD", "/", 1);
    found("get_current_dir_name", get_current_dir_name(), here);
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    found("getwd", getwd(room) ? strdup(room) : NULL, here);
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

static void made(void) {
    struct stat found;
    char folder[] = "made.XXXXXX", inside[64];
    said("mkdtemp", mkdtemp(folder) ? 0 : -1);
    snprintf(inside, sizeof inside, "%s/file", folder);
    int fd = open(inside, O_WRONLY | O_CREAT | O_EXCL, 0600);
    said("file inside", fd < 0 ? -1 : 0);
    close(fd);
    said("stat", stat(folder, &found));
    printf("%o\n", found.st_mode);
    said("ftok", ftok(inside, 1) < 0 ? -1 : 0);
    stat(inside, &found);
    key_t key = ftok(inside, 7);
    printf("%d\n", key == (key_t)((found.st_ino & 0xffff) | (found.st_dev & 0xff) << 16 | 7u << 24));
    said("lchmod", lchmod(inside, 0640));
    said("unlink", unlink(inside));
    said("rmdir", rmdir(folder));
    said("no ftok", ftok(folder, 1));
}

int main(int argc, char **argv) {
    if (argc > 1 && chdir(argv[1]) < 0) return 1;
    umask(022);
    file_systems();
    current();
    terminals();
    made();
    return 0;
}
