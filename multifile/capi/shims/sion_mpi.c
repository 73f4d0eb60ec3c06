/*
 * MPI processes open multifiles together: a table of sion_group.h made of MPI's collectives. The
 * site's mpicc compiles this file; the core library knows nothing of MPI.
 *
 * Calls of each process: 2 to open for writing, one more with a file for each local communicator or
 * to merge what goes to several files, 3 to open for reading, 2 to close. Several files of local
 * communicators, each perhaps on the storage of a node, take 2 more to open and to close. Buddy
 * copies there take 2 more to open, 4 and up to 3 splits for each level, 6 for each level to close,
 * and for each level 4 to write and one for each further megabyte.
 */
#include <limits.h>

#include "alias.h"
#include "comm.h"
#include "sion.h"
#include "sion_mpi.h"

typedef struct {
    MPI_Comm comm;
    /* The processes that write the same file, if the program has a communicator of them. */
    MPI_Comm local;
    int made_here; /* comm was */
} comms;

static MPI_Comm comm_of(const void *context) {
    return ((const comms *)context)->comm;
}

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

static void release(void *context) {
    comms *own = context;
    if (own->made_here)
        MPI_Comm_free(&own->comm);
    free(own);
}

static int split(void *context, int filenumber, int numfiles, int lrank, int lsize,
                 sion_group *part);

/* A process without this little memory can neither take part nor say so. */
static sion_group group_of(comms with) {
    comms *own = malloc(sizeof *own);
    if (own == NULL)
        MPI_Abort(with.comm, 1);
    *own = with;
    sion_group group = {
        .context = own,
        .gather = gather,
        .scatter = scatter,
        .broadcast = broadcast,
        .barrier = barrier,
        .split = split,
        .release = release,
    };
    MPI_Comm_rank(with.comm, &group.rank);
    MPI_Comm_size(with.comm, &group.size);
    return group;
}

/* The program's own communicator costs no call. */
static int split(void *context, int filenumber, int numfiles, int lrank, int lsize,
                 sion_group *part) {
    (void)lsize;
    const comms *all = context;
    comms of_file = {numfiles > 0 ? all->local : MPI_COMM_NULL, MPI_COMM_NULL, 0};
    if (of_file.comm == MPI_COMM_NULL) {
        int code = MPI_Comm_split(all->comm, filenumber, lrank, &of_file.comm);
        if (code != MPI_SUCCESS)
            return code;
        of_file.made_here = 1;
    }
    *part = group_of(of_file);
    return MPI_SUCCESS;
}

/* Where this process writes: in one of *files files, or in the one of its local communicator. */
static sion_group_place place_of(const sion_group *group, int files, const MPI_Comm *local) {
    if (files > 0)
        return sion_group_cut(group->rank, group->size, files);
    comms *own = group->context;
    comm_card mine = {comm_leader(own->comm, local), 1};
    comm_card *cards = comm_cards(own->comm, mine, group->size);
    sion_group_place place = comm_place(cards, group->rank, group->size, local);
    free(cards);
    if (local != NULL)
        own->local = *local;
    return place;
}

int sion_paropen_mpi(const char *fname, const char *file_mode, int *numFiles, MPI_Comm gComm,
                     const MPI_Comm *lComm, sion_int64 *chunksize, sion_int32 *fsblksize,
                     int *globalrank, FILE **fileptr, char **newfname) {
    sion_group group = group_of((comms){gComm, MPI_COMM_NULL, 0});
    sion_group_place place = NO_PLACE;
    if (mode_writes(file_mode) && numFiles != NULL) {
        group.apart = *numFiles <= 0;
        place = place_of(&group, *numFiles, lComm);
    } else if (mode_has(file_mode, "buddy") && lComm != NULL && *lComm != MPI_COMM_NULL) {
        /* A lost file is read from the node of its copy. */
        group.apart = 1;
        place = place_of(&group, 0, lComm);
    }
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
    sion_group group = group_of((comms){gComm, MPI_COMM_NULL, 0});
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

/* How many ranks may be inside of a transaction. */
static int transaction_width(int size) {
    const char *wished = getenv("SION_SERBLOCKSIZE");
    wished = wished != NULL ? wished : getenv("LSION_SERBLOCKSIZE");
    int width = wished != NULL ? atoi(wished) : 0;
    return width > 0 ? width : size;
}

/* A token goes from each rank to the one `width` above it, over a communicator made for it: the
 * program's own might take it for a message of its own. */
static MPI_Comm transaction = MPI_COMM_NULL;

int sion_startof_transaction_mpi(int sid) {
    int rank, size, token = 0;
    const comms *own = sion_group_context(sid, barrier);
    if (own == NULL || transaction != MPI_COMM_NULL ||
        MPI_Comm_dup(own->comm, &transaction) != MPI_SUCCESS)
        return SION_NOT_SUCCESS;
    MPI_Comm_rank(transaction, &rank);
    MPI_Comm_size(transaction, &size);
    int width = transaction_width(size);
    if (rank >= width)
        MPI_Recv(&token, 1, MPI_INT, rank - width, 0, transaction, MPI_STATUS_IGNORE);
    return SION_SUCCESS;
}

int sion_endof_transaction_mpi(int sid) {
    int rank, size, token = sid;
    if (transaction == MPI_COMM_NULL || sion_group_context(sid, barrier) == NULL)
        return SION_NOT_SUCCESS;
    MPI_Comm_rank(transaction, &rank);
    MPI_Comm_size(transaction, &size);
    int width = transaction_width(size);
    if (rank + width < size)
        MPI_Send(&token, 1, MPI_INT, rank + width, 0, transaction);
    return MPI_Comm_free(&transaction) == MPI_SUCCESS ? SION_SUCCESS : SION_NOT_SUCCESS;
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

int sion_file_check_par_cb_mpi(char *fname, void *args) {
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
SION_FLAVOURS(sion_startof_transaction_mpi);
SION_FLAVOURS(sion_endof_transaction_mpi);
SION_FLAVOURS(sion_coll_fwrite_mpi);
SION_FLAVOURS(sion_coll_fread_mpi);
SION_FLAVOURS(sion_paropen_multi_mpi);
SION_FLAVOURS(sion_paropen_comms_mpi);
SION_FLAVOURS(sion_file_check_par_args_init_mpi);
SION_FLAVOURS(sion_file_check_par_args_free_mpi);
SION_FLAVOURS(sion_file_check_par_cb_mpi);
