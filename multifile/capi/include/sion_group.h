/*
 * The seam between this library and a way to communicate: all that MPI, OpenMP, or anything else
 * has to bring is this table, filled in by a small C file that the site's compiler builds.
 *
 * Contract
 *  - Rank 0 is the root of every operation. All ranks call the same operations in the same order
 *    with the same `len`. Every function returns 0 for success; anything else ends the call that
 *    needed it with SION_ERR_GROUP and the number as its code.
 *  - `context` is the table's own business. Operations are only called from inside a collective
 *    call of this library (open, close, reinit, coll_fwrite), by the thread that made that call.
 *  - A table handed to sion_group_paropen or sion_group_paropen_mapped is copied and belongs to
 *    the library from then on: `release` is called exactly once, after the last operation, when
 *    the open failed or the handle was closed. MPI: duplicate the communicator before the call and
 *    free it there.
 *  - No operation may call back into this library.
 */
#ifndef SION_GROUP_H
#define SION_GROUP_H

#include <stddef.h>
#include <stdio.h>

#include "sion_datatypes.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sion_group sion_group;

struct sion_group {
    void *context;
    int rank;
    int size;
    /* Root: all[r * len .. (r + 1) * len] = mine of rank r. Elsewhere `all` is left alone. */
    int (*gather)(void *context, const void *mine, void *all, size_t len);
    /* mine of rank r = root's all[r * len .. (r + 1) * len]. Elsewhere `all` is left alone. */
    int (*scatter)(void *context, const void *all, void *mine, size_t len);
    /* bytes of every rank = bytes of the root. */
    int (*broadcast)(void *context, void *bytes, size_t len);
    /* Returns when all ranks have called it. */
    int (*barrier)(void *context);
    /* Fills `part` with the group of the ranks whose tasks are in file `filenumber`, this rank
     * being `lrank` of `lsize` there; part->release belongs to it as above. Collective. Called to
     * open a set of several files in mode "collectivemerge"; if it is NULL, that is refused. Also
     * called, with `numfiles` 0, where buddy copies are on other nodes: the part is then of all
     * ranks that pass the same `filenumber`, and no file's. Threads of a process pass the same. The
     * first operation on the part is a gather, or a scatter if `numfiles` is 0. */
    int (*split)(void *context, int filenumber, int numfiles, int lrank, int lsize,
                 sion_group *part);
    /* May be NULL. */
    void (*release)(void *context);
    /* Not 0 if the ranks had to talk before this open. To read, each rank then reads all tables
     * itself, which saves the operation that hands them out. */
    int spoken;
    /* Not 0 if each physical file of a set may be on storage that only the ranks of its tasks
     * reach, by names of their own: the first of them creates and completes it. To read, only set
     * with buddy copies; `place` then says where this rank's task is expected. */
    int apart;
    /* So many consecutive ranks are threads of one process, of which in collective modes the first
     * collects for the others; 0 or 1 if each is a process. */
    int team;
};

/* Where this rank's task goes when writing, where its first was found when reading: lrank -1 when
 * it has none, lsize always -1. */
typedef struct {
    int filenumber;
    int numfiles;
    int lrank;
    int lsize;
} sion_group_place;

/*
 * Opens a multifile together with all ranks of the group and returns this rank's handle, or -1 on
 * every rank. An argument that is wrong on one rank only fails on all of them, too.
 *
 * place, chunksize, fsblksize: in when writing, out when reading (fsblksize always out; place also
 * in when reading with group->apart). fsblksize
 * -1 asks the file system. globalrank: out. fileptr, newfname, globalrank may be NULL; *newfname is
 * the name of this rank's physical file, for the caller to free.
 */
int sion_group_paropen(const sion_group *group, const char *fname, const char *file_mode,
                       sion_group_place *place, sion_int64 *chunksize, sion_int32 *fsblksize,
                       int *globalrank, FILE **fileptr, char **newfname);

/* As above with any number of tasks for this rank: sion_paropen_mapped_mpi has the details. */
int sion_group_paropen_mapped(const sion_group *group, const char *fname, const char *file_mode,
                              int *numfiles, int *nlocaltasks, int **globalranks,
                              sion_int64 **chunksizes, int **mapping_filenrs,
                              int **mapping_lranks, sion_int32 *fsblksize, FILE **fileptr);

/* Places the tasks anew with other chunk sizes, before anything was written. Collective. */
int sion_group_parreinit(int sid, sion_int64 chunksize);

/* Closes a handle of the above together with all ranks of its group, whatever the result. */
int sion_group_parclose(int sid);

/* The group that a handle was opened with, rank and size only; SION_NOT_SUCCESS if it has none. */
int sion_group_of(int sid, int *rank, int *size);

/* The context of a handle's group, if the group's barrier is `barrier`; else NULL. */
void *sion_group_context(int sid, int (*barrier)(void *context));

/* Has printed errors name the thread that made the call, by the number that `number` returns there
 * (omp_get_thread_num), and SION_ERROR_MSG_THREAD choose among them. Only the first call counts. */
void sion_group_threads(int (*number)(void));

/* Which files and tasks a rank gets when *numfiles > 0 files are cut from `size` ranks: groups of
 * size / numfiles consecutive ranks, the last one takes the rest. */
sion_group_place sion_group_cut(int rank, int size, int numfiles);

#ifdef __cplusplus
}
#endif

#endif
