// Appends lines of many lengths to a log that others append to, each by one call.
//   lines FILE NAME COUNT LEN_MAX
// A line is NAME, its number, its length, and as many bytes of NAME as that takes. The file is
// opened again every few lines.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    const char *name = argv[2];
    long count = atol(argv[3]), len_max = atol(argv[4]);
    unsigned seed = (unsigned)name[0];
    char *line = malloc(len_max + 64);
    int file = -1;
    for (long i = 0; i < count; i++) {
        if (i % 37 == 0) {
            if (file >= 0 && close(file) != 0) return 1;
            file = open(argv[1], O_CREAT | O_WRONLY | O_APPEND, 0600);
            if (file < 0) return 1;
        }
        long len = 40 + (i % 5 == 0 ? rand_r(&seed) % (len_max - 40) : rand_r(&seed) % 200);
        int head = sprintf(line, "%s %ld %ld ", name, i, len);
        memset(line + head, name[0], len - head);
        line[len - 1] = '\n';
        ssize_t wrote = write(file, line, len);
        if (wrote != len) {
            fprintf(stderr, "lines: %zd of %ld: %s\n", wrote, len, strerror(errno));
            return 1;
        }
    }
    return close(file) != 0;
}
