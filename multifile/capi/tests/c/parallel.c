/* Ranks that open a multifile together over generic callbacks: threads of this process. */
#include "threads.h"

enum { FSBLK = 512, CHUNK = 1000, LEN = 2500 };

/* The pattern of the report on the original, figure 3: open, test, make room, fwrite, close. */
static void write_as_in_figure_3(struct rank *rank) {
    FILE *fp = NULL;
    int sid = paropen(rank, "fig3.sion", "bw", 1, CHUNK, FSBLK, &fp);
    CHECK(sid >= 0 && fp != NULL);
    for (long at = 0; at < LEN; at += 500) {
        unsigned char *piece = new_pattern(rank->comm.rank, at, 500);
        if (!sion_feof(sid)) {
            CHECK(sion_ensure_free_space(sid, 500));
            CHECK(fwrite(piece, 1, 500, fp) == 500);
        }
        free(piece);
    }
    CHECK(sion_generic_parclose(sid));
}

static void read_as_in_figure_3(struct rank *rank) {
    FILE *fp = NULL;
    unsigned char bytes[LEN];
    long at = 0;
    int sid = paropen(rank, "fig3.sion", "br", 1, 0, 0, &fp);
    CHECK(sid >= 0 && fp != NULL);
    while (!sion_feof(sid)) {
        size_t left = (size_t)sion_bytes_avail_in_block(sid);
        CHECK(fread(bytes, 1, left, fp) == left);
        CHECK(is_pattern(bytes, rank->comm.rank, at, (long)left));
        at += (long)left;
    }
    CHECK(at == LEN);
    CHECK(sion_generic_parclose(sid));
}

/* What every rank learns, whatever it asks with. */
static void write_set(struct rank *rank) {
    int file = rank->comm.rank / 2 < 3 ? rank->comm.rank / 2 : 2, files = 3;
    int lrank = rank->comm.rank - 2 * file, lsize = file == 2 ? rank->size - 4 : 2;
    sion_int64 chunk = CHUNK + rank->comm.rank;
    sion_int32 fsblksize = -1;
    char *name = NULL, expected[32];
    int sid = sion_generic_paropen(rank->aid, "set.sion", "bw", &chunk, &fsblksize, &rank->comm,
                                   rank->comm.rank, rank->size, &file, &files, &lrank, &lsize,
                                   NULL, &name);
    CHECK(sid >= 0 && fsblksize > 0 && chunk == CHUNK + rank->comm.rank);
    sprintf(expected, file ? "set.sion.%06d" : "set.sion", file);
    CHECK(strcmp(name, expected) == 0);
    free(name);
    unsigned char *bytes = new_pattern(rank->comm.rank, 0, LEN * 10);
    CHECK(sion_fwrite(bytes, 10, LEN, sid) == LEN);
    free(bytes);
    CHECK(sion_get_number_of_files(sid) == 3 && sion_get_filenumber(sid) == file);
    CHECK(sion_generic_parclose(sid));
}

/* Fewer ranks get several tasks, one after the other; more ranks get none at last. */
static void read_set(struct rank *rank) {
    int tasks = *(const int *)rank->argument, file, files, me = rank->comm.rank;
    sion_int64 chunk;
    sion_int32 fsblksize;
    int sid = sion_generic_paropen(rank->aid, "set.sion", "br", &chunk, &fsblksize, &rank->comm,
                                   me, rank->size, &file, &files, NULL, NULL, NULL, NULL);
    CHECK(sid >= 0 && files == 3 && fsblksize > 0);
    int each = tasks / rank->size > 0 ? tasks / rank->size : 1;
    int from = me * each, until = me + 1 == rank->size ? tasks : from + each;
    if (until > tasks)
        until = tasks;
    unsigned char *bytes = (unsigned char *)malloc(LEN * 10);
    for (int task = from; task < until; task++) {
        CHECK(sion_feof(sid) == 0);
        CHECK(sion_fread(bytes, 1, LEN * 10, sid) == LEN * 10);
        CHECK(is_pattern(bytes, task, 0, LEN * 10));
    }
    free(bytes);
    CHECK(sion_feof(sid) == 1);
    CHECK(sion_generic_parclose(sid));
}

/* All data of a file's ranks goes to the first one's stream, in the order of ranks. */
static void write_merged(struct rank *rank) {
    int me = rank->comm.rank;
    int sid = paropen(rank, "merged.sion", "bw,cmerge,collsize=-1", 2, 100000, FSBLK, NULL);
    CHECK(sid >= 0);
    for (int call = 0; call < 3; call++) {
        unsigned char *bytes = new_pattern(me, call * 400, 400);
        CHECK(sion_coll_fwrite(bytes, 4, (size_t)(me == 1 ? 0 : 100), sid) ==
              (size_t)(me == 1 ? 0 : 100));
        free(bytes);
    }
    CHECK(sion_generic_parclose(sid));
}

static void write_collectively(struct rank *rank) {
    int me = rank->comm.rank;
    int sid = paropen(rank, "coll.sion", "bw,collective,collsize=2", 1, CHUNK, FSBLK, NULL);
    unsigned char *bytes = new_pattern(me, 0, CHUNK);
    CHECK(sid >= 0 && sion_coll_fwrite(bytes, 1, CHUNK, sid) == CHUNK);
    free(bytes);
    CHECK(sion_generic_parclose(sid));
    sid = paropen(rank, "coll.sion", "br,collective", 1, 0, 0, NULL);
    bytes = (unsigned char *)malloc(CHUNK);
    CHECK(sid >= 0 && sion_coll_fread(bytes, 1, CHUNK, sid) == CHUNK);
    CHECK(is_pattern(bytes, me, 0, CHUNK));
    free(bytes);
    CHECK(sion_generic_parclose(sid));
}

/* Every rank has two tasks; 2 files; rank 2 has none in file 0. */
static void write_mapped(struct rank *rank) {
    int me = rank->comm.rank, tasks = 2, files = 2;
    int ranks[2] = {2 * me, 2 * me + 1}, numbers[2], locals[2];
    sion_int64 sizes[2] = {CHUNK, CHUNK + 600};
    for (int i = 0; i < 2; i++) {
        numbers[i] = ranks[i] >= 3;
        locals[i] = ranks[i] - 3 * numbers[i];
    }
    int *pranks = ranks, *pnumbers = numbers, *plocals = locals;
    sion_int64 *psizes = sizes;
    sion_int32 fsblksize = FSBLK;
    int sid = sion_generic_paropen_mapped(rank->aid, "mapped.sion", "bw", &files, &rank->comm, me,
                                          rank->size, &tasks, &pranks, &psizes, &pnumbers,
                                          &plocals, &fsblksize, NULL);
    CHECK(sid >= 0);
    for (long at = 0; at < LEN; at += 500)
        for (int i = 1; i >= 0; i--) {
            unsigned char *piece = new_pattern(ranks[i], at, 500);
            CHECK(sion_seek(sid, ranks[i], SION_CURRENT_BLK, SION_CURRENT_POS));
            CHECK(sion_fwrite(piece, 1, 500, sid) == 500);
            free(piece);
        }
    CHECK(!sion_seek(sid, 99, SION_CURRENT_BLK, SION_CURRENT_POS));
    CHECK(sion_generic_parclose_mapped(sid));
}

static void read_mapped(struct rank *rank) {
    int me = rank->comm.rank, tasks = -1, files;
    int *ranks = NULL, *numbers = NULL, *locals = NULL, wanted[1] = {5 - me}, *pwanted = wanted;
    sion_int64 *sizes = NULL;
    sion_int32 fsblksize;
    unsigned char bytes[LEN];
    int sid = sion_generic_paropen_mapped(rank->aid, "mapped.sion", "br", &files, &rank->comm, me,
                                          rank->size, &tasks, &ranks, &sizes, &numbers, &locals,
                                          &fsblksize, NULL);
    CHECK(sid >= 0 && tasks == 2 && files == 2 && ranks[1] == 2 * me + 1 && sizes[0] == 1024);
    CHECK(sion_dup(sid, SION_DUP_RANK, 99, 0) == -1 && sion_dup(sid, 0, me, 0) == -1);
    int copy = sion_dup(sid, SION_DUP_RANK, 2 * me + 1, 0);
    CHECK(copy >= 0 && !sion_generic_parclose_mapped(copy));
    CHECK(sion_fread(bytes, 1, LEN, copy) == LEN && is_pattern(bytes, 2 * me + 1, 0, LEN));
    CHECK(sion_dedup(copy) && !sion_dedup(sid));
    for (int i = 0; i < tasks; i++) {
        CHECK(sion_seek(sid, ranks[i], 0, 0) && sion_fread(bytes, 1, LEN, sid) == LEN);
        CHECK(is_pattern(bytes, ranks[i], 0, LEN));
    }
    CHECK(sion_feof(sid) == 1);
    CHECK(sion_generic_parclose_mapped(sid));
    free(ranks), free(sizes), free(numbers), free(locals);
    tasks = 1;
    sizes = NULL;
    sid = sion_generic_paropen_mapped(rank->aid, "mapped.sion", "br", &files, &rank->comm, me,
                                      rank->size, &tasks, &pwanted, &sizes, NULL, NULL,
                                      &fsblksize, NULL);
    CHECK(sid >= 0 && sizes[0] == ((5 - me) % 2 + 1) * 1024);
    free(sizes);
    CHECK(sion_fread(bytes, 1, LEN, sid) == LEN && is_pattern(bytes, 5 - me, 0, LEN));
    CHECK(sion_generic_parclose_mapped(sid));
}

/* The program names the physical files. */
static void write_named(struct rank *rank) {
    int sid = paropen(rank, "named.sion", "bw", 2, CHUNK, FSBLK, NULL);
    CHECK(sid >= 0 && sion_fwrite("x", 1, 1, sid) == 1 && sion_generic_parclose(sid));
    char byte;
    sid = paropen(rank, "named.sion", "br", 2, 0, 0, NULL);
    CHECK(sid >= 0 && sion_fread(&byte, 1, 1, sid) == 1 && byte == 'x');
    CHECK(sion_generic_parclose(sid));
}

/* A lost physical file is read from its copy. */
static void write_with_copies(struct rank *rank) {
    int sid = paropen(rank, "buddy.sion", "bw,buddy", 2, CHUNK, FSBLK, NULL);
    unsigned char *bytes = new_pattern(rank->comm.rank, 0, LEN);
    CHECK(sid >= 0 && sion_coll_fwrite(bytes, 1, LEN, sid) == LEN);
    free(bytes);
    sion_io_stat_t *info = sion_get_io_info(sid);
    CHECK(info != NULL && info->nfiles == 2 && info->sizes[1] == LEN);
    CHECK(strstr(info->names[1], "_BUDDY_00") != NULL && info->roles[0] == SION_ROLE_WRITER);
    CHECK(sion_free_io_info(info));
    CHECK(sion_generic_parclose(sid));
}

static void read_copies(struct rank *rank) {
    unsigned char bytes[LEN];
    int sid = paropen(rank, "buddy.sion", "br,buddy", 2, 0, 0, NULL);
    CHECK(sid >= 0 && sion_coll_fread(bytes, 1, LEN, sid) == LEN);
    CHECK(is_pattern(bytes, rank->comm.rank, 0, LEN));
    CHECK(sion_generic_parclose(sid));
}

static int does_nothing(void *out, void *in, void *comm, int dtype, int count, int root) {
    (void)out, (void)in, (void)comm, (void)dtype, (void)count, (void)root;
    return SION_STD_SUCCESS;
}

/* What a callback lost is an error, whatever it says. */
static void lose_messages(struct rank *rank) {
    CHECK(paropen(rank, "lost.sion", "bw", 1, CHUNK, FSBLK, NULL) == -1);
    CHECK(sion_last_error() == SION_ERR_GROUP);
}

static void open_without_callbacks(struct rank *rank) {
    CHECK(paropen(rank, "lost.sion", "bw", 1, CHUNK, FSBLK, NULL) == -1);
    CHECK(sion_last_error() == SION_ERR_ARGUMENT);
}

static void callbacks_are_checked(void) {
    int aid = sion_generic_create_api("incomplete");
    run_ranks(1, aid, open_without_callbacks, NULL);
    CHECK(sion_generic_register_barrier_cb(aid, cb_barrier));
    CHECK(sion_generic_register_bcastr_cb(aid, cb_bcastr));
    CHECK(sion_generic_register_gatherr_cb(aid, cb_gatherr));
    CHECK(sion_generic_register_scatterr_cb(aid, does_nothing));
    CHECK(!sion_generic_register_scatterr_cb(aid, cb_scatterr));
    run_ranks(1, aid, lose_messages, NULL);
    CHECK(sion_generic_free_api(aid));
}

int main(void) {
    int tasks = 7, aid = new_api();
    callbacks_are_checked();
    run_ranks(4, aid, write_as_in_figure_3, NULL);
    run_ranks(4, aid, read_as_in_figure_3, NULL);
    run_ranks(7, aid, write_set, NULL);
    for (int ranks = 1; ranks <= 9; ranks += 2)
        run_ranks(ranks, aid, read_set, &tasks);
    run_ranks(2, aid, read_set, &tasks);
    run_ranks(5, aid, write_merged, NULL);
    run_ranks(5, aid, write_collectively, NULL);
    run_ranks(3, aid, write_mapped, NULL);
    run_ranks(3, aid, read_mapped, NULL);
    run_ranks(4, aid, write_with_copies, NULL);
    CHECK(remove("buddy.sion.000001") == 0);
    run_ranks(4, aid, read_copies, NULL);
    CHECK(sion_generic_register_get_multi_filename_cb(aid, cb_filename));
    CHECK(!sion_generic_register_get_multi_filename_cb(aid, cb_filename));
    run_ranks(4, aid, write_named, NULL);
    CHECK(_sion_file_stat_file("named.sion.part1") == 1);
    CHECK(sion_generic_free_api(aid) && !sion_generic_free_api(aid));
    return 0;
}
