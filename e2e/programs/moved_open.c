// Renames and removes names of files that are open, or known by a number alone, and opens these
// once more by it.
//   moved_open, in the folder of the files
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void tell(const char *what, int fd) {
    char name[40];
    struct stat found;
    int links = fstat(fd, &found) ? -errno : (int)found.st_nlink;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    int again = open(name, O_RDONLY);
    printf("%s: links %d, again %s\n", what, links, again < 0 ? strerror(errno) : "open");
    close(again);
}

static int known(const char *name) {
    close(open(name, O_RDWR | O_CREAT, 0644));
    return open(name, O_PATH);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    int path = known("one");
    if (rename("one", "other")) perror("rename");
    tell("renamed", path);
    mkdir("folder", 0755);
    if (rename("other", "folder/name")) perror("rename");
    tell("renamed into a folder", path);
    if (link("folder/name", "second") || unlink("folder/name")) perror("link");
    tell("by its second name", path);
    int exchanged = known("exchanged");
    if (renameat2(AT_FDCWD, "second", AT_FDCWD, "exchanged", RENAME_EXCHANGE)) perror("exchange");
    tell("exchanged", path);
    tell("the other one", exchanged);
    return 0;
}
