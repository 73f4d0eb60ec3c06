// Writes small pieces and, at once, large ones over them: the last write wins.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SMALL = 100, LARGE = 300 << 10, ROUNDS = 50 };

static char old[SMALL], new[LARGE];

int main(void) {
    memset(old, 'o', sizeof old);
    memset(new, 'n', sizeof new);
    for (int round = 0; round < ROUNDS; round++) {
        int file = open("file", O_CREAT | O_TRUNC | O_RDWR, 0600);
        if (file < 0 || pwrite(file, old, sizeof old, 50) != sizeof old ||
            pwrite(file, new, sizeof new, 0) != sizeof new || close(file) != 0)
            return 1;
        char found[2 * SMALL];
        file = open("file", O_RDONLY);
        if (file < 0 || read(file, found, sizeof found) != sizeof found || close(file) != 0)
            return 2;
        if (memchr(found, 'o', sizeof found))
            return 3;
    }
    return 0;
}
