/* Makes the file calls it is told to, one a line on standard input, and answers each by one line:
 * the call's result, or the name of its error.
 *
 *   open PATH FLAGS      FLAGS of r w + (O_RDONLY O_WRONLY O_RDWR) c t a x s (O_CREAT ... O_SYNC)
 *   close FD             dup FD                 dup2 FD OVER
 *   closerange FD        folder PATH: opendir; its number               closefolder
 *   write FD TEXT        pwrite FD AT TEXT      fill FD COUNT: writes COUNT bytes 'x' in one call
 *   read FD COUNT        pread FD AT COUNT: answer in brackets, for it may be empty
 *   seek FD OFFSET: from where it is; seekend FD OFFSET: from the end; the new position
 *   copyrange FROM TO COUNT: copy_file_range, of both from the start
 *   pwritesync FD TEXT, pwriteasync FD TEXT: pwritev2 with RWF_DSYNC, aio_write, at the start
 *   clone FROM TO, clonerange FROM TO COUNT, dedupe FROM TO COUNT: ioctl, from the start
 *   fsync FD             fdatasync FD           sync                    syncfs FD
 *   truncate FD LEN      allocate FD LEN
 *   map FD: the first page, as shared; peek COUNT: bytes of it, in brackets; poke TEXT: into it
 *   lock FD KIND, trylock FD KIND, share FD KIND, unlock FD KIND: KIND of flock (if none) posix ofd
 *                        lockf
 *   stat PATH            fstat FD: the size
 *   unlink PATH          rename FROM TO         mkdir PATH              rmdir PATH
 *   mkdtemp PATTERN: the length of the name it makes of it
 *   link FROM TO         symlink TEXT PATH      fifo PATH
 *   fopen PATH MODE      puts N TEXT, pad N COUNT (bytes 'x'), flush N, fclose N: streams by number
 *   copy FROM TO         by read and write; TO is executable
 *   run PATH             starts it by fork and exec; the exit status, 126 when it cannot start
 *   many PREFIX COUNT    opens so many files, writes the number of each into it, keeps them open
 *   closemany            closes those; answers how many closed without an error
 */
#define _GNU_SOURCE
#include <aio.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE = 8192, STREAMS = 16, MANY = 8192 };

static FILE *streams[STREAMS];
static DIR *folder;
static char *mapped;
static int many[MANY], many_count;

static int flags_of(const char *letters)
{
    int flags = 0;
    for (; *letters; letters++)
        switch (*letters) {
        case 'w': flags |= O_WRONLY; break;
        case '+': flags |= O_RDWR; break;
        case 'c': flags |= O_CREAT; break;
        case 't': flags |= O_TRUNC; break;
        case 'a': flags |= O_APPEND; break;
        case 'x': flags |= O_EXCL; break;
        case 's': flags |= O_SYNC; break;
        }
    return flags;
}

static char *filled(size_t count)
{
    char *bytes = malloc(count);
    if (bytes != NULL)
        memset(bytes, 'x', count);
    return bytes;
}

static long fill(int fd, size_t count)
{
    char *bytes = filled(count);
    ssize_t len = write(fd, bytes, count);
    free(bytes);
    return len;
}

static long pad(FILE *stream, size_t count)
{
    char *bytes = filled(count);
    size_t len = fwrite(bytes, 1, count, stream);
    free(bytes);
    return len == count ? (long)len : -1;
}

static long copy_range(int from, int to, size_t count)
{
    off_t from_at = 0, to_at = 0;
    return copy_file_range(from, &from_at, to, &to_at, count, 0);
}

static long write_synced(int fd, char *text)
{
    struct iovec all = {text, strlen(text)};
    return pwritev2(fd, &all, 1, 0, RWF_DSYNC);
}

static long write_asynchronously(int fd, char *text)
{
    struct aiocb request = {.aio_fildes = fd, .aio_buf = text, .aio_nbytes = strlen(text)};
    const struct aiocb *list[] = {&request};
    if (aio_write(&request) < 0 || aio_suspend(list, 1, NULL) < 0)
        return -1;
    return aio_return(&request);
}

static long clone_range(int from, int to, size_t count)
{
    struct file_clone_range range = {from, 0, count, 0};
    return ioctl(to, FICLONERANGE, &range);
}

static long dedupe(int from, int to, size_t count)
{
    union {
        struct file_dedupe_range range;
        char room[sizeof(struct file_dedupe_range) + sizeof(struct file_dedupe_range_info)];
    } all = {{.src_length = count, .dest_count = 1}};
    all.range.info[0].dest_fd = to;
    return ioctl(from, FIDEDUPERANGE, &all);
}

static long size_of(int result, const struct stat *found)
{
    return result < 0 ? -1 : (long)found->st_size;
}

static long copy(const char *from, const char *to)
{
    char block[65536];
    ssize_t len;
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    if (in < 0 || out < 0)
        return -1;
    while ((len = read(in, block, sizeof block)) > 0)
        if (write(out, block, (size_t)len) != len)
            return -1;
    return len < 0 || close(in) < 0 ? -1 : close(out);
}

static long run(const char *path)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        execl(path, path, (char *)NULL);
        _exit(126);
    }
    return child < 0 || waitpid(child, &status, 0) < 0 ? -1 : WEXITSTATUS(status);
}

static long open_many(const char *prefix, int count)
{
    for (many_count = 0; many_count < count && many_count < MANY; many_count++) {
        char path[4096], text[32];
        snprintf(path, sizeof path, "%s.%d", prefix, many_count);
        int len = snprintf(text, sizeof text, "%d", many_count);
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        if (fd < 0 || write(fd, text, (size_t)len) != len)
            return -1;
        many[many_count] = fd;
    }
    return many_count;
}

static long close_many(void)
{
    long closed = 0;
    for (int i = 0; i < many_count; i++)
        closed += close(many[i]) == 0;
    return closed;
}

/* `type` as for `fcntl`; `waits` as long as it takes. */
static long lock(int fd, const char *kind, int type, int waits)
{
    struct flock whole = {.l_type = (short)type, .l_whence = SEEK_SET};
    if (kind != NULL && strcmp(kind, "posix") == 0)
        return fcntl(fd, waits ? F_SETLKW : F_SETLK, &whole);
    if (kind != NULL && strcmp(kind, "ofd") == 0)
        return fcntl(fd, waits ? F_OFD_SETLKW : F_OFD_SETLK, &whole);
    if (kind != NULL && strcmp(kind, "lockf") == 0)
        return lockf(fd, type == F_UNLCK ? F_ULOCK : waits ? F_LOCK : F_TLOCK, 0);
    int operation = type == F_UNLCK ? LOCK_UN : type == F_RDLCK ? LOCK_SH : LOCK_EX;
    return flock(fd, operation | (waits ? 0 : LOCK_NB));
}

static long open_folder(const char *path)
{
    folder = opendir(path);
    return folder == NULL ? -1 : dirfd(folder);
}

/* A read's answer is its bytes; `*text` takes them. */
static long get(int fd, off_t at, size_t count, char *text)
{
    ssize_t len = at < 0 ? read(fd, text + 1, count) : pread(fd, text + 1, count, at);
    if (len >= 0) {
        text[0] = '[';
        strcpy(text + 1 + len, "]");
    }
    return len;
}

static long map(int fd)
{
    mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return mapped == MAP_FAILED ? -1 : 0;
}

static long poke(const char *text)
{
    memcpy(mapped, text, strlen(text));
    return (long)strlen(text);
}

static FILE **stream(const char *number)
{
    return &streams[atoi(number) % STREAMS];
}

static long new_stream(const char *path, const char *mode)
{
    for (int i = 0; i < STREAMS; i++)
        if (streams[i] == NULL)
            return (streams[i] = fopen(path, mode)) == NULL ? -1 : i;
    errno = EMFILE;
    return -1;
}

static long end_stream(FILE **stream)
{
    FILE *old = *stream;
    *stream = NULL;
    return fclose(old);
}

#define IS(name) (strcmp(w[0], name) == 0)

static long of_streams(char **w)
{
    if (IS("fopen")) return new_stream(w[1], w[2]);
    if (IS("puts")) return fputs(w[2], *stream(w[1])) < 0 ? -1 : (long)strlen(w[2]);
    if (IS("pad")) return pad(*stream(w[1]), strtoul(w[2], NULL, 10));
    if (IS("flush")) return fflush(*stream(w[1]));
    if (IS("fclose")) return end_stream(stream(w[1]));
    fprintf(stderr, "calls: no call %s\n", w[0]);
    exit(2);
}

static long of_paths(char **w)
{
    struct stat found;
    if (IS("open")) return open(w[1], flags_of(w[2]), 0666);
    if (IS("stat")) return size_of(stat(w[1], &found), &found);
    if (IS("unlink")) return unlink(w[1]);
    if (IS("rename")) return rename(w[1], w[2]);
    if (IS("link")) return link(w[1], w[2]);
    if (IS("symlink")) return symlink(w[1], w[2]);
    if (IS("fifo")) return mkfifo(w[1], 0600);
    if (IS("mkdir")) return mkdir(w[1], 0777);
    if (IS("mkdtemp")) return mkdtemp(w[1]) == w[1] ? (long)strlen(w[1]) : -1;
    if (IS("rmdir")) return rmdir(w[1]);
    if (IS("folder")) return open_folder(w[1]);
    if (IS("closefolder")) return closedir(folder);
    if (IS("copy")) return copy(w[1], w[2]);
    if (IS("run")) return run(w[1]);
    if (IS("many")) return open_many(w[1], atoi(w[2]));
    if (IS("closemany")) return close_many();
    return of_streams(w);
}

static long call(char **w, char *text)
{
    struct stat found;
    int fd = w[1] ? atoi(w[1]) : -1;
    if (IS("close")) return close(fd);
    if (IS("dup")) return dup(fd);
    if (IS("dup2")) return dup2(fd, atoi(w[2]));
    if (IS("closerange")) return close_range((unsigned)fd, (unsigned)fd, 0);
    if (IS("write")) return write(fd, w[2], strlen(w[2]));
    if (IS("pwrite")) return pwrite(fd, w[3], strlen(w[3]), atol(w[2]));
    if (IS("fill")) return fill(fd, strtoul(w[2], NULL, 10));
    if (IS("read")) return get(fd, -1, strtoul(w[2], NULL, 10), text);
    if (IS("pread")) return get(fd, atol(w[2]), strtoul(w[3], NULL, 10), text);
    if (IS("seek")) return lseek(fd, atol(w[2]), SEEK_CUR);
    if (IS("seekend")) return lseek(fd, atol(w[2]), SEEK_END);
    if (IS("allocate")) return fallocate(fd, 0, 0, atol(w[2]));
    if (IS("copyrange")) return copy_range(fd, atoi(w[2]), strtoul(w[3], NULL, 10));
    if (IS("pwritesync")) return write_synced(fd, w[2]);
    if (IS("pwriteasync")) return write_asynchronously(fd, w[2]);
    if (IS("clone")) return ioctl(atoi(w[2]), FICLONE, fd);
    if (IS("clonerange")) return clone_range(fd, atoi(w[2]), strtoul(w[3], NULL, 10));
    if (IS("dedupe")) return dedupe(fd, atoi(w[2]), strtoul(w[3], NULL, 10));
    if (IS("fsync")) return fsync(fd);
    if (IS("fdatasync")) return fdatasync(fd);
    if (IS("sync")) return sync(), 0;
    if (IS("syncfs")) return syncfs(fd);
    if (IS("map")) return map(fd);
    if (IS("peek")) return sprintf(text, "[%.*s]", fd, mapped);
    if (IS("poke")) return poke(w[1]);
    if (IS("truncate")) return ftruncate(fd, atol(w[2]));
    if (IS("lock")) return lock(fd, w[2], F_WRLCK, 1);
    if (IS("trylock")) return lock(fd, w[2], F_WRLCK, 0);
    if (IS("share")) return lock(fd, w[2], F_RDLCK, 1);
    if (IS("unlock")) return lock(fd, w[2], F_UNLCK, 1);
    if (IS("fstat")) return size_of(fstat(fd, &found), &found);
    return of_paths(w);
}

int main(void)
{
    static char line[LINE], text[LINE];
    setvbuf(stdout, NULL, _IONBF, 0);
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *words[5] = {NULL}, *rest = NULL;
        for (int i = 0; i < 4; i++)
            words[i] = strtok_r(i == 0 ? line : NULL, " \n", &rest);
        text[0] = 0;
        long result = call(words, text);
        if (text[0] == 0) {
            if (result < 0)
                snprintf(text, sizeof text, "%s", strerrorname_np(errno));
            else
                snprintf(text, sizeof text, "%ld", result);
        }
        printf("%s\n", text);
    }
    return 0;
}
