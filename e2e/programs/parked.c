// A handler keeps a thread that writes all the time, while another one ends the process.
//   parked FILE _exit|exit|fork
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t goes_on, ends;

static void handler(int signal) {
    (void)signal;
    while (!goes_on) usleep(1000);
}

static void *writer(void *path) {
    static char block[65536];
    memset(block, 'x', sizeof block);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    while (!ends && write(fd, block, sizeof block) == sizeof block) {
        if (lseek(fd, 0, SEEK_CUR) > 1 << 24) lseek(fd, 0, SEEK_SET);
    }
    close(fd);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t thread;
    if (argc != 3) return 2;
    signal(SIGUSR1, handler);
    pthread_create(&thread, NULL, writer, argv[1]);
    usleep(100000);
    pthread_kill(thread, SIGUSR1);
    usleep(50000);
    if (strcmp(argv[2], "_exit") == 0) _exit(0);
    if (strcmp(argv[2], "exit") == 0) exit(0);
    pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, NULL, 0);
    goes_on = ends = 1;
    pthread_join(thread, NULL);
    return 0;
}
