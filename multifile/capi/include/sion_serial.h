/* One process opens all tasks of a multifile, or one of them. */
#ifndef SION_SERIAL_H
#define SION_SERIAL_H

#include <stdio.h>

#include "sion_datatypes.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Opens a multifile and returns its handle, or -1.
 *
 * Writing: creates *ntasks tasks with the chunk sizes and ranks given. *nfiles physical files (0
 * counts as 1); consecutive tasks share one. *fsblksize <= 0 asks the file system and is set to
 * what was taken.
 *
 * Reading: sets *ntasks, *nfiles, *fsblksize. chunksizes and globalranks may be NULL; a pointer to
 * NULL receives an array that the caller frees; a pointer to an array has it filled.
 *
 * fileptr may be NULL; else it receives a stream positioned at the current task's data, or NULL in
 * mode "posix". The stream belongs to the handle.
 */
int sion_open(const char *fname, const char *file_mode, int *ntasks, int *nfiles,
              sion_int64 **chunksizes, sion_int32 *fsblksize, int **globalranks, FILE **fileptr);

/* Opens one task of a multifile for reading; *rank is its index over the whole set. */
int sion_open_rank(const char *fname, const char *file_mode, sion_int64 *chunksize,
                   sion_int32 *fsblksize, int *rank, FILE **fileptr);

/* Closes a handle of the two above, whatever the result. */
int sion_close(int sid);

#ifdef __cplusplus
}
#endif

#endif
