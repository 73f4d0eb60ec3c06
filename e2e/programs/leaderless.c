// leaderless FILE: the first thread ends; then another one writes FILE, which is a relative path.
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_t first;

static void *second(void *path) {
    const char text[] = "alive\n";
    pthread_join(first, NULL);
    // The thread is joined before the kernel has let go of what it had.
    while (access("/proc/self/cwd", F_OK) == 0) usleep(1000);
    int file = open(path, O_CREAT | O_WRONLY, 0600);
    if (file < 0 || write(file, text, strlen(text)) != (ssize_t)strlen(text) || close(file) != 0) {
        perror(path);
        exit(1);
    }
    exit(0);
}

int main(int argc, char **argv) {
    pthread_t thread;
    if (argc != 2) return 2;
    first = pthread_self();
    if (pthread_create(&thread, NULL, second, argv[1]) != 0) return 1;
    pthread_exit(NULL);
}
