/* The Fortran 77 procedures of threads of MPI processes. */
#include <mpi.h>

#include "fortran.h"

SUBROUTINE(void, fsion_paropen_ompi,
           (const char *fname, const char *mode, int *nfiles, const MPI_Fint *gcomm,
            const MPI_Fint *lcomm, sion_int64 *chunksize, sion_int32 *fsblksize, int *globalrank,
            char *newfname, int *sid, size_t fname_len, size_t mode_len, size_t newfname_len)) {
    MPI_Comm local = MPI_Comm_f2c(*lcomm);
    char *name = c_string(fname, fname_len), *how = c_string(mode, mode_len), *created = NULL;
    *sid = sion_paropen_ompi(name, how, nfiles, MPI_Comm_f2c(*gcomm), &local, chunksize, fsblksize,
                             globalrank, NULL, &created);
    fortran_string(newfname, newfname_len, created);
    free(name);
    free(how);
}

SUBROUTINE(void, fsion_parclose_ompi, (const int *sid, int *ierr)) {
    *ierr = sion_parclose_ompi(*sid);
}
