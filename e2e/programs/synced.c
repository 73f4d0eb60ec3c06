// A thread syncs a file while another has it left to the kernel: that is no error of the sync.
//   synced FILE DAEMON
// Stops the daemon, of that process number, so that it finds what both ask for at once, and has two
// threads take turns at each part: which of them it serves first is their lanes' matter.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROUNDS = 8 };

static const char *name;
static pid_t daemon_id;
static int fd;
static atomic_int ids[2];

// Whether a thread sleeps.
static int waits(int id) {
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", id);
    FILE *stat = id ? fopen(path, "r") : NULL;
    if (stat == NULL) return 0;
    int found = fscanf(stat, "%*d (%*[^)]) %c", &state);
    fclose(stat);
    return found == 1 && state == 'S';
}

static void *sync_it(void *error) {
    ids[0] = gettid();
    *(int *)error = fsync(fd) ? errno : 0;
    return NULL;
}

static void *map_it(void *unused) {
    while (!waits(ids[0])) sched_yield();
    ids[1] = gettid();
    void *mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED) munmap(mapped, 4096);
    return unused;
}

static int round_of(int number) {
    char path[4096];
    struct stat found;
    int error = 0;
    pthread_t threads[2];
    snprintf(path, sizeof path, "%s.%d", name, number);
    fd = open(path, O_RDWR | O_CREAT, 0600);
    if (write(fd, "staged", 6) != 6 || kill(daemon_id, SIGSTOP)) return 2;
    ids[0] = ids[1] = 0;
    // Stacks are used again, so the threads change places.
    for (int i = 0; i < 2; i++) {
        int syncs = (i + number) % 2;
        if (pthread_create(&threads[i], NULL, syncs ? sync_it : map_it, &error)) return 2;
    }
    while (!waits(ids[0]) || !waits(ids[1])) sched_yield();
    kill(daemon_id, SIGCONT);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    if (error) printf("fsync: %s\n", strerror(error));
    return close(fd) || stat(path, &found) || found.st_size != 6;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    name = argv[1];
    daemon_id = atoi(argv[2]);
    for (int i = 0; i < ROUNDS; i++)
        if (round_of(i)) return 1;
    puts("synced");
    return 0;
}
