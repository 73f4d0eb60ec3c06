// Writes blocks of a shared file in turn with others, as IOR does, for a while.
//   ior FILE RANK RANKS START SECONDS
// Begins at START (CLOCK_MONOTONIC, nanoseconds) and prints the bytes written until SECONDS later.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK_LEN = 64 << 10, SEGMENTS = 16 };

static char block[BLOCK_LEN];

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc != 6) return 2;
    int64_t rank = atoll(argv[2]), ranks = atoll(argv[3]), start = atoll(argv[4]);
    int64_t end = start + atoll(argv[5]) * 1000000000LL, count = 0;
    int file = open(argv[1], O_CREAT | O_WRONLY, 0600);
    if (file < 0 || now() > start) {
        fprintf(stderr, "ior: %s\n", file < 0 ? strerror(errno) : "too late");
        return 1;
    }
    memset(block, 'a' + (int)rank, sizeof block);
    struct timespec at = {.tv_sec = start / 1000000000LL, .tv_nsec = start % 1000000000LL};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
    for (; now() < end; count++) {
        int64_t place = (count % SEGMENTS * ranks + rank) * BLOCK_LEN;
        if (pwrite(file, block, sizeof block, place) != sizeof block) {
            fprintf(stderr, "ior: %s\n", strerror(errno));
            return 1;
        }
    }
    printf("%lld\n", (long long)count * BLOCK_LEN);
    return close(file) != 0;
}
