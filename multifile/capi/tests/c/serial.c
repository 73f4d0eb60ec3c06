/* The classic patterns of one process: all tasks or one, through the library and through stdio. */
#include "check.h"

enum { TASKS = 3, BLOCKS = 3, PIECE = 700, CHUNK = 1000, FSBLK = 512 };

/* ensure_free_space, then stdio on the stream of the handle. */
static void write_with_stdio(void) {
    FILE *fp = NULL;
    int sid = create_tasks("stdio.sion", "bw", TASKS, CHUNK, FSBLK, &fp);
    CHECK(sid >= 0 && fp != NULL);
    for (int block = 0; block < BLOCKS; block++)
        for (int task = 0; task < TASKS; task++) {
            CHECK(sion_seek_fp(sid, task, SION_CURRENT_BLK, SION_CURRENT_POS, &fp));
            CHECK(sion_ensure_free_space(sid, PIECE));
            unsigned char *piece = new_pattern(task, block * PIECE, PIECE);
            CHECK(fwrite(piece, 1, PIECE / 2, fp) == PIECE / 2);
            /* The library and the program take turns. */
            CHECK(sion_fwrite(piece + PIECE / 2, 1, 50, sid) == 50);
            CHECK(fwrite(piece + PIECE / 2 + 50, 1, PIECE / 2 - 50, fp) == PIECE / 2 - 50);
            CHECK(sion_get_bytes_written(sid) == (block + 1) * PIECE);
            free(piece);
        }
    CHECK(sion_feof(sid) == 0);
    CHECK(sion_flush(sid));
    CHECK(sion_close(sid));
    CHECK(!sion_close(sid) && sion_last_error() == SION_ERR_HANDLE);
}

/* feof, bytes_avail_in_block, then stdio. */
static void read_with_stdio(void) {
    int ntasks;
    FILE *fp = NULL;
    int sid = open_tasks("stdio.sion", "br", &ntasks, &fp);
    CHECK(sid >= 0 && ntasks == TASKS && fp != NULL);
    for (int task = 0; task < TASKS; task++) {
        unsigned char bytes[CHUNK * 2];
        long at = 0;
        CHECK(sion_seek_fp(sid, task, 0, 0, &fp));
        while (!sion_feof(sid)) {
            size_t left = (size_t)sion_bytes_avail_in_block(sid);
            CHECK(fread(bytes, 1, left, fp) == left);
            CHECK(is_pattern(bytes, task, at, (long)left));
            at += (long)left;
            CHECK(sion_get_bytes_read(sid) == at);
        }
        CHECK(at == BLOCKS * PIECE);
    }
    CHECK(sion_close(sid));
}

/* open_rank and seek to everywhere, with reads across blocks. */
static void read_one_task(void) {
    for (int task = 0; task < TASKS; task++) {
        sion_int64 chunk;
        sion_int32 fsblksize;
        FILE *fp = NULL;
        unsigned char bytes[BLOCKS * PIECE];
        int sid = sion_open_rank("stdio.sion", "rb", &chunk, &fsblksize, &task, &fp);
        CHECK(sid >= 0 && chunk == 1024 && fsblksize == FSBLK);
        CHECK(sion_fread(bytes, PIECE, BLOCKS, sid) == BLOCKS);
        CHECK(is_pattern(bytes, task, 0, BLOCKS * PIECE));
        CHECK(sion_fread(bytes, 1, 1, sid) == 0 && sion_feof(sid) == 1);
        for (long at = 0; at < BLOCKS * PIECE; at += 333) {
            CHECK(sion_seek(sid, SION_CURRENT_RANK, SION_ABSOLUTE_POS, at));
            CHECK(sion_fread(bytes, 1, 1, sid) == 1 && bytes[0] == pattern(task, at));
            CHECK(sion_seek(sid, task, (int)(at / PIECE), at % PIECE));
            CHECK(fread(bytes, 1, 1, fp) == 1 && bytes[0] == pattern(task, at));
            CHECK(sion_seek(sid, task, SION_END_POS, at - BLOCKS * PIECE));
            CHECK(sion_fread(bytes, 1, 1, sid) == 1 && bytes[0] == pattern(task, at));
        }
        CHECK(sion_seek(sid, task, 2, 600));
        CHECK(!sion_seek(sid, task, BLOCKS, 0) && sion_last_error() == SION_ERR_POSITION);
        CHECK(!sion_seek(sid, task, 0, PIECE + 1) && !sion_seek(sid, task + 1, 0, 0));
        CHECK(!sion_seek(sid, task, SION_ABSOLUTE_POS, -1));
        CHECK(!sion_seek(sid, task, SION_END_POS, 1));
        CHECK(sion_get_bytes_read(sid) == 2 * PIECE + 600);
        CHECK(sion_close(sid));
    }
}

/* Block by block, the tasks in turn, without asking for the end. */
static void read_tasks_in_turn(void) {
    int ntasks, sid = open_tasks("stdio.sion", "br", &ntasks, NULL);
    unsigned char bytes[CHUNK];
    for (int block = 0; block < BLOCKS; block++)
        for (int task = 0; task < TASKS; task++) {
            CHECK(sion_seek(sid, task, SION_CURRENT_BLK, SION_CURRENT_POS));
            CHECK(sion_bytes_avail_in_block(sid) == PIECE);
            CHECK(sion_fread(bytes, 1, PIECE, sid) == PIECE);
            CHECK(is_pattern(bytes, task, block * PIECE, PIECE));
        }
    CHECK(sion_seek(sid, 0, SION_CURRENT_BLK, SION_CURRENT_POS));
    CHECK(sion_bytes_avail_in_block(sid) == 0 && sion_feof(sid) == 1);
    CHECK(sion_close(sid));
}

static void ask_about_everything(void) {
    int ntasks, maxblocks, block, blocks, size, files, main_version, sub, patch, format;
    sion_int64 skip, table, at;
    sion_int64 *chunks, *ranks, *counts, *lens, *own;
    sion_int32 *mapping;
    int sid = open_tasks("stdio.sion", "br", &ntasks, NULL);
    CHECK(sion_get_locations(sid, &ntasks, &maxblocks, &skip, &table, &chunks, &ranks, &counts,
                             &lens));
    CHECK(ntasks == TASKS && maxblocks == BLOCKS && skip == TASKS * 1024);
    CHECK(table == 1536 + BLOCKS * TASKS * 1024);
    for (int i = 0; i < BLOCKS * TASKS; i++)
        CHECK(lens[i] == PIECE);
    CHECK(chunks[1] == 1024 && ranks[2] == 2 && counts[0] == BLOCKS);
    CHECK(sion_seek(sid, 1, 2, 17));
    CHECK(sion_get_current_location(sid, &block, &at, &blocks, &own));
    CHECK(block == 2 && at == 17 && blocks == BLOCKS && own[1] == PIECE);
    CHECK(sion_get_current_locations(sid, &ntasks, &own, &lens));
    CHECK(own[0] == 1536 && own[1] == 1536 + 2 * skip + 1024 + 17 && lens[1] == 2);
    CHECK(sion_get_position(sid) == 1536 + 2 * skip + 1024 + 17);
    CHECK(sion_get_mapping(sid, &size, &mapping, &files) && size == -1 && files == 1);
    CHECK(sion_get_number_of_files(sid) == 1 && sion_get_filenumber(sid) == 1);
    CHECK(sion_is_serial_opened(sid) == 1 && sion_using_hints(sid) == 0);
    CHECK(sion_get_endianness() == sion_get_file_endianness(sid));
    CHECK(sion_endianness_swap_needed(sid) == 0);
    CHECK(sion_get_keyval_mode(sid) == SION_KEYVAL_NONE);
    CHECK(strcmp(sion_keyval_type_to_str(SION_KEYVAL_INLINE), "SION_KEYVAL_INLINE") == 0);
    CHECK(sion_get_sizeof(sid, &size, &files) && size > 0 && files > 0);
    CHECK(sion_get_version(&main_version, &sub, &patch, &format));
    CHECK(main_version == SION_MAIN_VERSION && format == SION_FILEFORMAT_VERSION);
    CHECK(sion_get_fd(sid) == -1 && sion_get_fp(sid) != NULL);
    CHECK(sion_get_io_info(sid) == NULL);
    CHECK(sion_dup(sid, SION_DUP_ALL, 0, 0) == -1);
    CHECK(sion_close(sid));
    CHECK(_sion_file_stat_file("stdio.sion") == 1 && _sion_file_stat_file("nothing") == 0);
}

static void posix_has_descriptors_and_no_streams(void) {
    FILE *fp = stdout;
    int ntasks;
    int sid = create_tasks("posix.sion", "wb,posix", 1, CHUNK, FSBLK, &fp);
    CHECK(sid >= 0 && fp == NULL && sion_get_fp(sid) == NULL && sion_get_fd(sid) > 2);
    CHECK(sion_fwrite("abc", 1, 3, sid) == 3 && sion_close(sid));
    sid = open_tasks("posix.sion", "rb,posix", &ntasks, NULL);
    CHECK(sion_get_fd(sid) > 2 && sion_close(sid));
}

/* Arrays that the library allocates are the caller's. */
static void outputs_are_allocated_or_filled(void) {
    int ntasks, nfiles, filled[TASKS], *ranks = NULL, *own = filled;
    sion_int64 *chunks = NULL;
    sion_int32 fsblksize;
    int sid = sion_open("stdio.sion", "br", &ntasks, &nfiles, &chunks, &fsblksize, &ranks, NULL);
    CHECK(sid >= 0 && chunks[TASKS - 1] == 1024 && ranks[1] == 1 && sion_close(sid));
    free(chunks);
    free(ranks);
    sid = sion_open("stdio.sion", "br", &ntasks, &nfiles, NULL, &fsblksize, &own, NULL);
    CHECK(sid >= 0 && own == filled && filled[2] == 2 && sion_close(sid));
}

static void another_stream_takes_over(void) {
    FILE *fp = NULL;
    int ntasks;
    char bytes[16] = {0};
    int sid = create_tasks("second.sion", "bw", 1, CHUNK, FSBLK, &fp);
    CHECK(sion_optimize_fp_buffer(sid));
    CHECK(fputs("first ", fp) >= 0);
    FILE *second = fopen("second.sion", "r+b");
    CHECK(sion_set_second_fp(sid, second));
    CHECK(fputs("second ", second) >= 0);
    CHECK(sion_unset_second_fp(sid) && !sion_unset_second_fp(sid));
    fclose(second);
    CHECK(fputs("third", fp) >= 0);
    CHECK(sion_close(sid));
    sid = open_tasks("second.sion", "br", &ntasks, &fp);
    CHECK(sion_fread(bytes, 1, 6, sid) == 6);
    second = fopen("second.sion", "rb");
    CHECK(sion_set_second_fp(sid, second));
    CHECK(fread(bytes + 6, 1, 3, second) == 3);
    CHECK(fclose(second) == 0 && sion_set_fp_closed(sid));
    CHECK(strcmp(bytes, "first sec") == 0);
    CHECK(sion_close(sid));
}

/* One process writes and reads a set of several physical files. */
static void sets_have_a_mapping(void) {
    int ntasks = 7, nfiles = 3, maxblocks, size, files, ranks[7], *pranks = ranks;
    sion_int64 sizes[7], *psizes = sizes, skip, table, *counts, *lens;
    sion_int32 fsblksize = FSBLK, *mapping;
    for (int i = 0; i < 7; i++) {
        ranks[i] = i;
        sizes[i] = 100;
    }
    int sid = sion_open("set.sion", "bw", &ntasks, &nfiles, &psizes, &fsblksize, &pranks, NULL);
    CHECK(sid >= 0 && sion_get_number_of_files(sid) == 3);
    for (int i = 0; i < 7; i++) {
        unsigned char *bytes = new_pattern(i, 0, 600L * i);
        CHECK(sion_seek(sid, i, SION_CURRENT_BLK, SION_CURRENT_POS));
        CHECK(sion_fwrite(bytes, 1, 600 * (size_t)i, sid) == 600 * (size_t)i);
        CHECK(sion_get_filenumber(sid) == (i < 4 ? i / 2 : 2));
        free(bytes);
    }
    CHECK(sion_get_locations(sid, &ntasks, &maxblocks, &skip, &table, NULL, NULL, &counts, &lens));
    CHECK(ntasks == 7 && counts[6] == 8 && lens[6] == 512 && lens[7 * 7 + 6] == 16);
    CHECK(sion_close(sid));
    sid = open_tasks("set.sion", "br", &ntasks, NULL);
    CHECK(sid >= 0 && ntasks == 7);
    CHECK(sion_get_mapping(sid, &size, &mapping, &files) && size == 7 && files == 3);
    CHECK(mapping[2 * 6] == 2 && mapping[2 * 6 + 1] == 2);
    CHECK(sion_get_locations(sid, &ntasks, &maxblocks, &skip, &table, NULL, NULL, &counts, &lens));
    CHECK(skip == 1024 && counts[0] == 1 && counts[6] == 8 && lens[0] == 0);
    CHECK(maxblocks == 8 && lens[7] == -1 && lens[7 * 7 + 6] == 16);
    for (int i = 6; i >= 0; i--) {
        unsigned char bytes[600 * 6 + 1];
        CHECK(sion_seek(sid, i, 0, 0));
        CHECK(sion_fread(bytes, 1, sizeof bytes, sid) == 600 * (size_t)i);
        CHECK(is_pattern(bytes, i, 0, 600L * i));
    }
    CHECK(sion_close(sid));
}

static void bytes_are_swapped(void) {
    unsigned char in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8] = {0};
    sion_swap(out, in, 4, 2, 1);
    CHECK(memcmp(out, "\4\3\2\1\10\7\6\5", 8) == 0);
    sion_swap(in, in, 2, 4, 1);
    CHECK(memcmp(in, "\2\1\4\3\6\5\10\7", 8) == 0);
    sion_swap(out, in, 2, 4, 0);
    CHECK(memcmp(out, in, 8) == 0);
}

int main(void) {
    write_with_stdio();
    read_with_stdio();
    read_one_task();
    read_tasks_in_turn();
    ask_about_everything();
    posix_has_descriptors_and_no_streams();
    outputs_are_allocated_or_filled();
    another_stream_takes_over();
    sets_have_a_mapping();
    bytes_are_swapped();
    return 0;
}
