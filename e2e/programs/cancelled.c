// Cancels a thread that opens a pipe nobody writes to.
//   cancelled PIPE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static void *reader(void *path) {
    close(open(path, O_RDONLY));
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t thread;
    void *outcome;
    if (argc != 2 || mkfifo(argv[1], 0600) != 0) return 1;
    if (pthread_create(&thread, NULL, reader, argv[1]) != 0) return 1;
    usleep(100000);
    pthread_cancel(thread);
    pthread_join(thread, &outcome);
    puts(outcome == PTHREAD_CANCELED ? "cancelled" : "opened");
    return 0;
}
