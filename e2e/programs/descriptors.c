// Every call that reads, writes, moves, duplicates, sizes, or closes a descriptor.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static long said(const char *what, long value) {
    if (value < 0) printf("%s: %s\n", what, strerror(errno));
    else printf("%s: %ld\n", what, value);
    return value;
}

static void show(int fd) {
    char all[4096];
    ssize_t len = pread(fd, all, sizeof all, 0);
    printf("[%zd] ", len);
    for (ssize_t i = 0; i < len; i++) putchar(all[i] ? all[i] : '.');
    putchar('\n');
}

static void data(void) {
    int fd = open("data", O_RDWR | O_CREAT | O_TRUNC, 0644);
    char got[64] = "", more[8] = "";
    said("write", write(fd, "0123456789", 10));
    said("pwrite", pwrite(fd, "AB", 2, 4));
    said("pwrite negative", pwrite(fd, "AB", 2, -4));
    said("write nothing", write(fd, got, 0));
    struct iovec out[] = {{"one", 3}, {"", 0}, {"two", 3}}, in[] = {{got, 4}, {more, 8}};
    said("writev", writev(fd, out, 3));
    said("pwritev", pwritev(fd, out, 3, 30));
    said("pwritev2", pwritev2(fd, out, 3, 40, 0));
    said("pwritev2 here", pwritev2(fd, out, 3, -1, 0));
    said("pwritev2 append", pwritev2(fd, out, 1, 0, RWF_APPEND));
    said("write", write(fd, "tail", 4));
    said("tell", lseek(fd, 0, SEEK_CUR));
    show(fd);
    said("lseek", lseek(fd, 2, SEEK_SET));
    said("read", read(fd, got, 5));
    printf("%.5s\n", got);
    said("pread", pread(fd, got, 64, 40));
    said("pread past", pread(fd, got, 64, 4000));
    said("readv", readv(fd, in, 2));
    printf("%.4s %.8s\n", got, more);
    said("preadv", preadv(fd, in, 2, 3));
    said("preadv2", preadv2(fd, in, 2, 3, RWF_HIPRI));
    said("lseek cur", lseek(fd, -3, SEEK_CUR));
    said("lseek end", lseek(fd, -5, SEEK_END));
    said("lseek hole", lseek(fd, 0, SEEK_HOLE));
    said("lseek data", lseek(fd, 0, SEEK_DATA));
    said("lseek wrong", lseek(fd, 0, 77));
    said("lseek negative", lseek(fd, -1, SEEK_SET));
    said("lseek far", lseek(fd, 100, SEEK_END));
    said("write far", write(fd, "X", 1));
    struct iovec many[100];
    for (int i = 0; i < 100; i++) many[i] = (struct iovec){"ab", 2};
    said("writev many", writev(fd, many, 100));
    said("writev too many", writev(fd, many, 2000));
    show(fd);
    said("close", close(fd));
    said("write closed", write(fd, "x", 1));
    said("close closed", close(fd));
    said("write null", write(1, NULL, 3));
}

static void duplicates(void) {
    int fd = open("dup", O_RDWR | O_CREAT | O_TRUNC, 0644);
    write(fd, "a", 1);
    int two = dup(fd), three = dup2(fd, 50), four = dup3(fd, 51, O_CLOEXEC);
    int five = fcntl(fd, F_DUPFD, 60), six = fcntl(fd, F_DUPFD_CLOEXEC, 60);
    printf("%d %d %d %d %d\n", three, four, five, six, fcntl(six, F_GETFD));
    write(two, "b", 1);
    write(three, "c", 1);
    write(four, "d", 1);
    close(fd);
    write(five, "e", 1);
    write(six, "f", 1);
    said("tell", lseek(two, 0, SEEK_CUR));
    said("dup2 itself", dup2(two, two) == two);
    said("dup2 closed", dup2(fd, 70));
    said("dup3 itself", dup3(two, two, 0));
    int other = open("dup2", O_RDWR | O_CREAT | O_TRUNC, 0644);
    write(other, "other", 5);
    dup2(two, other);
    write(other, "g", 1);
    show(two);
    said("close_range", close_range(50, 65, 0));
    said("write closed", write(50, "x", 1));
    close(two);
    write(other, "h", 1);
    show(other);
    close(other);
    struct stat st;
    stat("dup2", &st);
    said("size", st.st_size);
}

static void modes(void) {
    int fd = open("append", O_WRONLY | O_CREAT | O_APPEND, 0644);
    write(fd, "one", 3);
    lseek(fd, 0, SEEK_SET);
    write(fd, "two", 3);
    pwrite(fd, "three", 5, 0);
    said("tell", lseek(fd, 0, SEEK_CUR));
    char byte;
    said("read", read(fd, &byte, 1));
    close(fd);
    said("excl", open("append", O_WRONLY | O_CREAT | O_EXCL, 0644));
    fd = open("append", O_RDWR);
    show(fd);
    int again = open("append", O_RDWR | O_TRUNC);
    show(fd);
    write(again, "new", 3);
    show(fd);
    said("F_GETFL", fcntl(fd, F_GETFL) & O_ACCMODE);
    said("F_SETFL", fcntl(fd, F_SETFL, O_APPEND));
    lseek(fd, 0, SEEK_SET);
    write(fd, "end", 3);
    show(fd);
    said("ftruncate", ftruncate(fd, 4));
    said("ftruncate negative", ftruncate(fd, -4));
    said("truncate", truncate("append", 8));
    said("fallocate", posix_fallocate(fd, 0, 100));
    said("fsync", fsync(fd));
    said("fdatasync", fdatasync(again));
    sync();
    said("fsync closed", fsync(999));
    struct stat st;
    fstat(fd, &st);
    said("size", st.st_size);
    close(fd);
    close(again);
    said("readonly", open("/proc/version", O_WRONLY | O_TRUNC) < 0);
    said("no file", open("none", O_RDONLY));
    fd = open("for ioctl", O_WRONLY | O_RDWR | O_CREAT, 0600);
    said("write for ioctl", write(fd, "x", 1));
    said("pwrite for ioctl", pwrite(fd, "x", 1, 0));
    said("read for ioctl", read(fd, &st, 1));
    said("close for ioctl", close(fd));
    said("creat", creat("created", 0600) > 0);
    said("openat", openat(AT_FDCWD, "created", O_RDONLY) > 0);
    fd = open(".", O_RDONLY | O_DIRECTORY);
    int in = openat(fd, "in", O_RDWR | O_CREAT, 0640);
    write(in, "in", 2);
    fstatat(fd, "in", &st, 0);
    printf("mode %o size %ld\n", st.st_mode, (long)st.st_size);
    in = openat(fd, ".", O_TMPFILE | O_RDWR, 0600);
    if (in >= 0) said("tmpfile", write(in, "nameless", 8));
    closefrom(40);
}

static void temporaries(void) {
    char one[] = "tmp-XXXXXX", two[] = "tmp-XXXXXX.txt", wrong[] = "tmp-XXX";
    int fd = mkstemp(one), other = mkstemps(two, 4);
    said("mkstemp", write(fd, "t", 1));
    said("mkstemps", write(other, "t", 1));
    printf("%.4s %s %d\n", one, two + 10, strcmp(one + 4, "XXXXXX") != 0);
    struct stat st;
    fstat(fd, &st);
    printf("mode %o\n", st.st_mode);
    said("wrong", mkstemp(wrong));
    char within[] = "dir-XXXXXX";
    said("mkdtemp", mkdtemp(within) == within && strcmp(within + 4, "XXXXXX") != 0);
    stat(within, &st);
    printf("mode %o\n", st.st_mode);
    said("rmdir", rmdir(within));
    said("wrong", mkdtemp(wrong) == NULL && errno == EINVAL);
    unlink(one);
    unlink(two);
    FILE *file = tmpfile();
    said("tmpfile", fprintf(file, "x"));
    fclose(file);
}

static void copies(void) {
    int from = open("from", O_RDWR | O_CREAT | O_TRUNC, 0644), to = open("to", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int i = 0; i < 100; i++) write(from, "0123456789", 10);
    lseek(from, 0, SEEK_SET);
    write(to, "head", 4);
    said("sendfile", sendfile(to, from, NULL, 10));
    off_t at = 990;
    said("sendfile at", sendfile(to, from, &at, 100));
    said("copy_file_range", copy_file_range(from, NULL, to, NULL, 5, 0));
    write(to, "tail", 4);
    int ends[2];
    pipe(ends);
    said("splice", splice(from, NULL, ends[1], NULL, 7, 0));
    said("splice", splice(ends[0], NULL, to, NULL, 7, 0));
    said("tell", lseek(to, 0, SEEK_CUR));
    show(to);
}

static void by_number(void) {
    int fd = syscall(SYS_openat, AT_FDCWD, "number", O_RDWR | O_CREAT | O_TRUNC, 0600);
    said("write", syscall(SYS_write, fd, "number", 6));
    write(fd, "+", 1);
    said("pwrite", syscall(SYS_pwrite64, fd, "N", 1, 0L));
    said("lseek", syscall(SYS_lseek, fd, 1L, SEEK_SET));
    char got[8];
    said("read", syscall(SYS_read, fd, got, 3));
    int other = syscall(SYS_dup, fd);
    write(other, "!", 1);
    said("fcntl", syscall(SYS_fcntl, fd, F_GETFL) & O_ACCMODE);
    show(fd);
    said("close", syscall(SYS_close, fd));
    fd = open("number2", O_RDWR | O_CREAT | O_TRUNC, 0600);
    write(fd, "second", 6);
    show(fd);
    said("wrong", syscall(SYS_write, 999, "x", 1));
    said("no such call", syscall(100000));
}

static void names(void) {
    struct stat st;
    struct statx sx;
    int fd = open("name", O_RDWR | O_CREAT, 0600);
    write(fd, "named", 5);
    said("rename", rename("name", "renamed"));
    stat("renamed", &st);
    said("size", st.st_size);
    said("link", link("renamed", "linked"));
    write(fd, "!", 1);
    lstat("linked", &st);
    said("size", st.st_size);
    said("symlink", symlink("linked", "symbolic"));
    stat("symbolic", &st);
    said("size", st.st_size);
    lstat("symbolic", &st);
    said("size", st.st_size);
    statx(AT_FDCWD, "linked", 0, STATX_SIZE, &sx);
    said("statx", sx.stx_size);
    statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &sx);
    said("statx", sx.stx_size);
    said("unlink", unlink("linked"));
    said("mkdir", mkdir("dir", 0755));
    said("remove", remove("dir"));
    said("rmdir", rmdir("dir"));
    said("stat", stat("dir", &st));
    said("unlinkat", unlinkat(AT_FDCWD, "symbolic", 0));
    said("truncate", truncate("renamed", 3));
    fstat(fd, &st);
    said("size", st.st_size);
    said("null", stat(NULL, &st) == -1 && errno == EFAULT);
}

// What is set by a file's name stays set, though writes are still on their way.
static void attributes(void) {
    const struct timespec times[2] = {{5, 0}, {6, 0}};
    struct stat st;
    int fd = open("target", O_WRONLY | O_CREAT, 0604);
    symlink("target", "pointer");
    said("chmod of a link", fchmodat(AT_FDCWD, "pointer", 0600, AT_SYMLINK_NOFOLLOW));
    said("chmod of a file", fchmodat(AT_FDCWD, "target", 0644, AT_SYMLINK_NOFOLLOW));
    said("chmod, unknown flag", fchmodat(AT_FDCWD, "target", 0600, 0x40000000));
    write(fd, "x", 1);
    said("chmod", chmod("pointer", 04755));
    stat("target", &st);
    said("mode", st.st_mode);
    close(fd);
    stat("target", &st);
    said("mode", st.st_mode);
    fd = open("target", O_WRONLY | O_APPEND);
    write(fd, "y", 1);
    said("times", utimensat(AT_FDCWD, "target", times, 0));
    close(fd);
    stat("target", &st);
    said("time", st.st_mtime);
}

static void oddities(void) {
    char got[8];
    int fd = open("odd", O_RDWR | O_CREAT, 0600);
    said("nothing written", write(fd, NULL, 0));
    said("nothing read", pread(fd, NULL, 0, 0));
    write(fd, "odd", 3);
    said("flags", fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK));
    said("read", pread(fd, got, sizeof got, 0));
    said("syncfs", syncfs(fd));
    close(fd);
}

static void printed_with(int fd, const char *format, ...) {
    va_list list;
    va_start(list, format);
    said("vdprintf", vdprintf(fd, format, list));
    va_end(list);
}

static void printed(void) {
    int fd = open("printed", O_RDWR | O_CREAT, 0600);
    write(fd, "before ", 7);
    said("dprintf", dprintf(fd, "%s %d %g %Lf ", "few", 1, 2.5, 3.25L));
    said("dprintf", dprintf(fd, "%d%d%d%d%d%d%d %g%g%g%g%g%g%g%g%g %Lf %d ", 1, 2, 3, 4, 5, 6, 7,
        1., 2., 3., 4., 5., 6., 7., 8., 9., 10.5L, 11));
    printed_with(fd, "%s %g ", "listed", 1.5);
    write(fd, "after", 5);
    show(fd);
    close(fd);
    said("closed", dprintf(fd, "lost"));
}

int main(void) {
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    data();
    duplicates();
    modes();
    temporaries();
    copies();
    by_number();
    names();
    attributes();
    oddities();
    printed();
    return 0;
}
