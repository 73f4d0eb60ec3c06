/* The Fortran 77 procedures of OpenMP threads. */
#include "fortran.h"
#include "sion_omp.h"

SUBROUTINE(void, fsion_paropen_omp,
           (const char *fname, const char *mode, sion_int64 *chunksize, sion_int32 *fsblksize,
            int *globalrank, char *newfname, int *sid, size_t fname_len, size_t mode_len,
            size_t newfname_len)) {
    char *name = c_string(fname, fname_len), *how = c_string(mode, mode_len), *created = NULL;
    *sid = sion_paropen_omp(name, how, chunksize, fsblksize, globalrank, NULL, &created);
    fortran_string(newfname, newfname_len, created);
    free(name);
    free(how);
}

SUBROUTINE(void, fsion_parclose_omp, (const int *sid, int *ierr)) {
    *ierr = sion_parclose_omp(*sid);
}
