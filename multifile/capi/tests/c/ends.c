/* ends HOW: programs that end without closing, or on a full disk. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "threads.h"

enum { FSBLK = 512 };

/* Who ends without closing has written what it wrote. */
static void unclosed(void) {
    int sid = create_tasks("a.sion", "bw", 2, 4096, FSBLK, NULL);
    unsigned char *bytes = new_pattern(1, 0, 700);
    CHECK(sion_seek(sid, 1, SION_CURRENT_BLK, SION_CURRENT_POS));
    CHECK(sion_fwrite(bytes, 1, 700, sid) == 700);
    free(bytes);
    FILE *fp = sion_get_fp(sid);
    CHECK(fputs("through stdio", fp) >= 0);
    /* A child that ends has nothing to hand over. */
    pid_t child = fork();
    if (child == 0)
        exit(0);
    CHECK(waitpid(child, NULL, 0) == child);
    exit(0);
}

/* Killed after 700 bytes, of which the first 400 were flushed if `flushes`. */
static void killed(const char *mode, int flushes) {
    int sid = create_tasks("a.sion", mode, 1, 4096, FSBLK, NULL);
    unsigned char *bytes = new_pattern(1, 0, 700);
    for (int at = 0; at < 700; at += 100) {
        CHECK(sion_fwrite(bytes + at, 1, 100, sid) == 100);
        CHECK(!flushes || at != 300 || sion_flush(sid));
    }
    raise(SIGKILL);
}

/* A disk that fills up: the error is told, told again, and told at closing. */
static void full(void) {
    int sid = create_tasks("a.sion", "bw", 1, 1 << 22, FSBLK, NULL), ntasks;
    unsigned char *bytes = new_pattern(0, 0, 1 << 22);
    CHECK(sion_fwrite(bytes, 1, 1 << 22, sid) == 0 && sion_last_error() == SION_ERR_IO);
    CHECK(sion_last_errno() == 27);
    CHECK(sion_fwrite(bytes, 1, 1, sid) == 0 && sion_last_error() == SION_ERR_POISONED);
    CHECK(!sion_close(sid));
    CHECK(open_tasks("a.sion", "br", &ntasks, NULL) == -1);
    CHECK(sion_last_error() == SION_ERR_UNCLOSED);
    free(bytes);
}

/* The same through a stream of one rank: nobody closes the file as if it were whole. */
static void fill_a_stream(struct rank *rank) {
    FILE *fp = NULL;
    int sid = paropen(rank, "a.sion", "bw", 1, 1 << 20, FSBLK, &fp), ntasks;
    CHECK(sid >= 0);
    if (rank->comm.rank == 1)
        for (int i = 0; i < 1 << 20; i++)
            putc('x', fp);
    CHECK(!sion_generic_parclose(sid) && sion_last_error() == SION_ERR_IO);
    CHECK(sion_last_error_rank() == 1);
    CHECK(open_tasks("a.sion", "br", &ntasks, NULL) == -1);
    CHECK(sion_last_error() == SION_ERR_UNCLOSED);
}

static void full_stream(void) {
    together(3, fill_a_stream);
}

int main(int argc, char **argv) {
    const char *how = argc == 2 ? argv[1] : "";
    if (strcmp(how, "unclosed") == 0)
        unclosed();
    else if (strcmp(how, "full") == 0)
        full();
    else if (strcmp(how, "full_stream") == 0)
        full_stream();
    else if (strcmp(how, "killed_posix") == 0)
        killed("bw,posix", 0);
    else if (strcmp(how, "killed_flushed") == 0)
        killed("bw", 1);
    else
        return 2;
    return 0;
}
