/* Calls on names and files, each with what POSIX or Linux answers, for comparison with another run.
 *
 *   posix DIR
 *
 * DIR is empty, and its user's who is not root. One line each: the call, its result (0, or what it
 * counts), and the errno of one that failed. Exit status: 0.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define SAY(call) do { errno = 0; long result_ = (long)(call); say(#call, result_); } while (0)

static char deep[PATH_MAX + 10], wide[NAME_MAX + 10], room[64];
static struct stat found, other;

static void say(const char *call, long got)
{
    printf("%-58s %ld %s\n", call, got, got == -1 && errno ? strerrorname_np(errno) : "");
}

static int opened(int fd)
{
    return fd < 0 ? -1 : close(fd);
}

/* The number of a new descriptor is the table's affair. */
static int open_of(const char *name, int flags)
{
    return opened(open(name, flags, 0644));
}

static int mode_of(const char *name)
{
    return lstat(name, &found) ? -1 : (int)found.st_mode;
}

static int links_of(const char *name)
{
    return lstat(name, &found) ? -1 : (int)found.st_nlink;
}

static long size_of(const char *name)
{
    return stat(name, &found) ? -1 : (long)found.st_size;
}

static int make(const char *name, const char *text)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ssize_t len = fd < 0 ? -1 : write(fd, text, strlen(text));
    return opened(fd) || len != (ssize_t)strlen(text);
}

static int same_inode(const char *one, const char *two)
{
    if (lstat(one, &found) || lstat(two, &other))
        return -1;
    return found.st_ino == other.st_ino && found.st_dev == other.st_dev;
}

/* As Python's makedev has it, whose numbers are an int's. */
static int has_device_in_range(const char *name)
{
    if (lstat(name, &found))
        return -1;
    return major(found.st_dev) < 1 << 12 && minor(found.st_dev) < 1 << 20;
}

/* As find -inum, and whoever looks for the name of a number. */
static int listed_inodes_are_statted(const char *name)
{
    DIR *folder = opendir(name);
    int right = 1, count = 0;
    if (!folder)
        return -1;
    for (struct dirent *entry; (entry = readdir(folder)); count++)
        if (fstatat(dirfd(folder), entry->d_name, &found, AT_SYMLINK_NOFOLLOW)
            || found.st_ino != entry->d_ino)
            right = 0;
    closedir(folder);
    return right ? count : -2;
}

static int link_leads_to(int fd, const char *end)
{
    char name[64], target[PATH_MAX];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(name, target, sizeof target - 1);
    if (len < 0)
        return -1;
    target[len] = 0;
    return len >= (ssize_t)strlen(end) && strcmp(target + len - strlen(end), end) == 0;
}

/* The link of a number leads to its own file, or nowhere. */
static int read_by(const char *format, int number, int fd)
{
    char name[64], one[64], other[64];
    snprintf(name, sizeof name, format, number);
    int again = open(name, O_RDONLY);
    if (again < 0)
        return -1;
    ssize_t len = pread(fd, one, sizeof one, 0), also = pread(again, other, sizeof other, 0);
    close(again);
    return len > 0 && len == also && memcmp(one, other, len) == 0;
}

static long position_after_append(int fd)
{
    return lseek(fd, 0, SEEK_CUR);
}

/* What is written later is not older. */
static int times_in_order(const char *one, const char *two)
{
    if (make(one, "1") || make(two, "2") || stat(one, &found) || stat(two, &other))
        return -1;
    struct timespec a = found.st_mtim, b = other.st_mtim;
    return a.tv_sec < b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec <= b.tv_nsec);
}

static int bound_socket(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", name);
    int done = bind(fd, (struct sockaddr *)&address, sizeof address), why = errno;
    close(fd);
    errno = why;
    return done;
}

static void names(void)
{
    SAY(make("f", "hello"));
    SAY(mkdir("d", 0755));
    SAY(mkdir("d", 0755));
    SAY(mkdir("f", 0755));
    SAY(mkdir("f/d", 0755));
    SAY(mkdir("no/d", 0755));
    SAY(mkdir("", 0755));
    SAY(mkdir(wide, 0755));
    SAY(mkdir(deep, 0755));
    SAY(open_of("f", O_RDONLY | O_CREAT | O_EXCL));
    SAY(open_of("d", O_WRONLY));
    SAY(open_of("d", O_RDWR | O_CREAT));
    SAY(open_of("f", O_RDONLY | O_DIRECTORY));
    SAY(open_of("no", O_RDONLY));
    SAY(open_of("f/no", O_RDONLY | O_CREAT));
    SAY(open_of("no/no", O_RDONLY | O_CREAT));
    SAY(open_of(wide, O_RDONLY | O_CREAT));
    SAY(open_of("", O_RDONLY | O_CREAT));
    SAY(symlink("f", "l"));
    SAY(symlink("f", "l"));
    SAY(symlink("", "empty"));
    SAY(symlink("loop2", "loop1"));
    SAY(symlink("loop1", "loop2"));
    SAY(open_of("loop1", O_RDONLY));
    SAY(chmod("loop1", 0644));
    SAY(truncate("loop1", 0));
    SAY(open_of("l", O_RDONLY | O_NOFOLLOW));
    SAY(open_of("l", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    SAY(open_of("f/.", O_RDONLY));
    SAY(open_of("f//", O_RDONLY));
    SAY(open_of("d/./", O_RDONLY));
    SAY(open_of("d//..", O_RDONLY));
    SAY(mkdir("d/.", 0755));
    SAY(rmdir("d/."));
    SAY(open_of("l", O_WRONLY | O_CREAT | O_EXCL));
    SAY(symlink("d", "ld"));
    SAY(open_of("ld", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    SAY(open_of("ld/", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    SAY(open_of("ld/.", O_RDONLY | O_NOFOLLOW));
    SAY(symlink("nowhere", "dangling"));
    SAY(open_of("dangling", O_RDONLY));
    SAY(open_of("dangling", O_WRONLY | O_CREAT | O_EXCL));
    SAY(open_of("dangling", O_WRONLY | O_CREAT));
    SAY(mode_of("nowhere"));
    SAY(readlink("l", room, sizeof room));
    SAY(readlink("l", room, 0));
    SAY(readlink("f", room, sizeof room));
    SAY(readlink("no", room, sizeof room));
    SAY(link("f", "h"));
    SAY(links_of("f"));
    SAY(same_inode("f", "h"));
    SAY(link("f", "h"));
    SAY(link("d", "dh"));
    SAY(link("no", "nh"));
    SAY(link("l", "lh"));
    SAY(mode_of("lh"));
    SAY(unlink("lh"));
    SAY(unlink("h"));
    SAY(links_of("f"));
    SAY(unlink("no"));
    SAY(unlink("d"));
    SAY(unlink("f/"));
    SAY(rmdir("f"));
    SAY(rmdir("no"));
    SAY(rmdir("l"));
    SAY(make("d/f", "x"));
    SAY(rmdir("d"));
    SAY(links_of("d"));
    SAY(mkdir("d/e", 0700));
    SAY(links_of("d"));
    SAY(rename("d", "d/e/x"));
    SAY(rename("f", "d"));
    SAY(rename("d", "f"));
    SAY(rename("no", "f"));
    SAY(rename("f", "f"));
    SAY(rename("d/f", "g"));
    SAY(rename("d", "d2"));
    SAY(mkdir("d3", 0755));
    SAY(rename("d2", "d3"));
    SAY(mkdir("d2", 0755));
    SAY(rename("d2", "d3"));
    SAY(renameat2(AT_FDCWD, "f", AT_FDCWD, "g", RENAME_NOREPLACE));
    SAY(renameat2(AT_FDCWD, "f", AT_FDCWD, "g", RENAME_EXCHANGE));
    SAY(size_of("f"));
    SAY(size_of("g"));
    SAY(listed_inodes_are_statted("."));
    SAY(listed_inodes_are_statted("d3"));
    SAY(has_device_in_range("."));
}

static void attributes(void)
{
    struct timespec bad[2] = {{0, 2000000000}, {0, 0}}, set[2] = {{11, 22}, {33, 44}};
    struct timespec kept[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
    umask(027);
    SAY(open_of("masked", O_WRONLY | O_CREAT));
    SAY(mode_of("masked"));
    SAY(mkdir("masked.d", 0777));
    SAY(mode_of("masked.d"));
    umask(022);
    SAY(chmod("f", 0400));
    SAY(open_of("f", O_WRONLY));
    SAY(access("f", W_OK));
    SAY(access("f", R_OK | X_OK));
    SAY(chmod("f", 0));
    SAY(open_of("f", O_RDONLY));
    SAY(open_of("f", O_RDONLY | O_CREAT | O_EXCL));
    SAY(chmod("f", 0644));
    SAY(chmod("no", 0644));
    SAY(chmod("f/x", 0644));
    SAY(chown("f", 0, 0));
    SAY(chown("f", (uid_t)-1, (gid_t)-1));
    SAY(chmod("d3", 0));
    SAY(open_of("d3/f", O_RDONLY));
    SAY(mkdir("d3/x", 0755));
    SAY(chmod("d3", 0500));
    SAY(open_of("d3/new", O_WRONLY | O_CREAT));
    SAY(chmod("d3", 0755));
    SAY(utimensat(AT_FDCWD, "f", set, 0));
    SAY(stat("f", &found) ? -1 : found.st_mtim.tv_sec * 1000 + found.st_mtim.tv_nsec);
    SAY(utimensat(AT_FDCWD, "f", bad, 0));
    SAY(utimensat(AT_FDCWD, "no", set, 0));
    SAY(utimensat(AT_FDCWD, "no", kept, 0));
    SAY(access("f", 8));
    SAY(utimensat(AT_FDCWD, "l", set, AT_SYMLINK_NOFOLLOW));
    SAY(lstat("l", &found) ? -1 : found.st_mtim.tv_sec);
    SAY(times_in_order("t1", "t2"));
    SAY(truncate("f", 3));
    SAY(size_of("f"));
    SAY(truncate("f", -1));
    SAY(truncate("d3", 0));
    SAY(truncate("no", 0));
    SAY(mkfifo("fifo", 0644));
    SAY(S_ISFIFO(mode_of("fifo")));
    SAY(open_of("fifo", O_WRONLY | O_NONBLOCK));
    SAY(open_of("fifo", O_RDONLY | O_NONBLOCK));
    SAY(bound_socket("sock"));
    SAY(S_ISSOCK(mode_of("sock")));
    SAY(open_of("sock", O_RDONLY));
    SAY(unlink("sock"));
    SAY(mknod("node", S_IFREG | 0644, 0));
    SAY(size_of("node"));
}

static void descriptors(void)
{
    static char text[] = "0123456789", got[20];
    struct iovec none[1] = {{text, 0}}, two[2] = {{got, 4}, {got + 4, 8}};
    int fd = open("data", O_RDWR | O_CREAT | O_TRUNC, 0644), number, second, yes = 1, no = 0;
    SAY(write(fd, text, 10));
    SAY(lseek(fd, -1, SEEK_SET));
    SAY(lseek(fd, -11, SEEK_END));
    SAY(lseek(fd, 0, 99));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(lseek(fd, 1L << 50, SEEK_SET));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(ioctl(fd, FIONBIO, &yes));
    SAY(fcntl(fd, F_GETFL) & O_NONBLOCK);
    SAY(ioctl(fd, FIONBIO, &no));
    SAY(fcntl(fd, F_GETFL) & O_NONBLOCK);
    SAY(lseek(fd, 3, SEEK_DATA));
    SAY(lseek(fd, 10, SEEK_DATA));
    SAY(lseek(fd, 2, SEEK_HOLE));
    SAY(read(fd, got, 20));
    SAY(lseek(fd, 0, SEEK_SET));
    SAY(readv(fd, two, 2));
    SAY(writev(fd, none, 1));
    SAY(pread(fd, got, 5, 8));
    SAY(pread(fd, got, 5, 100));
    SAY(pread(fd, got, 5, -1));
    SAY(pwrite(fd, text, 3, 20));
    SAY(pread(fd, got, 20, 8));
    SAY(got[5] == 0 && got[13] == '1');
    SAY(ftruncate(fd, -1));
    SAY(ftruncate(fd, 15));
    SAY(fstat(fd, &found) ? -1 : found.st_size);
    SAY(posix_fallocate(fd, 0, 0));
    SAY(posix_fallocate(fd, 0, 40));
    SAY(fstat(fd, &found) ? -1 : found.st_size);
    SAY(fsync(fd));
    SAY(fdatasync(fd));
    SAY(ioctl(fd, FIONREAD, &number) ? -1 : number);
    SAY(fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK));
    SAY(fcntl(fd, F_GETOWN));
    SAY(fcntl(fd, F_GETSIG));
    SAY(fcntl(fd, F_GETLEASE));
    SAY(fcntl(fd, F_SETLEASE, F_UNLCK));
    SAY(fcntl(fd, F_SETLEASE, 9));
    SAY(fcntl(fd, F_SETSIG, 0));
    SAY(fcntl(fd, F_SETSIG, 65));
    SAY(fcntl(fd, F_GETPIPE_SZ));
    SAY(fcntl(fd, 9999));
    SAY(fcntl(fd, F_SETFL, O_APPEND));
    SAY(write(fd, text, 1));
    SAY(position_after_append(fd));
    SAY(fcntl(fd, F_SETFL, 0));
    SAY(pwrite(fd, "J", 1, 0));
    SAY(fstat(fd, &found) ? -1 : found.st_size);
    SAY((second = open("data", O_WRONLY | O_APPEND)) < 0);
    SAY(write(second, "KK", 2));
    SAY(fcntl(second, F_SETFL, 0));
    SAY(pwrite(second, "L", 1, 1));
    SAY(lseek(second, 3, SEEK_SET));
    SAY(write(second, "M", 1));
    SAY(fstat(fd, &found) ? -1 : found.st_size);
    SAY(pread(fd, got, 4, 0));
    SAY(memcmp(got, "JL", 2) || got[3] != 'M');
    SAY(close(second));
    SAY(fpathconf(fd, _PC_NAME_MAX));
    SAY(fpathconf(fd, _PC_LINK_MAX) > 0);
    SAY(pathconf(".", _PC_PATH_MAX));
    SAY(link_leads_to(fd, "/data"));
    SAY(read_by("/proc/self/fd/%d", fd, fd));
    SAY(read_by("/dev/fd/%d", fd, fd));
    snprintf(room, sizeof room, "/proc/%d/fd/%%d", getpid());
    SAY(read_by(room, fd, fd));
    SAY((second = dup(fd)) < 0);
    SAY(lseek(second, 5, SEEK_SET));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(close(second));
    SAY(unlink("data"));
    SAY(fstat(fd, &found) ? -1 : (int)found.st_nlink);
    SAY(pread(fd, got, 2, 0));
    SAY(close(fd));
    SAY(close(fd));
    SAY(read(fd, got, 1));
    SAY(write(fd, got, 1));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(fstat(fd, &found));
    fd = open("f", O_RDONLY);
    SAY(write(fd, got, 1));
    SAY(ftruncate(fd, 0));
    SAY(close(fd));
    fd = open("f", O_WRONLY);
    SAY(read(fd, got, 1));
    SAY(close(fd));
    fd = open(".", O_RDONLY | O_DIRECTORY);
    SAY(read(fd, got, 1));
    SAY(write(fd, got, 1));
    SAY(ftruncate(fd, 0));
    SAY(fstatat(fd, "f", &found, 0));
    SAY(unlinkat(fd, "f", AT_REMOVEDIR));
    SAY(faccessat(fd, "f", R_OK, 0));
    SAY(close(fd));
    /* A negative number is nobody's, and not that of the folder with its absolute value. */
    fd = fcntl(open(".", O_RDONLY | O_DIRECTORY), F_DUPFD, 200);
    SAY(fstatat(-fd, "f", &found, 0));
    SAY(faccessat(-fd, "f", R_OK, 0));
    SAY(openat(-fd, "f", O_RDONLY));
    SAY(unlinkat(-fd, "f", 0));
    SAY(size_of("f"));
    SAY(close(fd));
}

static void folders(void)
{
    char here[PATH_MAX];
    SAY(mkdir("gone", 0755));
    SAY(chdir("gone"));
    SAY(rmdir("../gone"));
    SAY(getcwd(here, sizeof here) ? 1 : -1);
    SAY(open_of("new", O_WRONLY | O_CREAT));
    SAY(mkdir("new", 0755));
    SAY(stat(".", &found) ? -1 : (int)found.st_nlink);
    SAY(open_of("..", O_RDONLY));
}

int main(int argc, char **argv)
{
    if (argc < 2 || chdir(argv[1]) != 0)
        return 2;
    memset(wide, 'w', NAME_MAX + 1);
    for (size_t i = 0; i + 2 < sizeof deep; i += 2)
        memcpy(deep + i, "p/", 2);
    umask(022);
    names();
    attributes();
    descriptors();
    folders();
    return 0;
}
