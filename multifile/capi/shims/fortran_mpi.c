/* The Fortran 77 procedures of MPI processes; Fortran's communicators are integers. */
#include <mpi.h>

#include "fortran.h"

SUBROUTINE(void, fsion_paropen_mpi,
           (const char *fname, const char *mode, int *nfiles, const MPI_Fint *gcomm,
            const MPI_Fint *lcomm, sion_int64 *chunksize, sion_int32 *fsblksize, int *globalrank,
            char *newfname, int *sid, size_t fname_len, size_t mode_len, size_t newfname_len)) {
    MPI_Comm local = MPI_Comm_f2c(*lcomm);
    char *name = c_string(fname, fname_len), *how = c_string(mode, mode_len), *created = NULL;
    *sid = sion_paropen_mpi(name, how, nfiles, MPI_Comm_f2c(*gcomm), &local, chunksize, fsblksize,
                            globalrank, NULL, &created);
    fortran_string(newfname, newfname_len, created);
    free(name);
    free(how);
}

SUBROUTINE(void, fsion_parclose_mpi, (const int *sid, int *ierr)) {
    *ierr = sion_parclose_mpi(*sid);
}

SUBROUTINE(void, fsion_parreinit_mpi, (const int *sid, const sion_int64 *chunksize, int *ierr)) {
    *ierr = sion_parreinit_mpi(*sid, *chunksize);
}

SUBROUTINE(void, fsion_coll_fwrite_mpi,
           (const void *data, const sion_int64 *size, const sion_int64 *nitems, const int *sid,
            sion_int64 *rc)) {
    *rc = (sion_int64)sion_coll_fwrite_mpi(data, (size_t)*size, (size_t)*nitems, *sid);
}

ALSO_TYPED(fsion_coll_fwrite_mpi, fsion_coll_fwrite_mpi);

SUBROUTINE(void, fsion_coll_fread_mpi,
           (void *data, const sion_int64 *size, const sion_int64 *nitems, const int *sid,
            sion_int64 *rc)) {
    *rc = (sion_int64)sion_coll_fread_mpi(data, (size_t)*size, (size_t)*nitems, *sid);
}

ALSO_TYPED(fsion_coll_fread_mpi, fsion_coll_fread_mpi);
