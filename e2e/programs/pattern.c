/* Writes files as programs do, each by a number of writes of one length.
 *   pattern FOLDER FILES WRITES LEN [direct]
 * Byte B of file F is (F + B / LEN + B) mod 251. Fails with what a call is refused with, and prints
 * the call. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int refused(const char *call) {
    printf("%s: %s\n", call, strerror(errno));
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    long files = atol(argv[2]), writes = atol(argv[3]), len = atol(argv[4]);
    int flags = O_CREAT | O_TRUNC | O_WRONLY | (argc > 5 ? O_DIRECT : 0);
    unsigned char *bytes = aligned_alloc(4096, (len + 4095) / 4096 * 4096);
    for (long number = 0; number < files; number++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%ld", argv[1], number);
        int file = open(path, flags, 0600);
        if (file < 0) return refused("open");
        for (long i = 0; i < writes; i++) {
            for (long b = 0; b < len; b++) bytes[b] = (number + i + i * len + b) % 251;
            ssize_t wrote = write(file, bytes, len);
            if (wrote < 0) return refused("write");
            if (wrote != len) return 3;
        }
        if (close(file) != 0) return refused("close");
    }
    return 0;
}
