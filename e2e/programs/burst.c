/* Writes a burst of whole megabytes and closes the file.
 *   burst FILE MEGABYTES
 * Prints, in milliseconds and kilobytes: how long the writes took, and the shared memory that the
 * process has behind them before and after the file is closed. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static long shared_kb(void) {
    char line[256];
    long kb = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) sscanf(line, "RssShmem: %ld", &kb);
    if (status) fclose(status);
    return kb;
}

int main(int argc, char **argv) {
    static char bytes[1 << 20];
    if (argc < 3) return 2;
    int file = open(argv[1], O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (file < 0) return 1;
    long began = now_ms();
    for (long i = 0; i < atol(argv[2]); i++) {
        memset(bytes, (int)(i % 251), sizeof bytes);
        if (write(file, bytes, sizeof bytes) != (ssize_t)sizeof bytes) return 1;
    }
    long took = now_ms() - began, before = shared_kb();
    if (close(file) != 0) return 1;
    printf("%ld %ld %ld\n", took, before, shared_kb());
    return 0;
}
