/*
 * Threads of MPI processes open a multifile together, thread t of process p as rank
 * p * threads + t. Only the first thread of a process calls MPI, so MPI_THREAD_FUNNELED is enough.
 * All processes have the same number of threads, which an open checks in a collective call of its
 * own: 3 calls of each process to open, 2 to close. Merging what goes to several files needs one more
 * for each open, made by the first merged write.
 */
#include <limits.h>

#include "alias.h"
#include "comm.h"
#include "sion_ompi.h"
#include "team.h"

/* What the threads of a process share. */
typedef struct {
    MPI_Comm comm;   /* of a part: null until it is needed */
    MPI_Comm whole;  /* of a part: what to cut it from */
    MPI_Comm local;  /* the processes of one file, if the program has a communicator of them */
    int made_here;   /* comm was */
    int process;
    int processes;
    int alike;              /* all processes have as many threads */
    int by_local;           /* each local communicator has a file */
    sion_group_place place; /* of the process */
    char *room;             /* for what all threads send or receive */
    size_t room_len;
} process;

static process *process_of(const team *here) {
    return here->shared;
}

/* Room for `len` bytes of each thread. A process without it can neither take part nor say so. */
static char *room(const team *here, size_t len) {
    process *own = process_of(here);
    size_t all = (size_t)here->size * len + 1; /* never nothing */
    if (all > own->room_len) {
        free(own->room);
        own->room = malloc(all);
        own->room_len = all;
        if (own->room == NULL)
            MPI_Abort(own->comm, 1);
    }
    return own->room;
}

/* Makes the communicator of consecutive processes that write one file, the calling one being
 * own->process of them. Collective over these only. */
static int cut_out(process *own) {
    if (own->comm != MPI_COMM_NULL)
        return MPI_SUCCESS;
    int rank, code;
    MPI_Group all, ours;
    MPI_Comm_rank(own->whole, &rank);
    int first = rank - own->process;
    int range[1][3] = {{first, first + own->processes - 1, 1}};
    MPI_Comm_group(own->whole, &all);
    MPI_Group_range_incl(all, 1, range, &ours);
    code = MPI_Comm_create_group(own->whole, ours, 0, &own->comm);
    own->made_here = code == MPI_SUCCESS;
    MPI_Group_free(&ours);
    MPI_Group_free(&all);
    return code;
}

static int fits(const team *here, size_t len) {
    return len <= INT_MAX / (size_t)here->size;
}

static int gather(void *context, const void *mine, void *all, size_t len) {
    member *self = context;
    team *here = self->team;
    if (!team_is_here(self) || !fits(here, len))
        return TEAM_DIFFERS;
    team_hand(self, mine);
    if (self->rank == 0) {
        char *bytes = room(here, len);
        int count = here->size * (int)len;
        for (int i = 0; i < here->size; i++)
            memcpy(bytes + (size_t)i * len, here->members[i].slot, len);
        here->code = cut_out(process_of(here));
        if (here->code == MPI_SUCCESS)
            here->code = MPI_Gather(bytes, count, MPI_BYTE, all, count, MPI_BYTE, 0,
                                    process_of(here)->comm);
    }
    team_done();
    return here->code;
}

static int scatter(void *context, const void *all, void *mine, size_t len) {
    member *self = context;
    team *here = self->team;
    if (!team_is_here(self) || !fits(here, len))
        return TEAM_DIFFERS;
    team_done();
    if (self->rank == 0) {
        int count = here->size * (int)len;
        here->code = MPI_Scatter(all, count, MPI_BYTE, room(here, len), count, MPI_BYTE, 0,
                                 process_of(here)->comm);
    }
    team_done();
    memcpy(mine, process_of(here)->room + (size_t)self->rank * len, len);
    int code = here->code;
    team_done();
    return code;
}

static int broadcast(void *context, void *bytes, size_t len) {
    member *self = context;
    team *here = self->team;
    if (!team_is_here(self) || len > INT_MAX)
        return TEAM_DIFFERS;
    team_hand(self, bytes);
    if (self->rank == 0)
        here->code = MPI_Bcast(bytes, (int)len, MPI_BYTE, 0, process_of(here)->comm);
    team_done();
    if (self->rank > 0)
        memcpy(bytes, here->members[0].slot, len);
    team_done();
    return here->code;
}

static int barrier(void *context) {
    member *self = context;
    if (!team_is_here(self))
        return TEAM_DIFFERS;
    team_done();
    if (self->rank == 0)
        self->team->code = MPI_Barrier(process_of(self->team)->comm);
    team_done();
    return self->team->code;
}

/* MPI wants its calls on the first thread: its handle's release frees the communicator, the last
 * one's the team. */
static void release(void *context) {
    member *self = context;
    process *own = process_of(self->team);
    if (self->rank == 0 && own->made_here)
        MPI_Comm_free(&own->comm);
    if (team_leave(self)) {
        free(own->room);
        free(self->team);
    }
}

static int split(void *context, int filenumber, int numfiles, int lrank, int lsize,
                 sion_group *part);

static sion_group group_of(team *here, int thread) {
    const process *own = process_of(here);
    return (sion_group){
        .context = &here->members[thread],
        .rank = own->process * here->size + thread,
        .size = own->processes * here->size,
        .gather = gather,
        .scatter = scatter,
        .broadcast = broadcast,
        .barrier = barrier,
        .split = split,
        .release = release,
        .spoken = 1,
        .team = here->size,
    };
}

/* A process without this little memory can neither take part nor say so. */
static team *meet(MPI_Comm comm) {
    team *here = team_meet(sizeof(process));
    if (here == NULL && omp_get_thread_num() == 0)
        MPI_Abort(comm, 1);
    return here;
}

/* All threads of a process write the same file: the one of the program's own communicator, or one
 * that consecutive processes share. The first operation of a part is a gather. */
static int split(void *context, int filenumber, int numfiles, int lrank, int lsize,
                 sion_group *part) {
    member *self = context;
    const process *whole = process_of(self->team);
    team *here = meet(whole->comm);
    if (here == NULL)
        return TEAM_DIFFERS;
    if (self->rank == 0) {
        process *own = process_of(here);
        *own = (process){.comm = whole->local, .whole = whole->comm, .local = MPI_COMM_NULL};
        own->process = lrank / here->size;
        own->processes = lsize / here->size;
        here->code = MPI_SUCCESS;
        if (numfiles == 0) {
            here->code = MPI_Comm_split(whole->comm, filenumber, own->process, &own->comm);
            own->made_here = here->code == MPI_SUCCESS;
        }
    }
    team_done();
    *part = group_of(here, self->rank);
    int code = here->code;
    team_done();
    return code;
}

/* What the first thread of each process does before the open: agree on the number of threads, and
 * find the process's place when writing. */
static void prepare(team *here, const char *file_mode, int numfiles, MPI_Comm global,
                    const MPI_Comm *local) {
    process *own = process_of(here);
    own->comm = global;
    own->local = MPI_COMM_NULL;
    MPI_Comm_rank(global, &own->process);
    MPI_Comm_size(global, &own->processes);
    int restores = !mode_writes(file_mode) && mode_has(file_mode, "buddy") && local != NULL &&
                   *local != MPI_COMM_NULL;
    int by_local = restores || (mode_writes(file_mode) && numfiles <= 0);
    own->by_local = by_local;
    comm_card mine = {by_local ? comm_leader(global, local) : 0, here->size};
    comm_card *cards = comm_cards(global, mine, own->processes);
    own->alike = 1;
    for (int i = 0; i < own->processes; i++)
        own->alike &= cards[i].threads == here->size;
    own->place = by_local ? comm_place(cards, own->process, own->processes, local)
                          : sion_group_cut(own->process, own->processes, numfiles);
    free(cards);
    if (by_local && local != NULL)
        own->local = *local;
}

int sion_paropen_ompi(const char *fname, const char *file_mode, int *numFiles, MPI_Comm gComm,
                      const MPI_Comm *lComm, sion_int64 *chunksize, sion_int32 *fsblksize,
                      int *globalrank, FILE **fileptr, char **newfname) {
    int thread = omp_get_thread_num();
    team *here = meet(gComm);
    if (here == NULL)
        return -1;
    if (thread == 0)
        prepare(here, file_mode, numFiles == NULL ? 0 : *numFiles, gComm, lComm);
    team_done();
    sion_group group = group_of(here, thread);
    if (!process_of(here)->alike) {
        release(group.context);
        return sion_group_paropen(NULL, fname, file_mode, NULL, chunksize, fsblksize, globalrank,
                                  fileptr, newfname);
    }
    group.apart = process_of(here)->by_local;
    sion_group_place place = process_of(here)->place;
    place.lrank = place.lrank * here->size + thread;
    place.lsize *= here->size;
    int sid = sion_group_paropen(&group, fname, file_mode, &place, chunksize, fsblksize,
                                 globalrank, fileptr, newfname);
    if (sid >= 0 && numFiles != NULL)
        *numFiles = place.numfiles;
    return sid;
}

int sion_parclose_ompi(int sid) {
    return team_agrees(team_owns(sid)) ? sion_group_parclose(sid) : 0;
}

SION_FLAVOURS(sion_paropen_ompi);
SION_FLAVOURS(sion_parclose_ompi);
