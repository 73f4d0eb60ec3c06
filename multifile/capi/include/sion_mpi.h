/* The ranks of a communicator open a multifile together. */
#ifndef SION_MPI_H
#define SION_MPI_H

#include <mpi.h>
#include <stdio.h>

#include "sion_datatypes.h"
#include "sion_datatypes_mpi.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Collective over gComm; returns a handle, or -1 on every rank.
 *
 * Writing: *numFiles > 0 cuts the ranks into so many groups of consecutive ones, a physical file
 * each; *numFiles <= 0 makes one file for each local communicator and sets *numFiles. *fsblksize
 * -1 asks the file system. Reading: any number of ranks.
 */
int sion_paropen_mpi(const char *fname, const char *file_mode, int *numFiles, MPI_Comm gComm,
                     const MPI_Comm *lComm, sion_int64 *chunksize, sion_int32 *fsblksize,
                     int *globalrank, FILE **fileptr, char **newfname);
int sion_parclose_mpi(int sid);
int sion_parreinit_mpi(int sid, sion_int64 chunksize);

/*
 * Every rank has *nlocaltasks tasks. Writing: the arrays describe them. Reading: *nlocaltasks -1
 * takes an even share; otherwise *globalranks names the tasks wanted. Arrays that are NULL are
 * allocated, for the caller to free. sion_seek(sid, globalrank, ...) selects a task.
 */
int sion_paropen_mapped_mpi(const char *fname, const char *file_mode, int *numFiles,
                            MPI_Comm gComm, int *nlocaltasks, int **globalranks,
                            sion_int64 **chunksizes, int **mapping_filenrs,
                            int **mapping_lranks, sion_int32 *fsblksize, FILE **fileptr);
int sion_parclose_mapped_mpi(int sid);

/*
 * Between these two calls of all ranks at most SION_SERBLOCKSIZE ranks are at the same time, the
 * lowest first; all of them if the variable is not set. Each is collective.
 */
int sion_startof_transaction_mpi(int sid);
int sion_endof_transaction_mpi(int sid);

size_t sion_coll_fwrite_mpi(const void *data, size_t size, size_t nitems, int sid);
size_t sion_coll_fread_mpi(void *data, size_t size, size_t nitems, int sid);

int sion_paropen_comms_mpi(const char *fname, const char *file_mode, int *numFiles,
                           MPI_Comm gComm, MPI_Comm lComm, sion_int64 *chunksize,
                           sion_int32 *fsblksize, int *globalrank, FILE **fileptr,
                           char *newfname);
int sion_paropen_multi_mpi(const char *fname, const char *file_mode, int *numFiles,
                           MPI_Comm gComm, const MPI_Comm *lComm, sion_int64 *chunksize,
                           sion_int32 *fsblksize, int *globalrank, FILE **fileptr,
                           char *newfname);

/* Can the multifile be opened by these ranks? For restarts from buddy copies. */
typedef struct sion_file_check_par_args_mpi sion_file_check_par_args_mpi;
sion_file_check_par_args_mpi *sion_file_check_par_args_init_mpi(const char *file_mode,
                                                                MPI_Comm gComm, int numfiles,
                                                                MPI_Comm lComm);
int sion_file_check_par_args_free_mpi(sion_file_check_par_args_mpi *args);
int sion_file_check_par_cb_mpi(char *fname, void *args);

#ifdef __cplusplus
}
#endif

#endif
