/*
 * The threads of a parallel region open a multifile together: a table of sion_group.h made of
 * barriers. Always one physical file, in which each thread has a task.
 */
#include "alias.h"
#include "sion_omp.h"
#include "team.h"

static int gather(void *context, const void *mine, void *all, size_t len) {
    member *self = context;
    if (!team_is_here(self))
        return TEAM_DIFFERS;
    team_hand(self, mine);
    for (int i = 0; self->rank == 0 && i < self->team->size; i++)
        memcpy((char *)all + (size_t)i * len, self->team->members[i].slot, len);
    team_done();
    return 0;
}

static int scatter(void *context, const void *all, void *mine, size_t len) {
    member *self = context;
    if (!team_is_here(self))
        return TEAM_DIFFERS;
    team_hand(self, all);
    memcpy(mine, (char *)self->team->members[0].slot + (size_t)self->rank * len, len);
    team_done();
    return 0;
}

static int broadcast(void *context, void *bytes, size_t len) {
    member *self = context;
    if (!team_is_here(self))
        return TEAM_DIFFERS;
    team_hand(self, bytes);
    if (self->rank > 0)
        memcpy(bytes, self->team->members[0].slot, len);
    team_done();
    return 0;
}

static int barrier(void *context) {
    if (!team_is_here(context))
        return TEAM_DIFFERS;
    team_done();
    return 0;
}

static void release(void *context) {
    member *self = context;
    if (team_leave(self))
        free(self->team);
}

int sion_paropen_omp(const char *fname, const char *file_mode, sion_int64 *chunksize,
                     sion_int32 *fsblksize, int *globalrank, FILE **fileptr, char **newfname) {
    team *here = team_meet(0);
    if (here == NULL)
        return -1;
    int rank = omp_get_thread_num();
    sion_group group = {
        .context = &here->members[rank],
        .rank = rank,
        .size = here->size,
        .team = here->size,
        .gather = gather,
        .scatter = scatter,
        .broadcast = broadcast,
        .barrier = barrier,
        .release = release,
    };
    sion_group_place place = {0, 1, rank, here->size};
    return sion_group_paropen(&group, fname, file_mode, &place, chunksize, fsblksize, globalrank,
                              fileptr, newfname);
}

int sion_parclose_omp(int sid) {
    return team_agrees(team_owns(sid)) ? sion_group_parclose(sid) : 0;
}

SION_FLAVOURS(sion_paropen_omp);
SION_FLAVOURS(sion_parclose_omp);
