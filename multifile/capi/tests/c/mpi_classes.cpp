// MPI processes open a multifile as an object.
#include <mpi.h>

#include <sion_cxx.h>

#include "check.h"

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int me;
    char letter = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    sionlib::mpi::SIONFile out("classes.sion", "bw", 2);
    out.setChunkSize(100);
    out.open();
    CHECK(out.getSid() >= 0 && out.getNumberOfFiles() == 2 && out.getGlobalRank() == me);
    CHECK(strcmp(out.getNewSionFileName(), me ? "classes.sion.000001" : "classes.sion") == 0);
    out << "abc"[me];
    out.close();
    CHECK(out.getReturnCode() == SION_SUCCESS);
    sionlib::mpi::LSIONFile in("classes.sion", "br");
    in.open();
    in >> letter;
    CHECK(letter == "abc"[me]);
    in.endOfFile();
    CHECK(in.getReturnCode() == 1);
    in.close();
    return MPI_Finalize();
}
