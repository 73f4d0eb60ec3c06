/* Threads of MPI processes open multifiles together. */
#include <mpi.h>

#include <omp.h>

#include "calls.h"
#include "check.h"

enum { THREADS = 3, FSBLK = 512, CHUNK = 1000, LEN = 2500 };

static int process, processes;
static MPI_Comm local;

static int opening(const char *name, const char *mode, int files, int expected, sion_int64 chunk) {
    sion_int32 fsblksize = FSBLK;
    int globalrank = -1;
    int sid = sion_paropen_ompi(name, mode, &files, MPI_COMM_WORLD, &local, &chunk, &fsblksize,
                                &globalrank, NULL, NULL);
    CHECK(sid < 0 || files == expected);
    CHECK(sid < 0 || globalrank == process * THREADS + omp_get_thread_num());
    return sid;
}

static void write_and_read(const char *name, int files, int expected) {
    int me = process * THREADS + omp_get_thread_num();
    unsigned char bytes[LEN], *data = new_pattern(me, 0, LEN);
    int sid = opening(name, "bw", files, expected, CHUNK);
    CHECK(sid >= 0 && sion_fwrite(data, 1, LEN, sid) == LEN && sion_parclose_ompi(sid));
    sid = opening(name, "br", -1, expected, 0);
    CHECK(sid >= 0 && sion_fread(bytes, 1, LEN, sid) == LEN);
    CHECK(memcmp(bytes, data, LEN) == 0 && sion_feof(sid) == 1 && sion_parclose_ompi(sid));
    free(data);
}

/* What all threads see of the calls that the first one made. */
static int calls_now(void) {
#pragma omp barrier
    int now = calls;
#pragma omp barrier
    return now;
}

/* As NEST does it, and with all tasks of a file in one group. */
static void write_merged(const char *name, const char *mode, int files, int expected) {
    int me = process * THREADS + omp_get_thread_num(), before = calls_now();
    unsigned char *data = new_pattern(me, 0, LEN);
    int sid = opening(name, mode, files, expected, LEN);
    CHECK(sid >= 0 && calls_now() - before == (files > 0 ? 3 : 5));
    for (int call = 0; call < 2; call++)
        CHECK(sion_coll_fwrite(data, 1, LEN, sid) == LEN);
    CHECK(sion_parclose_ompi(sid));
    free(data);
}

static void count_calls(void) {
    for (int files = 0; files <= 2; files++)
        for (int reads = 0; reads <= 1; reads++) {
            int before = calls_now();
            int sid = opening("count.sion", reads ? "br" : "bw", reads ? -1 : files,
                              files > 0 ? files : 2, CHUNK);
            int opened = calls_now();
            int apart = !reads && files == 0 ? 2 : 0;
            CHECK(sid >= 0 && opened > before && opened - before <= 3 + apart);
            CHECK(sion_parclose_ompi(sid) && calls_now() - opened == (reads ? 0 : 2 + apart));
        }
}

static void fail(void) {
    int me = process * THREADS + omp_get_thread_num();
    CHECK(opening("none/none.sion", "bw", 1, 1, CHUNK) < 0);
    CHECK(opening("bad.sion", "bw", 1, 1, me == 4 ? -1 : CHUNK) < 0);
    CHECK(sion_last_error() == SION_ERR_ARGUMENT && sion_last_error_rank() == 4);
}

int main(int argc, char **argv) {
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &process);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    MPI_Comm_split(MPI_COMM_WORLD, process > 0, 0, &local);
    omp_set_dynamic(0);
#pragma omp parallel num_threads(THREADS)
    {
        write_and_read("one.sion", 1, 1);
        write_and_read("two.sion", 2, 2);
        write_and_read("local.sion", 0, 2);
        write_merged("nest.sion", "bw,cmerge,collsize=-1", 2, 2);
        write_merged("merged1.sion", "bw,cmerge,collsize=9", 1, 1);
        write_merged("merged2.sion", "bw,cmerge,collsize=9", 2, 2);
        write_merged("merged0.sion", "bw,cmerge,collsize=9", 0, 2);
        count_calls();
        fail();
    }
    /* Processes with different numbers of threads are refused, all of them. */
#pragma omp parallel num_threads(process == 1 ? 2 : THREADS)
    CHECK(opening("uneven.sion", "bw", 1, 1, CHUNK) < 0);
    MPI_Comm_free(&local);
    return MPI_Finalize();
}
