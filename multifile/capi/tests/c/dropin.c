/* Where programs of SIONlib's users rely on what the original does, one function each; argv[1]
 * names it. */
#include <sion_debug.h>

#include "threads.h"

enum { FSBLK = 512 };

static int reopen(const char *mode) {
    int ntasks, sid = open_tasks("a.sion", mode, &ntasks, NULL);
    CHECK(sid >= 0);
    return sid;
}

static void write_records(void) {
    int sid = create_tasks("a.sion", "bw,keyval=inline", 2, FSBLK, FSBLK, NULL);
    CHECK(sid >= 0);
    for (int task = 0; task < 2; task++) {
        CHECK(sion_seek(sid, task, SION_CURRENT_BLK, SION_CURRENT_POS));
        CHECK(sion_fwrite_key("abc", 7, 1, 3, sid) == 3);
        CHECK(sion_fwrite_key("other", 8, 1, 5, sid) == 5);
        CHECK(sion_fwrite_key("", 7, 1, 0, sid) == 0);
        CHECK(sion_fwrite_key("defg", 7, 1, 4, sid) == 4);
    }
    CHECK(sion_close(sid));
}

/* OTF2 selects task, record, and position before each read. */
static void current_record(void) {
    write_records();
    int sid = reopen("br,keyval=unknown");
    char bytes[8] = "";
    for (int i = 0; i < 7; i++)
        for (int task = 0; task < 2; task++) {
            CHECK(sion_seek(sid, task, SION_CURRENT_BLK, SION_CURRENT_POS));
            CHECK(sion_seek_key(sid, 7, SION_CURRENT_CHUNK, SION_CURRENT_POS));
            CHECK(sion_fread_key(bytes, 7, 1, 1, sid) == 1 && bytes[0] == "abcdefg"[i]);
            if (i < 5) {
                CHECK(sion_seek_key(sid, 8, SION_CURRENT_CHUNK, SION_CURRENT_POS));
                CHECK(sion_fread_key(bytes, 8, 1, 1, sid) == 1 && bytes[0] == "other"[i]);
            }
        }
    CHECK(!sion_seek_key(sid, 9, SION_CURRENT_BLOCK, SION_CURRENT_POS));
    CHECK(sion_close(sid));
}

/* A position after a finished record is one in the next. */
static void next_record(void) {
    write_records();
    int sid = reopen("br,keyval=inline");
    char bytes[8] = "";
    CHECK(sion_seek_key(sid, 7, SION_CURRENT_BLOCK, 1));
    CHECK(sion_fread_key(bytes, 7, 1, 8, sid) == 2 && memcmp(bytes, "bc", 2) == 0);
    CHECK(sion_seek_key(sid, 7, SION_CURRENT_BLOCK, 1));
    CHECK(sion_fread_key(bytes, 7, 1, 2, sid) == 2 && memcmp(bytes, "ef", 2) == 0);
    CHECK(sion_seek_key(sid, 7, SION_CURRENT_BLOCK, 0));
    CHECK(sion_fread_key(bytes, 7, 1, 8, sid) == 4 && memcmp(bytes, "defg", 4) == 0);
    CHECK(!sion_seek_key(sid, 7, SION_CURRENT_BLOCK, 0));
    CHECK(sion_fread_key(bytes, 7, 1, 8, sid) == 0);
    CHECK(sion_seek_key(sid, 7, 2, SION_CURRENT_POS));
    CHECK(sion_seek_key(sid, 7, 0, SION_CURRENT_POS));
    CHECK(sion_fread_key(bytes, 7, 1, 8, sid) == 3 && memcmp(bytes, "abc", 3) == 0);
    CHECK(sion_close(sid));
}

static void write_mapped(struct rank *rank) {
    int me = rank->comm.rank, tasks = 2, files = 2;
    int ranks[2] = {2 * me, 2 * me + 1}, numbers[2] = {me > 0, me > 0}, locals[2] = {0, 1};
    int *pranks = ranks, *pnumbers = numbers, *plocals = locals;
    sion_int64 sizes[2] = {FSBLK, 2 * FSBLK}, *psizes = sizes;
    sion_int32 fsblksize = FSBLK;
    int sid = sion_generic_paropen_mapped(rank->aid, "a.sion", "bw", &files, &rank->comm, me,
                                          rank->size, &tasks, &pranks, &psizes, &pnumbers,
                                          &plocals, &fsblksize, NULL);
    CHECK(sid >= 0 && sion_generic_parclose_mapped(sid));
}

/* The program names its tasks, and the library tells the rest in arrays of its own. */
static void read_mapped(struct rank *rank) {
    int me = rank->comm.rank, tasks = 2, files = 0;
    int ranks[2] = {3 - me, me}, *pranks = ranks, *numbers = NULL, *locals = NULL;
    sion_int64 *sizes = NULL;
    sion_int32 fsblksize;
    int sid = sion_generic_paropen_mapped(rank->aid, "a.sion", "br", &files, &rank->comm, me,
                                          rank->size, &tasks, &pranks, &sizes, &numbers, &locals,
                                          &fsblksize, NULL);
    CHECK(sid >= 0 && files == 2 && tasks == 2 && pranks == ranks);
    CHECK(sizes != NULL && numbers != NULL && locals != NULL);
    for (int i = 0; i < 2; i++) {
        CHECK(sizes[i] == (ranks[i] % 2 + 1) * FSBLK);
        CHECK(numbers[i] == ranks[i] / 2 && locals[i] == ranks[i] % 2);
    }
    free(sizes), free(numbers), free(locals);
    CHECK(sion_generic_parclose_mapped(sid));
}

static void null_arrays(void) {
    together(2, write_mapped);
    together(2, read_mapped);
}

/* Task 0: blocks of 512 and 88 bytes; task 1: 512, 512, and nothing more. */
static int create_blocks(void) {
    int sid = create_tasks("a.sion", "bw", 2, FSBLK, FSBLK, NULL);
    unsigned char bytes[1024];
    for (int at = 0; at < 1024; at++)
        bytes[at] = pattern(0, at);
    CHECK(sid >= 0 && sion_fwrite(bytes, 1, 600, sid) == 600);
    CHECK(sion_seek(sid, 1, SION_CURRENT_BLK, SION_CURRENT_POS));
    CHECK(sion_fwrite(bytes, 1, 1024, sid) == 1024);
    return sid;
}

static void expect_at(int sid, int block, sion_int64 at) {
    int found, count;
    sion_int64 position, *lens;
    CHECK(sion_get_current_location(sid, &found, &position, &count, &lens));
    CHECK(found == block && position == at);
}

static void from_the_end(void) {
    CHECK(sion_close(create_blocks()));
    int sid = reopen("br");
    unsigned char byte;
    CHECK(sion_seek(sid, 0, SION_END_POS, -88));
    expect_at(sid, 1, 0);
    CHECK(sion_bytes_avail_in_block(sid) == 88);
    CHECK(sion_fread(&byte, 1, 1, sid) == 1 && byte == pattern(0, 512));
    CHECK(sion_seek(sid, 0, SION_END_POS, -89));
    expect_at(sid, 0, 511);
    CHECK(sion_seek(sid, 0, SION_END_POS, 0));
    expect_at(sid, 1, 88);
    CHECK(sion_feof(sid) == 1);
    CHECK(sion_seek(sid, 0, SION_ABSOLUTE_POS, 512));
    expect_at(sid, 0, 512);
    CHECK(!sion_seek(sid, 0, SION_END_POS, -601));
    CHECK(sion_seek(sid, 1, SION_END_POS, -512));
    expect_at(sid, 1, 0);
    CHECK(sion_close(sid));
}

/* Of every task, also of those that nobody read from yet. */
static void offsets(void) {
    int ntasks, sid = create_blocks(), data = 1536;
    sion_int64 *at, *blocks;
    CHECK(sion_get_current_locations(sid, &ntasks, &at, &blocks) && ntasks == 2);
    CHECK(at[0] == data + 1024 + 88 && blocks[0] == 1);
    CHECK(at[1] == data + 1024 + 512 + 512 && blocks[1] == 1);
    CHECK(sion_close(sid));
    sid = reopen("br");
    CHECK(sion_get_current_locations(sid, &ntasks, &at, &blocks) && ntasks == 2);
    CHECK(at[0] == data && at[1] == data + 512 && blocks[0] == 0 && blocks[1] == 0);
    CHECK(sion_seek(sid, 1, 1, 7));
    CHECK(sion_get_current_locations(sid, &ntasks, &at, &blocks));
    CHECK(at[0] == data && at[1] == data + 1024 + 512 + 7 && blocks[1] == 1);
    CHECK(at[1] == sion_get_position(sid));
    CHECK(sion_close(sid));
}

static void write_set(struct rank *rank) {
    int sid = paropen(rank, "set.sion", "bw", 2, 100, FSBLK, NULL);
    CHECK(sid >= 0 && sion_get_filenumber(sid) == rank->comm.rank / 2);
    CHECK(sion_generic_parclose(sid));
}

/* SIONlib's serial writer numbers its only file 1. */
static void file_numbers(void) {
    int ntasks, rank = 1, sid = create_tasks("a.sion", "bw", 2, 100, FSBLK, NULL);
    sion_int64 chunk;
    sion_int32 fsblksize;
    CHECK(sid >= 0 && sion_get_filenumber(sid) == 1 && sion_close(sid));
    sid = reopen("br");
    CHECK(sion_get_filenumber(sid) == 1 && sion_get_number_of_files(sid) == 1 && sion_close(sid));
    sid = sion_open_rank("a.sion", "br", &chunk, &fsblksize, &rank, NULL);
    CHECK(sid >= 0 && sion_get_filenumber(sid) == 1 && sion_close(sid));
    together(4, write_set);
    sid = open_tasks("set.sion", "br", &ntasks, NULL);
    CHECK(sid >= 0 && sion_get_filenumber(sid) == 0);
    CHECK(sion_seek(sid, 3, 0, 0) && sion_get_filenumber(sid) == 1 && sion_close(sid));
    sid = open_tasks("set.sion.000001", "br", &ntasks, NULL);
    CHECK(sid >= 0 && ntasks == 2 && sion_get_filenumber(sid) == 1 && sion_close(sid));
}

static int query(void) {
    return 0;
}

/* What programs left in their sources compiles, and does nothing. */
static void debugging(void) {
    int touched = 0;
    DPRINTF((1, "text %d\n", ++touched));
    DPRINTFP((1, "main", 0, "text %d\n", ++touched));
    DPRINTFP((1, __func__, 0, "text\n"));
    DPRINTFTS(0, "text");
    DPRINTFTS2(0, "text");
    ONLY_DEBUG(touched++;)
    if (touched == 0)
        sion_dprintf(1, "text %d\n", ++touched);
    else
        sion_dprintfp(1, "main", 0, "text\n");
    CHECK(touched == 0);
    _sion_debug_init();
    _sion_debug_set_query_thread_num_function(query);
    _sion_debug_set_lock_cb(query, query);
    sion_dclose();
}

static void fail_on_one(struct rank *rank) {
    int sid = paropen(rank, "a.sion", "bw", 1, 100, FSBLK, NULL);
    CHECK(sid >= 0);
    if (rank->comm.rank == 2)
        CHECK(!sion_seek(sid, 2, 0, 0));
    CHECK(sion_generic_parclose(sid));
    sid = paropen(rank, "a.sion", "br", 1, 0, 0, NULL);
    int copy = sion_dup(sid, SION_DUP_ALL, -1, 0);
    CHECK(sid >= 0 && copy >= 0);
    if (rank->comm.rank == 3)
        CHECK(!sion_seek(copy, 3, 0, 1));
    CHECK(sion_dedup(copy) && sion_generic_parclose(sid));
    CHECK(paropen(rank, rank->comm.rank == 1 ? "none/a.sion" : "a.sion", "bw", 1, 100, FSBLK,
                  NULL) == -1);
}

/* Printed lines say where it happened. */
static void ranks_of_errors(void) {
    together(4, fail_on_one);
    CHECK(!sion_flush(99));
}

int main(int argc, char **argv) {
    const struct {
        const char *name;
        void (*run)(void);
    } all[] = {
        {"current_record", current_record}, {"next_record", next_record},
        {"null_arrays", null_arrays},       {"from_the_end", from_the_end},
        {"offsets", offsets},               {"file_numbers", file_numbers},
        {"debugging", debugging},           {"ranks_of_errors", ranks_of_errors},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (argc == 2 && strcmp(argv[1], all[i].name) == 0) {
            all[i].run();
            return 0;
        }
    fprintf(stderr, "dropin NAME\n");
    return 2;
}
