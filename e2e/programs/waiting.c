// Has many threads wait for the other ends of pipes, each in open, and then opens these.
//   waiting FOLDER
// Exit status: 0; 1 after an error, which standard error names.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { THREADS = 80 };

static const char *folder;

static void path_of(char *path, size_t len, size_t number) {
    snprintf(path, len, "%s/pipe%zu", folder, number);
}

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static void *wait_for_writer(void *number) {
    char path[4096];
    path_of(path, sizeof path, (size_t)number);
    int pipe = open(path, O_RDONLY);
    if (pipe < 0 || close(pipe) != 0) fail(path);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    char path[4096];
    if (argc != 2) return 1;
    folder = argv[1];
    for (size_t number = 0; number < THREADS; number++) {
        path_of(path, sizeof path, number);
        if (mkfifo(path, 0600) != 0) fail(path);
        pthread_t *thread = &threads[number];
        if (pthread_create(thread, NULL, wait_for_writer, (void *)number) != 0) fail(path);
    }
    usleep(200 * 1000);
    for (size_t number = 0; number < THREADS; number++) {
        path_of(path, sizeof path, number);
        int pipe = open(path, O_WRONLY);
        if (pipe < 0 || close(pipe) != 0) fail(path);
        pthread_join(threads[number], NULL);
    }
    return 0;
}
