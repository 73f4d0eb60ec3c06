/* Threads of MPI processes open a multifile together; each thread has a task of its own. */
#ifndef SION_OMPI_H
#define SION_OMPI_H

#include <mpi.h>
#include <stdio.h>

#include "sion_datatypes.h"
#include "sion_datatypes_mpi.h"

#ifdef __cplusplus
extern "C" {
#endif

int sion_paropen_ompi(const char *fname, const char *file_mode, int *numFiles, MPI_Comm gComm,
                      const MPI_Comm *lComm, sion_int64 *chunksize, sion_int32 *fsblksize,
                      int *globalrank, FILE **fileptr, char **newfname);
int sion_parclose_ompi(int sid);

#ifdef __cplusplus
}
#endif

#endif
