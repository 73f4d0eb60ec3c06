// Appends the same few bytes again and again, and counts what came of it.
//   append FILE COUNT
// Prints the bytes that were appended for certain, and those of which it is unknown (EIO).
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char bytes[] = "xxxxxxx";
    long count = argc == 3 ? atol(argv[2]) : 0, certain = 0, unknown = 0;
    int file = count > 0 ? open(argv[1], O_CREAT | O_WRONLY | O_APPEND, 0600) : -1;
    if (file < 0) {
        fprintf(stderr, "append: %s\n", strerror(errno));
        return 1;
    }
    while (count-- > 0) {
        ssize_t len = write(file, bytes, sizeof bytes - 1);
        if (len >= 0) {
            certain += len;
        } else if (errno == EIO) {
            unknown += sizeof bytes - 1;
        } else {
            fprintf(stderr, "append: %s\n", strerror(errno));
            return 1;
        }
    }
    if (close(file) != 0) return 1;
    printf("%ld %ld\n", certain, unknown);
    return 0;
}
