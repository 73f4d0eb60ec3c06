/*
 * Multifiles: the data of many tasks in a few physical files. Drop-in for SIONlib 1.7.
 *
 * Include this alone. The MPI part comes with <mpi.h> included before, or with -DSION_MPI; the
 * OpenMP part with -DSION_OMP; the hybrid part with -DSION_OMPI. `sionconfig --cflags` knows.
 */
#ifndef SION_H
#define SION_H

#include "sion_const.h"
#include "sion_datatypes.h"
#include "sion_common.h"
#include "sion_error.h"
#include "sion_generic.h"
#include "sion_serial.h"

#if defined(SION_OMP)
#include "sion_omp.h"
#endif

#if defined(MPI_VERSION) || defined(SION_MPI)
#include "sion_mpi.h"
#endif

#if defined(MPI_VERSION) || defined(SION_OMPI)
#include "sion_ompi.h"
#endif

#endif
