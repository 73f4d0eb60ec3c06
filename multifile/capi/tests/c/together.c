/* together SOURCE TARGET MODE: writes the same blocks of the same tasks to another multifile, a
 * rank for each task; in mode "mapped", one rank for all of them. */
#include "threads.h"

enum { TASKS_MAX = RANKS_MAX };

static int ntasks, nfiles, file_of[TASKS_MAX], lrank_of[TASKS_MAX], lsize[TASKS_MAX];
static sion_int64 chunk_of[TASKS_MAX];
static sion_int32 fsblksize;
static const char *source, *target, *mode;

static void look_at_source(void) {
    int size, *mapping;
    sion_int64 *chunks = chunk_of;
    int sid = sion_open(source, "br", &ntasks, &nfiles, &chunks, &fsblksize, NULL, NULL);
    CHECK(sid >= 0 && ntasks <= TASKS_MAX);
    CHECK(sion_get_mapping(sid, &size, &mapping, &nfiles));
    for (int task = 0; task < ntasks; task++) {
        file_of[task] = size > 0 ? mapping[2 * task] : 0;
        lrank_of[task] = size > 0 ? mapping[2 * task + 1] : task;
        lsize[file_of[task]]++;
    }
    CHECK(sion_close(sid));
}

static void copy_blocks(int task, int out) {
    int block, blocks, rank = task;
    sion_int64 at, *lens, chunk;
    sion_int32 ignored;
    int in = sion_open_rank(source, "br", &chunk, &ignored, &rank, NULL);
    CHECK(in >= 0 && chunk == chunk_of[task]);
    CHECK(sion_get_current_location(in, &block, &at, &blocks, &lens));
    char *bytes = (char *)malloc((size_t)chunk + 1);
    for (block = 0; block < blocks; block++) {
        size_t len = (size_t)lens[block];
        CHECK(sion_fread(bytes, 1, len, in) == len);
        /* What does not fit the rest of a chunk starts a new one. */
        if (block > 0)
            CHECK(sion_ensure_free_space(out, chunk));
        CHECK(sion_fwrite(bytes, 1, len, out) == len);
    }
    free(bytes);
    CHECK(sion_close(in));
}

static void write_one(struct rank *rank) {
    int me = rank->comm.rank, file = file_of[me], files = nfiles;
    sion_int64 chunk = chunk_of[me];
    sion_int32 block = fsblksize;
    int sid = sion_generic_paropen(rank->aid, target, mode, &chunk, &block, &rank->comm, me,
                                   rank->size, &file, &files, &lrank_of[me], &lsize[file], NULL,
                                   NULL);
    CHECK(sid >= 0);
    copy_blocks(me, sid);
    CHECK(sion_generic_parclose(sid));
}

static void write_all(struct rank *rank) {
    int ranks[TASKS_MAX], *pranks = ranks, *pfiles = file_of, *plranks = lrank_of;
    sion_int64 *pchunks = chunk_of;
    for (int task = 0; task < ntasks; task++)
        ranks[task] = task;
    int sid = sion_generic_paropen_mapped(rank->aid, target, "bw", &nfiles, &rank->comm, 0, 1,
                                          &ntasks, &pranks, &pchunks, &pfiles, &plranks,
                                          &fsblksize, NULL);
    CHECK(sid >= 0);
    for (int task = 0; task < ntasks; task++) {
        CHECK(sion_seek(sid, task, SION_CURRENT_BLK, SION_CURRENT_POS));
        copy_blocks(task, sid);
    }
    CHECK(sion_generic_parclose_mapped(sid));
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    source = argv[1], target = argv[2], mode = argv[3];
    look_at_source();
    int aid = new_api();
    if (strcmp(mode, "mapped") == 0)
        run_ranks(1, aid, write_all, NULL);
    else
        run_ranks(ntasks, aid, write_one, NULL);
    CHECK(sion_generic_free_api(aid));
    return 0;
}
