"""Every rank writes its part of one multifile, in two physical files.

    mpirun -n 4 python3 ranks.py FILE
"""

import sys

from mpi4py import MPI

import kakehi


def main(path: str) -> None:
    comm = MPI.COMM_WORLD
    data = str(comm.rank).encode() * 100_000
    with kakehi.Multifile(path, "w", comm=comm, files=2, chunk_size=1 << 16) as out:
        out.write(0, data)

    with kakehi.Multifile(path, comm=comm) as stored:
        (task,) = stored.tasks
        assert task.global_rank == comm.rank and stored[0] == data
    if comm.rank == 0:
        print(f"{comm.size} ranks wrote and read {path}")


if __name__ == "__main__":
    main(sys.argv[1])
