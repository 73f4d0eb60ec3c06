/* What a program is lent, streams and descriptors, and what it does with it; argv[1] says which. */
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "threads.h"

enum { FSBLK = 512, TASKS = 4, LEN = 3000 };

/* A stream of the program's own goes on after the handle. */
static void second(void) {
    char bytes[8] = {0};
    int sid = create_tasks("a.sion", "bw", 1, 4096, FSBLK, NULL);
    CHECK(sid >= 0);
    FILE *own = fopen("a.sion", "r+b");
    CHECK(own != NULL && sion_set_second_fp(sid, own));
    CHECK(fputs("first", own) >= 0 && sion_optimize_fp_buffer(sid));
    CHECK(sion_unset_second_fp(sid) && sion_close(sid));
    CHECK(fseek(own, 2048, SEEK_SET) == 0 && fputs("behind", own) >= 0);
    CHECK(fseek(own, 2048, SEEK_SET) == 0 && fread(bytes, 1, 6, own) == 6);
    CHECK(strcmp(bytes, "behind") == 0 && fclose(own) == 0);
}

static void write_one(struct rank *rank) {
    unsigned char *bytes = new_pattern(rank->comm.rank, 0, LEN);
    int sid = paropen(rank, "a.sion", "bw", 2, 1024, FSBLK, NULL);
    CHECK(sid >= 0 && sion_fwrite(bytes, 1, LEN, sid) == LEN);
    CHECK(sion_generic_parclose(sid));
    free(bytes);
}

/* One rank reads the tasks of all files, through the stream that it was given at first. */
static void read_all(struct rank *rank) {
    unsigned char bytes[TASKS * LEN];
    FILE *fp = NULL;
    size_t done = 0;
    int sid = paropen(rank, "a.sion", "br", 1, 0, FSBLK, &fp);
    CHECK(sid >= 0 && fp != NULL);
    while (!sion_feof(sid)) {
        size_t left = (size_t)sion_bytes_avail_in_block(sid);
        CHECK(left > 0 && done + left <= sizeof bytes);
        CHECK(fread(bytes + done, 1, left, fp) == left);
        done += left;
    }
    CHECK(done == sizeof bytes && sion_generic_parclose(sid));
    for (int task = 0; task < TASKS; task++)
        CHECK(is_pattern(bytes + task * LEN, task, 0, LEN));
}

static void files(void) {
    together(TASKS, write_one);
    together(1, read_all);
}

/* What is written and read by a descriptor counts, and begins where the task's stream is. */
static void descriptor(void) {
    char bytes[16] = {0};
    int ntasks, sid = create_tasks("a.sion", "bw,posix", 2, 512, FSBLK, NULL);
    CHECK(sid >= 0 && sion_seek(sid, 1, SION_CURRENT_BLK, SION_CURRENT_POS));
    CHECK(sion_fwrite("by the library ", 1, 15, sid) == 15);
    CHECK(write(sion_get_fd(sid), "and not", 7) == 7);
    CHECK(sion_get_bytes_written(sid) == 22 && sion_bytes_avail_in_block(sid) == 512 - 22);
    CHECK(sion_ensure_free_space(sid, 500) && sion_fwrite("!", 1, 1, sid) == 1);
    CHECK(write(sion_get_fd(sid), "?", 1) == 1 && sion_close(sid));
    sid = open_tasks("a.sion", "br,posix", &ntasks, NULL);
    CHECK(sid >= 0 && sion_seek(sid, 1, 0, 3));
    CHECK(read(sion_get_fd(sid), bytes, 11) == 11 && strcmp(bytes, "the library") == 0);
    CHECK(sion_fread(bytes, 1, 10, sid) == 10 && memcmp(bytes, " and not!?", 10) == 0);
    CHECK(sion_feof(sid) && sion_close(sid));
}

/* A handle and its duplicate read by streams of their own, by whatever calls. */
static void read_twice(struct rank *rank) {
    unsigned char bytes[2][TASKS * LEN];
    FILE *fp = NULL;
    int sid = paropen(rank, "a.sion", "br", 1, 0, FSBLK, &fp);
    CHECK(sid >= 0 && fp != NULL);
    int copy = sion_dup(sid, SION_DUP_ALL, 0, 0);
    CHECK(copy >= 0 && sion_get_fp(copy) != NULL);
    size_t done[2] = {0};
    while (done[0] < TASKS * LEN || done[1] < TASKS * LEN)
        for (int i = 0; i < 2; i++) {
            size_t left = TASKS * LEN - done[i], part = i ? 1000 : 700;
            size_t len = left < part ? left : part;
            CHECK(sion_fread(bytes[i] + done[i], 1, len, i ? copy : sid) == len);
            done[i] += len;
        }
    for (int task = 0; task < TASKS; task++)
        for (int i = 0; i < 2; i++)
            CHECK(is_pattern(bytes[i] + task * LEN, task, 0, LEN));
    CHECK(sion_dedup(copy) && sion_generic_parclose(sid));
}

static void duplicate(void) {
    together(TASKS, write_one);
    together(1, read_twice);
}

/* What could not be written whole is not taken for whole. */
static void failed(void) {
    static char bytes[40000];
    int sid = create_tasks("a.sion", "bw,posix", 1, sizeof bytes, FSBLK, NULL);
    CHECK(sid >= 0 && sion_get_fd(sid) >= 0 && sion_fwrite(bytes, 1, 10000, sid) == 10000);
    struct rlimit limit;
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR && getrlimit(RLIMIT_FSIZE, &limit) == 0);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = 20000;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(sion_fwrite(bytes, 1, 30000, sid) == 0);
    limit.rlim_cur = before;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0 && !sion_close(sid));
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    if (strcmp(argv[1], "second") == 0)
        second();
    else if (strcmp(argv[1], "files") == 0)
        files();
    else if (strcmp(argv[1], "duplicate") == 0)
        duplicate();
    else if (strcmp(argv[1], "failed") == 0)
        failed();
    else
        descriptor();
    return 0;
}
