// Writes tiny pieces to two new files in turn, so that no two of a file follow each other in what
// a client publishes: several rounds, each with files of its own.
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

enum { ROUNDS = 8, WRITES = 20000 };

int main(int argc, char **argv) {
    if (argc < 2 || chdir(argv[1])) return 1;
    for (int round = 0; round < ROUNDS; round++) {
        int fds[2];
        for (int i = 0; i < 2; i++) {
            char name[16];
            snprintf(name, sizeof name, "%d%c", round, 'a' + i);
            fds[i] = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);
            if (fds[i] < 0) return 2;
        }
        for (int at = 0; at < WRITES; at++) {
            char byte = 'a' + at % 26;
            if (write(fds[at % 2], &byte, 1) != 1) return 3;
        }
        if (close(fds[0]) || close(fds[1])) return 4;
    }
    return 0;
}
