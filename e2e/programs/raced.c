// A thread opens a file while another locks it, which keeps that lock whatever the first one does.
//   raced FILE DAEMON
// Stops the daemon, of that process number, so that the file is locked in the middle of the open.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *name;
static atomic_int opener;

static int open_file(void) { return open(name, O_RDWR | O_CREAT, 0600); }

static void *open_another(void *number) {
    opener = gettid();
    *(int *)number = open_file();
    return NULL;
}

// Whether the thread that opens the file sleeps.
static int waits(void) {
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", opener);
    FILE *stat = opener ? fopen(path, "r") : NULL;
    if (stat == NULL) return 0;
    int found = fscanf(stat, "%*d (%*[^)]) %c", &state);
    fclose(stat);
    return found == 1 && state == 'S';
}

// The kernel shall have the file from now on.
static void map(int fd) {
    void *mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED) munmap(mapped, 4096);
}

static int lock(int fd) {
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_SETLK, &all);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    name = argv[1];
    pid_t daemon = atoi(argv[2]);
    int first = open_file(), second = -1;
    map(first);
    pthread_t thread;
    if (kill(daemon, SIGSTOP) || pthread_create(&thread, NULL, open_another, &second)) return 2;
    while (!waits()) sched_yield();
    int locked = lock(first);
    if (kill(daemon, SIGCONT) || pthread_join(thread, NULL) || locked) return 2;
    if (pwrite(second, "x", 1, 0) != 1) return 2;
    map(second);
    pid_t child = fork();
    if (child == 0) _exit(lock(open_file()) == 0);
    int status;
    if (waitpid(child, &status, 0) != child) return 2;
    printf("%s\n", status == 0 ? "held" : "free");
    return 0;
}
