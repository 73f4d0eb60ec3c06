/* Threads of a parallel region open a multifile together; each has a task of its own. */
#ifndef SION_OMP_H
#define SION_OMP_H

#include <stdio.h>

#include "sion_datatypes.h"

#ifdef __cplusplus
extern "C" {
#endif

int sion_paropen_omp(const char *fname, const char *file_mode, sion_int64 *chunksize,
                     sion_int32 *fsblksize, int *globalrank, FILE **fileptr, char **newfname);
int sion_parclose_omp(int sid);

#ifdef __cplusplus
}
#endif

#endif
