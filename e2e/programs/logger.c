// Writes many small files, says so, and then adds a line to a log ten times a second.
//   logger LOG FILES LINES
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    char name[4096];
    snprintf(name, sizeof name, "%s.small", argv[1]);
    for (int i = atoi(argv[2]); i > 0; i--) {
        FILE *file = fopen(name, "w");
        if (!file || fprintf(file, "file %d\n", i) < 0 || fclose(file) != 0) return 1;
    }
    puts("written");
    fflush(stdout);
    FILE *log = fopen(argv[1], "a");
    if (!log) return 1;
    for (int i = 0; i < atoi(argv[3]); i++) {
        if (fprintf(log, "step %d: residual 1.0e-6\n", i) < 0 || fflush(log) != 0) return 1;
        nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
    }
    return fclose(log) != 0;
}
