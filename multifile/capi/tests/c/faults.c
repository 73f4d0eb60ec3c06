/* The faults of the original that a program meets, one function each; argv[1] names it. */
#include <dirent.h>
#include <unistd.h>

#include "threads.h"

enum { FSBLK = 512 };

static int create(const char *mode, int ntasks, sion_int64 chunk, sion_int32 fsblksize) {
    int sid = create_tasks("a.sion", mode, ntasks, chunk, fsblksize, NULL);
    CHECK(sid >= 0);
    return sid;
}

static int reopen(void) {
    int ntasks, sid = open_tasks("a.sion", "br", &ntasks, NULL);
    CHECK(sid >= 0);
    return sid;
}

static void write_pattern(int sid, int task, long len) {
    unsigned char *bytes = new_pattern(task, 0, len);
    CHECK(sion_seek(sid, task, SION_CURRENT_BLK, SION_CURRENT_POS));
    CHECK(sion_fwrite(bytes, 1, (size_t)len, sid) == (size_t)len);
    free(bytes);
}

static void read_pattern(int sid, int task, long len) {
    unsigned char *bytes = new_pattern(0, 0, len + 1);
    CHECK(sion_fread(bytes, 1, (size_t)len + 1, sid) == (size_t)len);
    CHECK(is_pattern(bytes, task, 0, len));
    free(bytes);
}

static void e1(void) {
    int sid = create("bw", 2, 512, FSBLK);
    write_pattern(sid, 1, 5000);
    CHECK(sion_close(sid));
    sid = reopen();
    CHECK(sion_seek(sid, 1, 0, 0));
    read_pattern(sid, 1, 5000);
    CHECK(sion_close(sid));
}

static void e2(void) {
    int sid = create("bw", 1, 1, 1);
    write_pattern(sid, 0, 3333);
    CHECK(sion_close(sid));
    sid = reopen();
    read_pattern(sid, 0, 3333);
    CHECK(sion_close(sid));
}

static void e3(void) {
    int sid = create("bw", 2, 512, FSBLK), rank = 1;
    sion_int64 chunk;
    sion_int32 fsblksize;
    write_pattern(sid, 0, 100);
    write_pattern(sid, 1, 1536);
    CHECK(sion_close(sid));
    sid = sion_open_rank("a.sion", "br", &chunk, &fsblksize, &rank, NULL);
    CHECK(sid >= 0);
    read_pattern(sid, 1, 1536);
    CHECK(sion_close(sid));
}

static void write_buffered(struct rank *rank) {
    unsigned char *bytes = new_pattern(rank->comm.rank, 0, 3000);
    int sid = paropen(rank, "a.sion", "bw", 1, 4096, FSBLK, NULL);
    for (int at = 0; at < 3000; at += 30)
        CHECK(sid >= 0 && sion_fwrite(bytes + at, 1, 30, sid) == 30);
    free(bytes);
    CHECK(sion_generic_parclose(sid));
}

static void e4(void) {
    setenv("SION_BUFFERSIZE", "100000", 1);
    together(3, write_buffered);
    int sid = reopen();
    for (int task = 0; task < 3; task++) {
        CHECK(sion_seek(sid, task, 0, 0));
        read_pattern(sid, task, 3000);
    }
    CHECK(sion_close(sid));
}

static void one_bad_path(struct rank *rank) {
    const char *name = rank->comm.rank == 2 ? "nowhere/a.sion" : "a.sion";
    CHECK(paropen(rank, name, "bw", 1, 100, FSBLK, NULL) == -1);
    CHECK(sion_last_error() == SION_ERR_IO && sion_last_errno() == 2);
    CHECK(sion_last_error_rank() == 2);
    CHECK(paropen(rank, rank->comm.rank == 1 ? NULL : "a.sion", "bw", 1, 100, FSBLK, NULL) == -1);
    CHECK(paropen(rank, "a.sion", "bw", 1, rank->comm.rank == 3 ? -5 : 100, FSBLK, NULL) == -1);
    CHECK(sion_last_error() == SION_ERR_ARGUMENT);
    CHECK(paropen(rank, "missing.sion", "br", 1, 0, 0, NULL) == -1);
    CHECK(sion_last_error_rank() == 0);
    CHECK(paropen(rank, "a.sion", "posix", 1, 0, 0, NULL) == -1);
    CHECK(sion_last_error() == SION_ERR_MODE);
}

static void e5(void) {
    together(4, one_bad_path);
}

static void write_files(struct rank *rank, int files) {
    int sid = paropen(rank, "a.sion", "bw", files, 100, FSBLK, NULL);
    CHECK(sid >= 0 && sion_fwrite(&rank->comm.rank, 4, 1, sid) == 1 && sion_generic_parclose(sid));
}

static void write_one_file(struct rank *rank) {
    write_files(rank, 1);
}

static void write_two_files(struct rank *rank) {
    write_files(rank, 2);
}

static void read_any(struct rank *rank) {
    int sid = paropen(rank, "a.sion", "br", 1, 0, 0, NULL), value, count = 0;
    CHECK(sid >= 0);
    for (; sion_fread(&value, 4, 1, sid) == 1; count++)
        CHECK(value == count + rank->comm.rank * (rank->size == 3 ? 2 : 1));
    int expected = rank->size == 3 ? 2 : rank->comm.rank < 6;
    CHECK(count == expected && sion_feof(sid) == 1 && sion_generic_parclose(sid));
}

static void e6(void) {
    for (int files = 1; files <= 2; files++) {
        together(6, files == 1 ? write_one_file : write_two_files);
        for (int ranks = 3; ranks <= 9; ranks += 3)
            together(ranks, read_any);
    }
}

static void one_large_request(struct rank *rank) {
    int me = rank->comm.rank;
    int sid = paropen(rank, "a.sion", "bw,cmerge,collsize=2", 1, 512, FSBLK, NULL);
    unsigned char *bytes = new_pattern(me, 0, 9000);
    size_t len = me == 1 ? 9000 : 100;
    CHECK(sid >= 0 && sion_coll_fwrite(bytes, 1, len, sid) == len);
    /* What one rank gets wrong is an error, and the others go on. */
    CHECK(sion_coll_fwrite(me == 2 ? NULL : bytes, 1, 100, sid) == (me == 2 ? 0 : 100));
    CHECK(sion_coll_fwrite(bytes, me == 2 ? SIZE_MAX : 1, 100, sid) == (me == 2 ? 0 : 100));
    free(bytes);
    CHECK(sion_generic_parclose(sid));
}

static void one_large_request_apart(struct rank *rank) {
    int me = rank->comm.rank;
    long len = me == 1 ? 9000 : 100;
    int sid = paropen(rank, "a.sion", "bw,collective,collsize=2", 1, 512, FSBLK, NULL);
    unsigned char *bytes = new_pattern(me, 0, len);
    CHECK(sid >= 0 && sion_coll_fwrite(bytes, 1, (size_t)len, sid) == (size_t)len);
    free(bytes);
    CHECK(sion_generic_parclose(sid));
}

static void e7(void) {
    together(4, one_large_request);
    together(4, one_large_request_apart);
    int sid = reopen();
    for (int task = 0; task < 4; task++) {
        CHECK(sion_seek(sid, task, 0, 0));
        read_pattern(sid, task, task == 1 ? 9000 : 100);
    }
    CHECK(sion_close(sid));
}

static void odd_block_sizes(struct rank *rank) {
    CHECK(paropen(rank, "a.sion", "bw", 1, 100, 0, NULL) == -1);
    CHECK(sion_last_error() == SION_ERR_ARGUMENT);
    CHECK(paropen(rank, "a.sion", "bw", 1, 100, -2, NULL) == -1);
}

static void different_block_sizes(struct rank *rank) {
    CHECK(paropen(rank, "a.sion", "bw", 1, 100, rank->comm.rank ? 512 : 1024, NULL) == -1);
    CHECK(sion_last_error() == SION_ERR_GROUP);
}

static void e8(void) {
    together(3, odd_block_sizes);
    CHECK(access("a.sion", F_OK) != 0);
    together(3, different_block_sizes);
}

static void e9(void) {
    int sid = create("bw,keyval=inline", 1, 0, FSBLK);
    CHECK(sion_fwrite_key("x", 1, 1, 1, sid) == (size_t)-1);
    CHECK(sion_last_error() == SION_ERR_CHUNK && sion_close(sid));
    sid = create("bw,keyval=inline", 1, 100, FSBLK);
    CHECK(sion_fwrite_key("x", 1, 0, 7, sid) == 7 && sion_fwrite("x", 0, 7, sid) == 0);
    CHECK(sion_close(sid));
}

static void e10(void) {
    uint64_t key;
    size_t size;
    int sid = create("bw,keyval=inline", 1, 100, FSBLK);
    CHECK(sion_fwrite_key("abc", 5, 1, 3, sid) == 3 && sion_fwrite_key("", 6, 1, 0, sid) == 0);
    CHECK(sion_close(sid));
    sid = reopen();
    CHECK(sion_fread_key_iterator_next(sid, &key, &size) && key == 5 && size == 3);
    CHECK(sion_fread_key_iterator_next(sid, &key, &size) && key == 6 && size == 0);
    CHECK(!sion_fread_key_iterator_next(sid, &key, &size) && sion_close(sid));
}

static void e12(void) {
    FILE *fp;
    int sid = create_tasks("a.sion", "bw,posix", 1, 1 << 16, FSBLK, &fp);
    for (int i = 0; i < 1000; i++)
        CHECK(sion_fwrite(&i, sizeof i, 1, sid) == 1);
    CHECK(sion_get_bytes_written(sid) == 4000 && sion_close(sid));
}

static int descriptors(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static void e13(void) {
    int ntasks, before;
    together(4, write_two_files);
    for (int round = 0, first = -1; round < 3; round++) {
        before = descriptors();
        int sid = open_tasks("a.sion", "br", &ntasks, NULL);
        CHECK(ntasks == 4 && (first == -1 || sid == first));
        first = sid;
        CHECK(sion_close(sid) && descriptors() == before);
    }
}

static void e14(void) {
    int number = 1, none[] = {-1, 0, 5, 1 << 30};
    sion_int64 at;
    for (int i = 0; i < 4; i++) {
        int sid = none[i];
        CHECK(!sion_seek(sid, 0, 0, 0) && sion_last_error() == SION_ERR_HANDLE);
        CHECK(sion_feof(sid) == -1 && sion_bytes_avail_in_block(sid) == -1);
        CHECK(sion_fwrite("x", 1, 1, sid) == 0 && sion_fread(&number, 1, 1, sid) == 0);
        CHECK(!sion_close(sid) && !sion_generic_parclose(sid) && !sion_dedup(sid));
        CHECK(sion_get_fp(sid) == NULL && sion_get_position(sid) == -1);
        CHECK(!sion_get_current_location(sid, &number, &at, &number, NULL));
    }
    /* A descriptor of callbacks is no file. */
    int aid = sion_generic_create_api("x");
    CHECK(!sion_close(aid) && sion_feof(aid) == -1 && sion_generic_free_api(aid));
}

static void merge_without_the_word(struct rank *rank) {
    int sid = paropen(rank, "a.sion", "bw,cmerge", 1, 100, FSBLK, NULL);
    CHECK(sid >= 0 && sion_coll_fwrite("abcd", 1, 4, sid) == 4);
    CHECK(sion_generic_parclose(sid));
}

static void e15(void) {
    int ntasks, maxblocks;
    sion_int64 skip, table, *counts, *lens;
    together(3, merge_without_the_word);
    int sid = open_tasks("a.sion", "br", &ntasks, NULL);
    CHECK(sion_get_locations(sid, &ntasks, &maxblocks, &skip, &table, NULL, NULL, &counts, &lens));
    CHECK(ntasks == 3 && lens[0] == 12 && lens[1] == 0 && lens[2] == 0);
    CHECK(sion_close(sid));
}

static void e16(void) {
    int ntasks;
    CHECK(create_tasks("a.sion", "bw,keyval=hash", 1, 10, FSBLK, NULL) == -1);
    CHECK(sion_last_error() == SION_ERR_MODE);
    int sid = create("bw,keyval=none", 1, 10, FSBLK);
    CHECK(sion_get_keyval_mode(sid) == SION_KEYVAL_NONE);
    CHECK(sion_fwrite_key("x", 1, 1, 1, sid) == (size_t)-1 && sion_close(sid));
    sid = create("bw,keyval=inline", 1, 100, FSBLK);
    CHECK(sion_fwrite_key("x", 1, 1, 1, sid) == 1 && sion_close(sid));
    sid = open_tasks("a.sion", "br,keyval=unknown", &ntasks, NULL);
    CHECK(sion_get_keyval_mode(sid) == SION_KEYVAL_INLINE && sion_close(sid));
}

static void e17(void) {
    unsigned char *bytes = new_pattern(0, 0, 2000), byte;
    int sid = create("bw,keyval=inline", 1, 64, 64);
    CHECK(sion_fwrite_key(bytes, 7, 1, 2000, sid) == 2000 && sion_close(sid));
    sid = reopen();
    for (int at = 0; at < 2000; at++) {
        CHECK(sion_seek_key(sid, 7, 0, at) && sion_fread_key(&byte, 7, 1, 1, sid) == 1);
        CHECK(byte == bytes[at]);
    }
    CHECK(sion_close(sid));
    free(bytes);
}

static void e18(void) {
    char bytes[4000];
    int sid = create("bw", 1, 4096, FSBLK);
    write_pattern(sid, 0, 4000);
    CHECK(sion_close(sid));
    sid = reopen();
    CHECK(truncate("a.sion", 3000) == 0);
    CHECK(sion_fread(bytes, 1, 4000, sid) == 0 && sion_last_error() == SION_ERR_DAMAGED);
    CHECK(sion_close(sid));
}

static void write_after_reinit(struct rank *rank) {
    int sid = paropen(rank, "a.sion", "bw", 1, 10, FSBLK, NULL);
    sion_int64 chunk = 700 * (rank->comm.rank + 1);
    unsigned char *bytes = new_pattern(rank->comm.rank, 0, (long)chunk);
    CHECK(sid >= 0 && sion_generic_parreinit(sid, chunk));
    /* The rounded size is what a task may use, as after any open. */
    CHECK(sion_ensure_free_space(sid, chunk + 1));
    CHECK(sion_fwrite(bytes, 1, (size_t)chunk, sid) == (size_t)chunk);
    CHECK(sion_generic_parclose(sid));
    sid = paropen(rank, "a.sion", "br", 1, 0, 0, NULL);
    CHECK(sion_bytes_avail_in_block(sid) == chunk);
    CHECK(sion_fread(bytes, 1, (size_t)chunk, sid) == (size_t)chunk);
    CHECK(is_pattern(bytes, rank->comm.rank, 0, (long)chunk) && sion_generic_parclose(sid));
    free(bytes);
}

static void stream_before_reinit(struct rank *rank) {
    FILE *stream;
    int sid = paropen(rank, "a.sion", "bw", 1, 10, FSBLK, &stream);
    CHECK(sid >= 0 && fputs("of the old file", stream) >= 0);
    CHECK(sion_generic_parreinit(sid, 2000) && sion_generic_parclose(sid));
}

static void e20(void) {
    together(3, write_after_reinit);
    together(3, stream_before_reinit);
    FILE *file = fopen("a.sion", "rb");
    for (int byte = 0, at = 0; (byte = fgetc(file)) != EOF; at++)
        CHECK(at < 1076 || byte != 'o');
    fclose(file);
}

static void merge_items(struct rank *rank) {
    double items[10] = {0};
    int sid = paropen(rank, "a.sion", "bw,collective,cmerge,collsize=3", 1, 1000, FSBLK, NULL);
    CHECK(sid >= 0 && sion_coll_fwrite(items, sizeof *items, 10, sid) == 10);
    CHECK(sion_generic_parclose(sid));
}

static void e21(void) {
    together(3, merge_items);
}

static void map_two_of_three(struct rank *rank) {
    int me = rank->comm.rank, tasks = me < 2, files = 1, zero = 0;
    int *ranks = &rank->comm.rank, *numbers = &zero, *locals = &rank->comm.rank;
    sion_int64 size = 100, *sizes = &size;
    sion_int32 fsblksize = FSBLK;
    FILE *fp = NULL;
    int sid = sion_generic_paropen_mapped(rank->aid, "a.sion", "bw", &files, &rank->comm, me, 3,
                                          &tasks, tasks ? &ranks : NULL, &sizes, &numbers,
                                          &locals, &fsblksize, &fp);
    CHECK(sid >= 0 && (fp != NULL) == tasks);
    CHECK(sion_fwrite("x", 1, 1, sid) == (size_t)(me < 2));
    CHECK(sion_generic_parclose_mapped(sid));
    ranks = NULL, sizes = NULL, tasks = -1;
    sid = sion_generic_paropen_mapped(rank->aid, "a.sion", "br", &files, &rank->comm, me, 3,
                                      &tasks, &ranks, &sizes, NULL, NULL, &fsblksize, NULL);
    CHECK(sid >= 0 && tasks == (me < 2) && sion_feof(sid) == (me == 2));
    free(ranks), free(sizes);
    CHECK(sion_generic_parclose_mapped(sid));
    /* An array that one rank forgot is missed by all. */
    tasks = 1, ranks = &rank->comm.rank, sizes = NULL;
    CHECK(sion_generic_paropen_mapped(rank->aid, "a.sion", "br", &files, &rank->comm, me, 3,
                                      &tasks, me ? &ranks : NULL, &sizes, NULL, NULL, &fsblksize,
                                      NULL) == -1);
    CHECK(sion_last_error() == SION_ERR_POSITION);
    /* A file number that is wrong on one rank is refused by all. */
    tasks = 1, ranks = &rank->comm.rank, sizes = &size;
    int number = me == 2 ? -1 : 0;
    numbers = &number;
    CHECK(sion_generic_paropen_mapped(rank->aid, "a.sion", "bw", &files, &rank->comm, me, 3,
                                      &tasks, &ranks, &sizes, &numbers, &locals, &fsblksize,
                                      NULL) == -1);
    CHECK(sion_last_error() == SION_ERR_ARGUMENT && sion_last_error_rank() == 2);
}

static void e22(void) {
    together(3, map_two_of_three);
}

static void write_named(struct rank *rank) {
    const char *name = (const char *)rank->argument;
    int value = rank->comm.rank, sid = paropen(rank, name, "bw", 1, 100, FSBLK, NULL);
    CHECK(sid >= 0 && sion_fwrite(&value, 4, 1, sid) == 1 && sion_generic_parclose(sid));
    value = -1;
    sid = paropen(rank, name, "br", 1, 0, 0, NULL);
    CHECK(sid >= 0 && sion_fread(&value, 4, 1, sid) == 1 && value == rank->comm.rank);
    CHECK(sion_generic_parclose(sid));
}

/* Teams that open different files at the same time do not meet. */
static void *one_team(void *at) {
    static const char *const names[] = {"a.sion", "b.sion"};
    const int team = *(int *)at, aid = new_api();
    for (int round = 0; round < 10; round++)
        run_ranks(4, aid, write_named, names[team]);
    CHECK(sion_generic_free_api(aid));
    return NULL;
}

static void e23(void) {
    pthread_t teams[2];
    int numbers[2] = {0, 1};
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&teams[i], NULL, one_team, &numbers[i]) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(teams[i], NULL);
}

static void e24(void) {
    char name[2000];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    CHECK(create_tasks(name, "bw", 1, 10, FSBLK, NULL) == -1);
    CHECK(sion_last_error() == SION_ERR_ARGUMENT);
}

static void e27(void) {
    const char *modes[] = {"bw,posix", "bw"};
    for (int i = 0; i < 2; i++) {
        FILE *fp = fopen("a.sion", "wb");
        for (int at = 0; at < 100000; at++)
            putc('x', fp);
        fclose(fp);
        int sid = create(modes[i], 1, 100, FSBLK);
        CHECK(sion_close(sid));
        fp = fopen("a.sion", "rb");
        fseek(fp, 0, SEEK_END);
        CHECK(ftell(fp) == 1536 + 512 + 16 + 4);
        fclose(fp);
    }
}

static void e28(void) {
    int sid = create("bw", 1, 4096, FSBLK), found = 0;
    CHECK(sion_flush(sid));
    CHECK(sion_fwrite("accepted", 1, 8, sid) == 8 && sion_flush(sid));
    FILE *fp = fopen("a.sion", "rb");
    for (int at = 0, byte; (byte = getc(fp)) != EOF;) {
        at = byte == "accepted"[at] ? at + 1 : 0;
        found |= at == 8;
        at %= 8;
    }
    fclose(fp);
    CHECK(found && sion_close(sid));
}

static void e29(void) {
    char byte;
    int sid = create("bw", 2, 100, FSBLK);
    write_pattern(sid, 0, 60);
    write_pattern(sid, 1, 60);
    CHECK(sion_close(sid));
    sid = reopen();
    read_pattern(sid, 0, 60);
    CHECK(sion_seek(sid, 1, SION_CURRENT_BLK, SION_CURRENT_POS));
    read_pattern(sid, 1, 60);
    CHECK(sion_seek(sid, 0, SION_CURRENT_BLK, SION_CURRENT_POS));
    CHECK(sion_feof(sid) == 1 && sion_fread(&byte, 1, 1, sid) == 0);
    CHECK(sion_close(sid));
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {
        {"e1", e1}, {"e2", e2}, {"e3", e3}, {"e4", e4}, {"e5", e5}, {"e6", e6}, {"e7", e7},
        {"e8", e8}, {"e9", e9}, {"e10", e10}, {"e12", e12}, {"e13", e13}, {"e14", e14},
        {"e15", e15}, {"e16", e16}, {"e17", e17}, {"e18", e18}, {"e20", e20}, {"e21", e21},
        {"e22", e22}, {"e23", e23}, {"e24", e24}, {"e27", e27}, {"e28", e28}, {"e29", e29}
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (argc == 2 && strcmp(argv[1], all[i].name) == 0) {
            all[i].run();
            return 0;
        }
    fprintf(stderr, "faults NAME\n");
    return 2;
}
