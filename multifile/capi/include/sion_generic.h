/*
 * Parallel open and close over communication that the program provides as callbacks.
 *
 * Callbacks return 0 for success. On the root `in` and `out` never overlap; what only the root
 * needs is not looked at elsewhere. Counts are numbers of elements of type _SION_INT32,
 * _SION_INT64, or _SION_CHAR.
 */
#ifndef SION_GENERIC_H
#define SION_GENERIC_H

#include <stdio.h>

#include "sion_datatypes.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns a descriptor for the calls below, or -1. */
int sion_generic_create_api(const char *name);
int sion_generic_free_api(int aid);

int sion_generic_register_create_local_commgroup_cb(
    int aid, int create(void **local, void *global, int grank, int gsize, int lrank, int lsize,
                        int filenumber, int numfiles));
int sion_generic_register_free_local_commgroup_cb(int aid, int release(void *local));
int sion_generic_register_barrier_cb(int aid, int barrier(void *comm));
int sion_generic_register_bcastr_cb(int aid, int bcastr(void *data, void *comm, int dtype,
                                                        int nelem, int root));
int sion_generic_register_gatherr_cb(int aid, int gatherr(void *in, void *out, void *comm,
                                                          int dtype, int nelem, int root));
int sion_generic_register_gathervr_cb(int aid,
                                      int gathervr(void *in, void *out, void *comm, int dtype,
                                                   int *counts, int nelem, int root));
int sion_generic_register_scatterr_cb(int aid, int scatterr(void *out, void *in, void *comm,
                                                            int dtype, int nelem, int root));
int sion_generic_register_scattervr_cb(int aid,
                                       int scattervr(void *in, void *out, void *comm, int dtype,
                                                     int *counts, int nelem, int root));
int sion_generic_register_get_multi_filename_cb(int aid, char *name(const char *fname,
                                                                    int filenumber));
int sion_generic_register_gather_and_execute_cb(
    int aid, int gather(const void *data, sion_int64 *spec, int spec_len, sion_int64 fsblksize,
                        void *comm, int collector, int first, int last, int sid,
                        int process(const void *, sion_int64 *, int)));
int sion_generic_register_execute_and_scatter_cb(
    int aid, int scatter(void *data, sion_int64 *spec, int spec_len, sion_int64 fsblksize,
                         void *comm, int collector, int first, int last, int sid,
                         int process(void *, sion_int64 *, int)));
int sion_generic_register_get_capability_cb(int aid, int capability(void *comm));

/*
 * Opens a multifile together with all ranks of gcommgroup and returns this rank's handle, or -1 on
 * every rank. Writing: filenumber, numfiles, lrank, and lsize say where this rank's task goes.
 * Reading: filenumber and numfiles are set; any number of ranks reads any number of tasks.
 */
int sion_generic_paropen(int aid, const char *fname, const char *file_mode, sion_int64 *chunksize,
                         sion_int32 *fsblksize, void *gcommgroup, int grank, int gsize,
                         int *filenumber, int *numfiles, const int *lrank, const int *lsize,
                         FILE **fileptr, char **newfname);
int sion_generic_parclose(int sid);
int sion_generic_parreinit(int sid, sion_int64 chunksize);
int sion_generic_paropen_mapped(int aid, const char *fname, const char *file_mode, int *numfiles,
                                void *gcommgroup, int grank, int gsize, int *nlocaltasks,
                                int **globalranks, sion_int64 **chunksizes,
                                int **mapping_filenrs, int **mapping_lranks,
                                sion_int32 *fsblksize, FILE **fileptr);
int sion_generic_parclose_mapped(int sid);

#ifdef __cplusplus
}
#endif

#endif
