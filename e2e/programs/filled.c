/* A program whose numbers of descriptors are used up before it names its first file, and when it
 * has files open. Prints the same wherever its files are. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LIMIT = 64 };

static void fill(void)
{
    while (dup(0) >= 0)
        ;
    if (errno != EMFILE)
        perror("dup");
}

static void empty(void)
{
    for (int fd = 3; fd < LIMIT; fd++)
        close(fd);
}

static void refused(const char *what, int fd)
{
    printf("%s: %s\n", what, fd >= 0 ? "done" : errno == EMFILE ? "EMFILE" : "another error");
}

static void written(const char *name, int fd)
{
    struct stat found;
    if (write(fd, "text\n", 5) != 5 || close(fd) || stat(name, &found) || found.st_size != 5)
        perror(name);
}

int main(void)
{
    struct rlimit limit = {LIMIT, LIMIT};
    if (setrlimit(RLIMIT_NOFILE, &limit))
        perror("setrlimit");
    fill();
    refused("the first file", open("first", O_WRONLY | O_CREAT, 0644));
    empty();
    written("first", open("first", O_WRONLY | O_CREAT, 0644));

    int fd = open("second", O_WRONLY | O_CREAT, 0644);
    fill();
    refused("another file", open("first", O_RDONLY));
    if (mkdir("folder", 0755) || rename("first", "folder/first") || unlink("folder/first"))
        perror("names");
    written("second", fd);
    empty();
    written("third", open("third", O_WRONLY | O_CREAT, 0644));
    return 0;
}
