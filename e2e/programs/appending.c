// Has files that are locked, or removed, appended to from now on, or no more.
//   appending, in the folder of the files
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static int made(const char *name, int how, int flags) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | flags, 0600);
    if (how == 1) flock(fd, LOCK_EX);
    if (how == 2 && lockf(fd, F_LOCK, 0)) perror("lockf");
    if (how == 3) unlink(name);
    if (write(fd, "0123456789", 10) != 10) perror("write");
    return fd;
}

static void add(int fd, const char *text) {
    if (write(fd, text, strlen(text)) < 0) perror("write");
}

static void tell(const char *what, int fd) {
    char text[64] = "";
    ssize_t len = pread(fd, text, sizeof text - 1, 0);
    int append = fcntl(fd, F_GETFL) & O_APPEND;
    printf("%s: %zd %s at %ld, append %d\n", what, len, text, (long)lseek(fd, 0, SEEK_CUR), append);
}

int main(void) {
    const char *how[] = {"plain", "flock", "lockf", "removed"};
    setvbuf(stdout, NULL, _IONBF, 0);
    for (int i = 0; i < 4; i++) {
        printf("%s\n", how[i]);
        int fd = made("file", i, 0), other = i == 3 ? dup(fd) : open("file", O_RDWR | O_APPEND);
        lseek(fd, 2, SEEK_SET);
        if (fcntl(fd, F_SETFL, O_APPEND)) perror("F_SETFL");
        tell("set", fd);
        add(other, "other");
        add(fd, "end");
        tell("appended", fd);
        if (pwrite(fd, "there", 5, 1) != 5) perror("pwrite");
        tell("appended by place", fd);
        if (fcntl(fd, F_SETFL, O_NONBLOCK)) perror("F_SETFL");
        lseek(fd, 3, SEEK_SET);
        add(fd, "in");
        tell("no more", fd);
        close(other);
        close(fd);
        fd = made("file", i, O_APPEND);
        if (fcntl(fd, F_SETFL, 0)) perror("F_SETFL");
        lseek(fd, 3, SEEK_SET);
        add(fd, "in");
        tell("opened to append", fd);
        close(fd);
        const char *modes[] = {"a", "a+", "r+", "w+"};
        for (int k = 0; k < 4; k++) {
            fd = made("file", i, 0);
            lseek(fd, 1, SEEK_SET);
            FILE *stream = fdopen(fd, modes[k]);
            printf("%s: %s\n", modes[k], stream ? "open" : strerror(errno));
            if (!stream) continue;
            fputs("stream", stream);
            fflush(stream);
            tell(modes[k], fd);
            fclose(stream);
        }
    }
    return 0;
}
