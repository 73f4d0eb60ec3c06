/*
 * MPI processes open multifiles together: a table of sion_group.h made of MPI's collectives. The
 * site's mpicc compiles this file; the core library knows nothing of MPI.
 *
 * Calls of each process: 2 to open for writing, 3 with a file for each local communicator, 3 to
 * open for reading, 2 to close.
 */
#include <limits.h>

#include "alias.h"
#include "comm.h"
#include "sion.h"
#include "sion_mpi.h"

static int gather(void *context, const void *mine, void *all, size_t len) {
    if (len > INT_MAX)
        return MPI_ERR_COUNT;
    int count = (int)len;
    return MPI_Gather(mine, count, MPI_BYTE, all, count, MPI_BYTE, 0, comm_of(context));
}

static int scatter(void *context, const void *all, void *mine, size_t len) {
    if (len > INT_MAX)
        return MPI_ERR_COUNT;
    int count = (int)len;
    return MPI_Scatter(all, count, MPI_BYTE, mine, count, MPI_BYTE, 0, comm_of(context));
}

static int broadcast(void *context, void *bytes, size_t len) {
    if (len > INT_MAX)
        return MPI_ERR_COUNT;
    return MPI_Bcast(bytes, (int)len, MPI_BYTE, 0, comm_of(context));
}

static int barrier(void *context) {
    return MPI_Barrier(comm_of(context));
}

static void release_part(void *context) {
    MPI_Comm comm = comm_of(context);
    MPI_Comm_free(&comm);
}

static int split(void *context, int filenumber, int numfiles, int lrank, int lsize,
                 sion_group *part);

static sion_group group_of(MPI_Comm comm) {
    sion_group group = {
        .context = comm_context(comm),
        .gather = gather,
        .scatter = scatter,
        .broadcast = broadcast,
        .barrier = barrier,
        .split = split,
    };
    MPI_Comm_rank(comm, &group.rank);
    MPI_Comm_size(comm, &group.size);
    return group;
}

static int split(void *context, int filenumber, int numfiles, int lrank, int lsize,
                 sion_group *part) {
    (void)numfiles, (void)lsize;
    MPI_Comm comm;
    int code = MPI_Comm_split(comm_of(context), filenumber, lrank, &comm);
    if (code == MPI_SUCCESS) {
        *part = group_of(comm);
        part->release = release_part;
    }
    return code;
}

/* Where this process writes: in one of *files files, or in the one of its local communicator. */
static sion_group_place place_of(const sion_group *group, int files, const MPI_Comm *local) {
    if (files > 0)
        return sion_group_cut(group->rank, group->size, files);
    MPI_Comm comm = comm_of(group->context);
    comm_card *cards = comm_cards(comm, (comm_card){comm_leader(comm, local), 1}, group->size);
    sion_group_place place = comm_place(cards, group->rank, group->size, local);
    free(cards);
    return place;
}

int sion_paropen_mpi(const char *fname, const char *file_mode, int *numFiles, MPI_Comm gComm,
                     const MPI_Comm *lComm, sion_int64 *chunksize, sion_int32 *fsblksize,
                     int *globalrank, FILE **fileptr, char **newfname) {
    sion_group group = group_of(gComm);
    sion_group_place place = NO_PLACE;
    if (mode_writes(file_mode) && numFiles != NULL)
        place = place_of(&group, *numFiles, lComm);
    int sid = sion_group_paropen(&group, fname, file_mode, &place, chunksize, fsblksize,
                                 globalrank, fileptr, newfname);
    if (sid >= 0 && numFiles != NULL)
        *numFiles = place.numfiles;
    return sid;
}

int sion_parclose_mpi(int sid) {
    return sion_group_parclose(sid);
}

int sion_parreinit_mpi(int sid, sion_int64 chunksize) {
    return sion_group_parreinit(sid, chunksize);
}

int sion_paropen_mapped_mpi(const char *fname, const char *file_mode, int *numFiles,
                            MPI_Comm gComm, int *nlocaltasks, int **globalranks,
                            sion_int64 **chunksizes, int **mapping_filenrs,
                            int **mapping_lranks, sion_int32 *fsblksize, FILE **fileptr) {
    sion_group group = group_of(gComm);
    return sion_group_paropen_mapped(&group, fname, file_mode, numFiles, nlocaltasks, globalranks,
                                     chunksizes, mapping_filenrs, mapping_lranks, fsblksize,
                                     fileptr);
}

int sion_parclose_mapped_mpi(int sid) {
    return sion_group_parclose(sid);
}

size_t sion_coll_fwrite_mpi(const void *data, size_t size, size_t nitems, int sid) {
    return sion_coll_fwrite(data, size, nitems, sid);
}

size_t sion_coll_fread_mpi(void *data, size_t size, size_t nitems, int sid) {
    return sion_coll_fread(data, size, nitems, sid);
}

/* The two oldest forms; their `newfname` was never filled. */
int sion_paropen_multi_mpi(const char *fname, const char *file_mode, int *numFiles,
                           MPI_Comm gComm, const MPI_Comm *lComm, sion_int64 *chunksize,
                           sion_int32 *fsblksize, int *globalrank, FILE **fileptr, char *newfname) {
    (void)newfname;
    return sion_paropen_mpi(fname, file_mode, numFiles, gComm, lComm, chunksize, fsblksize,
                            globalrank, fileptr, NULL);
}

int sion_paropen_comms_mpi(const char *fname, const char *file_mode, int *numFiles,
                           MPI_Comm gComm, MPI_Comm lComm, sion_int64 *chunksize,
                           sion_int32 *fsblksize, int *globalrank, FILE **fileptr, char *newfname) {
    int files = 0;
    int sid = sion_paropen_multi_mpi(fname, file_mode, &files, gComm, &lComm, chunksize, fsblksize,
                                     globalrank, fileptr, newfname);
    if (sid >= 0 && numFiles != NULL)
        *numFiles = files;
    return sid;
}

struct sion_file_check_par_args_mpi {
    MPI_Comm global;
    MPI_Comm local;
    int files;
    char mode[];
};

sion_file_check_par_args_mpi *sion_file_check_par_args_init_mpi(const char *file_mode,
                                                                MPI_Comm gComm, int numfiles,
                                                                MPI_Comm lComm) {
    sion_file_check_par_args_mpi *args;
    if (file_mode == NULL || (args = malloc(sizeof *args + strlen(file_mode) + 1)) == NULL)
        return NULL;
    args->global = gComm;
    args->local = lComm;
    args->files = numfiles;
    strcpy(args->mode, file_mode);
    return args;
}

int sion_file_check_par_args_free_mpi(sion_file_check_par_args_mpi *args) {
    free(args);
    return SION_SUCCESS;
}

int sion_file_check_par_cb_mpi(const char *fname, void *args) {
    sion_file_check_par_args_mpi *check = args;
    if (check == NULL || mode_writes(check->mode))
        return SION_NOT_SUCCESS;
    int files = check->files;
    sion_int64 chunksize = 0;
    sion_int32 fsblksize = -1;
    int sid = sion_paropen_mpi(fname, check->mode, &files, check->global, &check->local,
                               &chunksize, &fsblksize, NULL, NULL, NULL);
    return sid < 0 ? SION_NOT_SUCCESS : sion_parclose_mpi(sid);
}

SION_FLAVOURS(sion_paropen_mpi);
SION_FLAVOURS(sion_parclose_mpi);
SION_FLAVOURS(sion_parreinit_mpi);
SION_FLAVOURS(sion_paropen_mapped_mpi);
SION_FLAVOURS(sion_parclose_mapped_mpi);
SION_FLAVOURS(sion_coll_fwrite_mpi);
SION_FLAVOURS(sion_coll_fread_mpi);
SION_FLAVOURS(sion_paropen_multi_mpi);
SION_FLAVOURS(sion_paropen_comms_mpi);
SION_FLAVOURS(sion_file_check_par_args_init_mpi);
SION_FLAVOURS(sion_file_check_par_args_free_mpi);
SION_FLAVOURS(sion_file_check_par_cb_mpi);
