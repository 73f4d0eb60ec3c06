/* Threads of a parallel region open multifiles together. */
#include <omp.h>

#include "check.h"

enum { THREADS = 5, MANY = 320, CHUNK = 1000, LEN = 2500 };

static int opening(const char *name, const char *mode, sion_int64 chunk, FILE **fp) {
    sion_int32 fsblksize = 512;
    int globalrank = -1;
    int sid = sion_paropen_omp(name, mode, &chunk, &fsblksize, &globalrank, fp, NULL);
    CHECK(sid < 0 || globalrank == omp_get_thread_num());
    return sid;
}

static void write_and_read(void) {
    FILE *fp = NULL;
    int me = omp_get_thread_num();
    unsigned char bytes[LEN], *data = new_pattern(me, 0, LEN);
    int sid = opening("omp.sion", "bw", CHUNK, &fp);
    CHECK(sid >= 0 && fp != NULL);
    for (long at = 0; at < LEN; at += 500)
        CHECK(sion_ensure_free_space(sid, 500) && fwrite(data + at, 1, 500, fp) == 500);
    CHECK(sion_parclose_omp(sid));
    sid = opening("omp.sion", "br", 0, NULL);
    CHECK(sid >= 0 && sion_fread(bytes, 1, LEN, sid) == LEN);
    CHECK(memcmp(bytes, data, LEN) == 0 && sion_feof(sid) == 1);
    CHECK(sion_parclose_omp(sid));
    sid = opening("merged.sion", "bw,cmerge", 2 * LEN, NULL);
    CHECK(sid >= 0 && sion_coll_fwrite(data, 1, LEN, sid) == LEN && sion_parclose_omp(sid));
    free(data);
}

/* Several files are open at once, and close in another order. */
static void open_three(void) {
    int sids[3];
    const char *names[3] = {"first.sion", "second.sion", "third.sion"};
    for (int i = 0; i < 3; i++) {
        sids[i] = opening(names[i], "bw", CHUNK, NULL);
        CHECK(sids[i] >= 0 && sion_fwrite(names[i], 1, 5, sids[i]) == 5);
    }
    CHECK(sion_parclose_omp(sids[1]));
    for (int i = 0; i < 3; i += 2)
        CHECK(sion_fwrite("more", 1, 4, sids[i]) == 4 && sion_parclose_omp(sids[i]));
}

/* What one thread does wrong, all threads are told. */
static void fail(void) {
    int me = omp_get_thread_num();
    CHECK(opening("omp/none.sion", "bw", CHUNK, NULL) < 0);
    CHECK(opening("bad.sion", "bw", me == 3 ? -1 : CHUNK, NULL) < 0);
    CHECK(sion_last_error() == SION_ERR_ARGUMENT && sion_last_error_rank() == 3);
    int sid = opening("close.sion", "bw", CHUNK, NULL);
    CHECK(sid >= 0 && !sion_parclose_omp(me == 2 ? 999 : sid) && sion_parclose_omp(sid));
}

/* More threads than the tables of the original had room for. */
static void many(void) {
    int me = omp_get_thread_num(), value = -1;
    int sid = opening("many.sion", "bw", 10, NULL);
    CHECK(sid >= 0 && sion_fwrite(&me, sizeof me, 1, sid) == 1 && sion_parclose_omp(sid));
    sid = opening("many.sion", "br", 0, NULL);
    CHECK(sid >= 0 && sion_fread(&value, sizeof value, 1, sid) == 1 && value == me);
    CHECK(sion_feof(sid) == 1 && sion_parclose_omp(sid));
}

int main(void) {
    int sids[THREADS];
    omp_set_dynamic(0);
#pragma omp parallel num_threads(MANY)
    many();
#pragma omp parallel num_threads(THREADS)
    {
        write_and_read();
        open_three();
        fail();
        sids[omp_get_thread_num()] = opening("team.sion", "bw", CHUNK, NULL);
    }
    /* Another number of threads cannot close what a team opened. */
#pragma omp parallel num_threads(THREADS - 1)
    CHECK(!sion_parclose_omp(sids[omp_get_thread_num()]));
#pragma omp parallel num_threads(THREADS)
    CHECK(sion_parclose_omp(sids[omp_get_thread_num()]));
    /* A region that is not parallel is a team of one. */
    int sid = opening("alone.sion", "bw", CHUNK, NULL);
    CHECK(sid >= 0 && sion_fwrite("x", 1, 1, sid) == 1 && sion_parclose_omp(sid));
    return 0;
}
