/* Counts collective calls: included once in a program, after mpi.h. */
#ifndef CALLS_H
#define CALLS_H

#include <mpi.h>

/* Collective calls of this process, counted on their way to MPI. */
static int calls;

#define COUNTED(name, parameters, arguments)                                                       \
    int MPI_##name parameters {                                                                    \
        calls++;                                                                                   \
        return PMPI_##name arguments;                                                              \
    }

COUNTED(Barrier, (MPI_Comm comm), (comm))
COUNTED(Bcast, (void *at, int n, MPI_Datatype type, int root, MPI_Comm comm),
        (at, n, type, root, comm))
COUNTED(Gather,
        (const void *in, int n, MPI_Datatype type, void *out, int m, MPI_Datatype other, int root,
         MPI_Comm comm),
        (in, n, type, out, m, other, root, comm))
COUNTED(Scatter,
        (const void *in, int n, MPI_Datatype type, void *out, int m, MPI_Datatype other, int root,
         MPI_Comm comm),
        (in, n, type, out, m, other, root, comm))
COUNTED(Allgather,
        (const void *in, int n, MPI_Datatype type, void *out, int m, MPI_Datatype other,
         MPI_Comm comm),
        (in, n, type, out, m, other, comm))
COUNTED(Comm_create_group, (MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *made),
        (comm, group, tag, made))
COUNTED(Comm_dup, (MPI_Comm comm, MPI_Comm *made), (comm, made))
COUNTED(Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm *made), (comm, color, key, made))

#endif
