/* Makes FILES small files in FOLDER, each durable when it is closed, or looks at them.
 *   metadata FOLDER FILES make|look */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int make(const char *path, char *bytes, size_t len) {
    int file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (file < 0 || write(file, bytes, len) != (ssize_t)len) return 0;
    return fsync(file) == 0 && close(file) == 0;
}

static int look(const char *path, char *bytes, size_t len) {
    struct stat found;
    if (stat(path, &found) != 0 || found.st_size != (off_t)len) return 0;
    int file = open(path, O_RDONLY);
    return file >= 0 && read(file, bytes, len) == (ssize_t)len && close(file) == 0;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    int (*deed)(const char *, char *, size_t) = strcmp(argv[3], "make") == 0 ? make : look;
    char path[4096], bytes[100] = "one hundred bytes";
    for (long number = 0; number < atol(argv[2]); number++) {
        snprintf(path, sizeof path, "%s/%ld", argv[1], number);
        if (!deed(path, bytes, sizeof bytes)) {
            perror(path);
            return 1;
        }
    }
    return 0;
}
