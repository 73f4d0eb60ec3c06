/* Writes a little to a file, locks all memory, and limits the address space to MEGABYTES.
 *   reserved FILE MEGABYTES
 * Prints, as 1 or 0, whether half of the address space was free then, and whether memory could be
 * locked; and the shared memory that the program had then, in kilobytes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static long shared_kb(void) {
    char line[256];
    long kb = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) sscanf(line, "RssShmem: %ld", &kb);
    if (status) fclose(status);
    return kb;
}

int main(int argc, char **argv) {
    static char bytes[4096];
    if (argc < 3) return 2;
    int file = open(argv[1], O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (file < 0) return 1;
    for (int i = 0; i < 64; i++)
        if (write(file, bytes, sizeof bytes) != sizeof bytes) return 1;
    size_t len = (size_t)atol(argv[2]) << 20;
    int is_locked = mlockall(MCL_CURRENT) == 0;
    long locked = shared_kb();
    munlockall();
    struct rlimit limit = {len, RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 1;
    void *most = malloc(len / 2);
    printf("%d %d %ld\n", most != NULL, is_locked, locked);
    return close(file) != 0;
}
