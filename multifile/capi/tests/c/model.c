/* model SEED: random calls, compared with what a program may expect of them. */
#include "check.h"

enum { TASKS_MAX = 5, LEN_MAX = 40000, STEPS = 400 };

static unsigned long state;
static int ntasks, with_stream;
static sion_int64 chunk_of[TASKS_MAX];
static long len_of[TASKS_MAX], at_of[TASKS_MAX];

static long below(long bound) {
    state = state * 6364136223846793005ul + 1442695040888963407ul;
    return (long)((state >> 33) % (unsigned long)bound);
}

static void write_one(int sid, int task, FILE *fp) {
    long len = below(below(2) ? 60 : 2500);
    if (len_of[task] + len > LEN_MAX)
        return;
    unsigned char *bytes = new_pattern(task, len_of[task], len);
    if (with_stream && below(2)) {
        if (sion_ensure_free_space(sid, len)) {
            CHECK(fwrite(bytes, 1, (size_t)len, fp) == (size_t)len);
            len_of[task] += len;
        } else {
            CHECK(sion_last_error() == SION_ERR_CHUNK && len > 0);
        }
    } else {
        size_t items = sion_fwrite(bytes, 1, (size_t)len, sid);
        CHECK(items == (size_t)len || (chunk_of[task] == 0 && items == 0));
        len_of[task] += (long)items;
    }
    free(bytes);
}

static void write_all(void) {
    int ranks[TASKS_MAX], *pranks = ranks, nfiles = 1 + (int)below(2);
    sion_int64 *pchunks = chunk_of;
    sion_int32 fsblksize = (sion_int32)(1 + below(700));
    FILE *fp = NULL;
    ntasks = nfiles + (int)below(TASKS_MAX - nfiles + 1);
    for (int task = 0; task < ntasks; task++) {
        ranks[task] = task;
        chunk_of[task] = below(4) ? 1 + below(2000) : 0;
    }
    int sid = sion_open("model.sion", "bw", &ntasks, &nfiles, &pchunks, &fsblksize, &pranks,
                        with_stream ? &fp : NULL);
    CHECK(sid >= 0);
    for (int step = 0; step < STEPS; step++) {
        int task = (int)below(ntasks);
        CHECK(sion_seek_fp(sid, task, SION_CURRENT_BLK, SION_CURRENT_POS,
                           with_stream ? &fp : NULL));
        for (long times = below(4); times > 0; times--)
            write_one(sid, task, fp);
        if (below(10) == 0)
            CHECK(sion_flush(sid));
        if (below(2))
            CHECK(sion_get_bytes_written(sid) == len_of[task]);
        CHECK(sion_feof(sid) == 0);
    }
    CHECK(sion_close(sid));
}

static void read_some(int sid, int task, FILE *fp) {
    static unsigned char bytes[LEN_MAX + 1];
    long left = len_of[task] - at_of[task], len = below(below(2) ? 60 : 6000), n;
    if (with_stream && below(2)) {
        CHECK(sion_feof(sid) == (left == 0) || sion_bytes_avail_in_block(sid) == 0);
        n = (long)sion_bytes_avail_in_block(sid);
        n = n < len ? n : len;
        CHECK(fread(bytes, 1, (size_t)n, fp) == (size_t)n);
    } else {
        n = (long)sion_fread(bytes, 1, (size_t)len, sid);
        CHECK(n == (left < len ? left : len));
    }
    CHECK(is_pattern(bytes, task, at_of[task], n));
    at_of[task] += n;
}

static void read_all(void) {
    FILE *fp = NULL;
    int tasks, sid = open_tasks("model.sion", "br", &tasks, with_stream ? &fp : NULL);
    CHECK(sid >= 0 && tasks == ntasks);
    for (int step = 0; step < STEPS; step++) {
        int task = (int)below(ntasks), block = SION_CURRENT_BLK;
        sion_int64 at = SION_CURRENT_POS;
        if (below(3) == 0) {
            at_of[task] = below(len_of[task] + 1);
            block = below(2) ? SION_ABSOLUTE_POS : SION_END_POS;
            at = block == SION_ABSOLUTE_POS ? at_of[task] : at_of[task] - len_of[task];
        }
        CHECK(sion_seek_fp(sid, task, block, at, with_stream ? &fp : NULL));
        for (long times = below(4); times > 0; times--)
            read_some(sid, task, fp);
        CHECK(sion_get_bytes_read(sid) == at_of[task]);
    }
    CHECK(sion_close(sid));
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    state = strtoul(argv[1], NULL, 10);
    with_stream = (int)below(2);
    write_all();
    with_stream = (int)below(2);
    read_all();
    return 0;
}
