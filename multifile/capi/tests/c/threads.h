/* Threads of one process as ranks of the generic interface. */
#ifndef THREADS_H
#define THREADS_H

#include <pthread.h>
#include <string.h>

#include "check.h"

#define RANKS_MAX 16

struct team {
    int size;
    pthread_barrier_t barrier;
    void *root[1];
    void *of[RANKS_MAX];
};

/* What a communicator is here: a team and a place in it. */
struct comm {
    struct team *team;
    int rank;
};

static struct team local_teams[RANKS_MAX];

static inline size_t bytes_of(int dtype, int count) {
    size_t size = dtype == _SION_INT64 ? 8 : dtype == _SION_INT32 ? 4 : 1;
    return size * (size_t)count;
}

static inline int cb_barrier(void *comm) {
    pthread_barrier_wait(&((struct comm *)comm)->team->barrier);
    return SION_STD_SUCCESS;
}

static inline int cb_bcastr(void *data, void *at, int dtype, int count, int root) {
    struct comm *comm = (struct comm *)at;
    if (comm->rank == root)
        comm->team->root[0] = data;
    cb_barrier(comm);
    if (comm->rank != root)
        memcpy(data, comm->team->root[0], bytes_of(dtype, count));
    return cb_barrier(comm);
}

static inline int cb_gatherr(void *in, void *out, void *at, int dtype, int count, int root) {
    struct comm *comm = (struct comm *)at;
    comm->team->of[comm->rank] = in;
    cb_barrier(comm);
    if (comm->rank == root)
        for (int rank = 0; rank < comm->team->size; rank++)
            memcpy((char *)out + (size_t)rank * bytes_of(dtype, count), comm->team->of[rank],
                   bytes_of(dtype, count));
    cb_barrier(comm);
    /* Some programs think that this is success, and the original never looked. */
    return SION_SUCCESS;
}

static inline int cb_scatterr(void *all, void *mine, void *at, int dtype, int count, int root) {
    struct comm *comm = (struct comm *)at;
    if (comm->rank == root)
        comm->team->root[0] = all;
    cb_barrier(comm);
    memcpy(mine, (char *)comm->team->root[0] + (size_t)comm->rank * bytes_of(dtype, count),
           bytes_of(dtype, count));
    return cb_barrier(comm);
}

static inline int cb_gathervr(void *in, void *out, void *comm, int dtype, int *counts, int count,
                              int root) {
    (void)in, (void)out, (void)comm, (void)dtype, (void)counts, (void)count, (void)root;
    return SION_STD_NOT_SUCCESS;
}

static inline int cb_create_local(void **local, void *global, int grank, int gsize, int lrank,
                                  int lsize, int filenumber, int numfiles) {
    (void)grank, (void)gsize, (void)numfiles;
    struct comm *comm = (struct comm *)malloc(sizeof *comm);
    comm->team = &local_teams[filenumber];
    comm->rank = lrank;
    if (lrank == 0) {
        comm->team->size = lsize;
        pthread_barrier_init(&comm->team->barrier, NULL, (unsigned)lsize);
    }
    cb_barrier(global);
    *local = comm;
    return SION_STD_SUCCESS;
}

static inline int cb_free_local(void *local) {
    free(local);
    return SION_STD_SUCCESS;
}

static inline char *cb_filename(const char *fname, int filenumber) {
    char *name = (char *)malloc(strlen(fname) + 32);
    sprintf(name, "%s.part%d", fname, filenumber);
    return name;
}

static inline int new_api(void) {
    int aid = sion_generic_create_api("threads");
    CHECK(aid >= 0);
    CHECK(sion_generic_register_create_local_commgroup_cb(aid, cb_create_local) == SION_SUCCESS);
    CHECK(sion_generic_register_free_local_commgroup_cb(aid, cb_free_local) == SION_SUCCESS);
    CHECK(sion_generic_register_barrier_cb(aid, cb_barrier) == SION_SUCCESS);
    CHECK(sion_generic_register_bcastr_cb(aid, cb_bcastr) == SION_SUCCESS);
    CHECK(sion_generic_register_gatherr_cb(aid, cb_gatherr) == SION_SUCCESS);
    CHECK(sion_generic_register_gathervr_cb(aid, cb_gathervr) == SION_SUCCESS);
    CHECK(sion_generic_register_scatterr_cb(aid, cb_scatterr) == SION_SUCCESS);
    CHECK(sion_generic_register_scattervr_cb(aid, cb_gathervr) == SION_SUCCESS);
    return aid;
}

/* One rank's view, handed to the work of every thread. */
struct rank {
    struct comm comm;
    int size;
    int aid;
    void (*work)(struct rank *);
    const void *argument;
};

static inline void *run_one(void *at) {
    struct rank *rank = (struct rank *)at;
    rank->work(rank);
    return NULL;
}

/* Runs `work` on `size` threads, ranks of one communicator. */
static inline void run_ranks(int size, int aid, void (*work)(struct rank *),
                             const void *argument) {
    struct team team;
    struct rank ranks[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    team.size = size;
    pthread_barrier_init(&team.barrier, NULL, (unsigned)size);
    for (int i = 0; i < size; i++) {
        ranks[i].comm.team = &team;
        ranks[i].comm.rank = i;
        ranks[i].size = size;
        ranks[i].aid = aid;
        ranks[i].work = work;
        ranks[i].argument = argument;
        CHECK(pthread_create(&threads[i], NULL, run_one, &ranks[i]) == 0);
    }
    for (int i = 0; i < size; i++)
        pthread_join(threads[i], NULL);
}

/* The same with callbacks of their own. */
static inline void together(int size, void (*work)(struct rank *)) {
    int aid = new_api();
    run_ranks(size, aid, work, NULL);
    CHECK(sion_generic_free_api(aid));
}

/* Opens for this rank's task in one of `numfiles` files of consecutive ranks. */
static inline int paropen(struct rank *rank, const char *name, const char *mode, int numfiles,
                          sion_int64 chunk, sion_int32 fsblksize, FILE **fp) {
    int group = rank->size / numfiles;
    int file = rank->comm.rank / group < numfiles ? rank->comm.rank / group : numfiles - 1;
    int lrank = rank->comm.rank - file * group;
    int lsize = file + 1 == numfiles ? rank->size - file * group : group;
    return sion_generic_paropen(rank->aid, name, mode, &chunk, &fsblksize, &rank->comm,
                                rank->comm.rank, rank->size, &file, &numfiles, &lrank, &lsize, fp,
                                NULL);
}

#endif
