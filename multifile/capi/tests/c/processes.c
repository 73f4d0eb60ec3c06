/* The seam of sion_group.h, as a C file for MPI uses it: processes around a shared mapping. */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sion_group.h>

#include "check.h"

enum { RANKS = 5, AREA = 1 << 16, FSBLK = 512, LEN = 3000 };

struct shared {
    pthread_barrier_t barrier;
    unsigned char area[AREA];
};

static struct shared *shared;
static int me, released;

static int barrier(void *context) {
    (void)context;
    int code = pthread_barrier_wait(&shared->barrier);
    return code != 0 && code != PTHREAD_BARRIER_SERIAL_THREAD;
}

static int gather(void *context, const void *mine, void *all, size_t len) {
    memcpy(shared->area + (size_t)me * len, mine, len);
    barrier(context);
    if (me == 0)
        memcpy(all, shared->area, len * RANKS);
    return barrier(context);
}

static int scatter(void *context, const void *all, void *mine, size_t len) {
    if (me == 0)
        memcpy(shared->area, all, len * RANKS);
    barrier(context);
    memcpy(mine, shared->area + (size_t)me * len, len);
    return barrier(context);
}

static int broadcast(void *context, void *bytes, size_t len) {
    if (me == 0)
        memcpy(shared->area, bytes, len);
    barrier(context);
    memcpy(bytes, shared->area, len);
    return barrier(context);
}

static void release(void *context) {
    CHECK(context == &released);
    released++;
}

static int paropen(const char *name, const char *mode, int numfiles, sion_int64 chunk) {
    sion_group group = {&released, me,      RANKS, gather,  scatter,
                        broadcast, barrier, NULL,  release, 0, 0, 1};
    sion_group_place place = sion_group_cut(me, RANKS, numfiles);
    sion_int32 fsblksize = FSBLK;
    int globalrank = -1;
    int sid = sion_group_paropen(&group, name, mode, &place, &chunk, &fsblksize, &globalrank, NULL,
                                 NULL);
    CHECK(sid < 0 || (globalrank == me && place.numfiles == numfiles));
    return sid;
}

static void one_rank(void) {
    int rank, size;
    unsigned char *bytes = new_pattern(me, 0, LEN), back[LEN];
    int sid = paropen("processes.sion", "bw", 2, 100);
    CHECK(sid >= 0 && sion_group_of(sid, &rank, &size) && rank == me && size == RANKS);
    CHECK(sion_group_parreinit(sid, 700));
    CHECK(sion_fwrite(bytes, 1, LEN, sid) == LEN);
    CHECK(sion_group_parclose(sid) && released == 1);
    sid = paropen("processes.sion", "br", 2, 0);
    CHECK(sid >= 0 && sion_fread(back, 1, LEN, sid) == LEN && is_pattern(back, me, 0, LEN));
    CHECK(sion_group_parclose(sid) && released == 2);
    /* A failed open gives the group back, too. */
    CHECK(paropen("nowhere/processes.sion", "bw", 1, 100) == -1 && released == 3);
    CHECK(sion_last_error() == SION_ERR_IO && sion_last_error_rank() == 0);
    CHECK(paropen("processes.sion", "neither", 1, 100) == -1 && released == 4);
    free(bytes);
}

int main(void) {
    pthread_barrierattr_t between_processes;
    shared = (struct shared *)mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    pthread_barrierattr_init(&between_processes);
    pthread_barrierattr_setpshared(&between_processes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &between_processes, RANKS);
    for (me = 1; me < RANKS; me++)
        if (fork() == 0) {
            one_rank();
            return 0;
        }
    me = 0;
    one_rank();
    for (int i = 1, status; i < RANKS; i++)
        CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return 0;
}
