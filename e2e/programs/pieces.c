// Two processes append to one file, by calls of many pieces each.
//   pieces FILE COUNT PIECES LEN
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    int count = atoi(argv[2]), pieces = atoi(argv[3]), len = atoi(argv[4]);
    pid_t children[2];
    for (int child = 0; child < 2; child++) {
        children[child] = fork();
        if (children[child] != 0) continue;
        int fd = open(argv[1], O_WRONLY | O_APPEND | O_CREAT, 0644);
        char *piece = malloc(len);
        memset(piece, 'a' + child, len);
        struct iovec list[pieces];
        for (int i = 0; i < pieces; i++) list[i] = (struct iovec){piece, len};
        for (int i = 0; i < count; i++) {
            if (writev(fd, list, pieces) != pieces * len) _exit(1);
        }
        _exit(close(fd) != 0);
    }
    for (int child = 0; child < 2; child++) {
        int status;
        if (waitpid(children[child], &status, 0) < 0 || status != 0) return 1;
    }
    return 0;
}
