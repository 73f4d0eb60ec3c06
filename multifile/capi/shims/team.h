/*
 * The threads of a parallel region as members of a group.
 *
 * Each hands the others a pointer; between two barriers all of them may be read. A team that calls
 * an operation with another number of threads than it was made with is turned away before it could
 * wait for somebody who never comes.
 */
#ifndef TEAM_H
#define TEAM_H

#include <omp.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "sion_group.h"

/* Codes of SION_ERR_GROUP, out of the way of MPI's. */
enum { TEAM_DIFFERS = -2 };

typedef struct team team;

/* The context of one thread. */
typedef struct {
    team *team;
    int rank;   /* in the team */
    void *slot; /* what it hands the others */
} member;

struct team {
    int size;
    int code;           /* of what the first thread did for all */
    atomic_int holders; /* members that have not been released */
    void *shared;       /* room for what the whole team knows */
    member members[];
};

/* Every thread of the region calls this and gets the same team, with `shared_len` zeroed bytes to
 * share; or NULL, all of them. */
static inline team *team_meet(size_t shared_len) {
    team *made;
#pragma omp single copyprivate(made)
    {
        sion_group_threads(omp_get_thread_num);
        int size = omp_get_num_threads();
        size_t own = sizeof *made + (size_t)size * sizeof(member);
        own += -own % _Alignof(max_align_t);
        made = calloc(1, own + shared_len);
        if (made != NULL) {
            made->size = size;
            atomic_init(&made->holders, size);
            made->shared = (char *)made + own;
            for (int i = 0; i < size; i++)
                made->members[i] = (member){made, i, NULL};
        }
    }
    return made;
}

/* Lets go of one member; says whether it was the last, which frees the team. */
static inline int team_leave(member *self) {
    return atomic_fetch_sub(&self->team->holders, 1) == 1;
}

/* Whether `mine` is true on every thread of the region. */
static inline int team_agrees(int mine) {
    atomic_int *against;
#pragma omp single copyprivate(against)
    against = calloc(1, sizeof *against);
    if (against == NULL)
        return 0;
    atomic_fetch_add(against, !mine);
#pragma omp barrier
    int agreed = atomic_load(against) == 0;
#pragma omp barrier
#pragma omp master
    free(against);
    return agreed;
}

/* Whether the handle can be one of this thread of this team. */
static inline int team_owns(int sid) {
    int rank, size, threads = omp_get_num_threads();
    return sion_group_of(sid, &rank, &size) && size % threads == 0 &&
           rank % threads == omp_get_thread_num();
}

static inline int team_is_here(const member *self) {
    return omp_get_num_threads() == self->team->size;
}

static inline void team_hand(member *self, const void *slot) {
    self->slot = (void *)slot;
#pragma omp barrier
}

static inline void team_done(void) {
#pragma omp barrier
}

#endif
