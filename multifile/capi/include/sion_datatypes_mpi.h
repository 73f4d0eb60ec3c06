/* MPI's names for the integers of the interface; needs <mpi.h>. */
#ifndef SION_DATATYPES_MPI_H
#define SION_DATATYPES_MPI_H

#define SION_MPI_INT32 MPI_INT
#define SION_MPI_INT64 MPI_LONG_LONG

#endif
