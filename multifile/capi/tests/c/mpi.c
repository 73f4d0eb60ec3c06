/* mpi WHAT [ARGUMENT]...: MPI processes do one thing with multifiles and check what they get. */
#include <mpi.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calls.h"
#include "check.h"

enum { FSBLK = 512, CHUNK = 1000, LEN = 2500 };

static int me, size;

static int writing(const char *name, const char *mode, int numfiles, sion_int64 chunk, FILE **fp) {
    MPI_Comm local = MPI_COMM_WORLD;
    sion_int32 fsblksize = FSBLK;
    int globalrank = -1;
    int sid = sion_paropen_mpi(name, mode, &numfiles, MPI_COMM_WORLD, &local, &chunk, &fsblksize,
                               &globalrank, fp, NULL);
    CHECK(sid < 0 || (globalrank == me && fsblksize == FSBLK));
    return sid;
}

static int reading(const char *name, const char *mode, int numfiles, FILE **fp) {
    int files = -7, globalrank;
    sion_int64 chunk;
    sion_int32 fsblksize;
    MPI_Comm local = MPI_COMM_WORLD;
    int sid = sion_paropen_mpi(name, mode, &files, MPI_COMM_WORLD, &local, &chunk, &fsblksize,
                               &globalrank, fp, NULL);
    CHECK(sid < 0 || files == numfiles);
    return sid;
}

static void write_pattern(int sid, int task, long len) {
    unsigned char *bytes = new_pattern(task, 0, len);
    CHECK(sion_fwrite(bytes, 1, (size_t)len, sid) == (size_t)len);
    free(bytes);
}

static void read_pattern(int sid, int task, long len) {
    unsigned char *bytes = (unsigned char *)malloc((size_t)len);
    CHECK(sion_fread(bytes, 1, (size_t)len, sid) == (size_t)len);
    CHECK(is_pattern(bytes, task, 0, len));
    free(bytes);
}

/* The program of the report on the original, figure 3, feof on a write handle included. */
static void figure_3(void) {
    MPI_Comm lComm = MPI_COMM_WORLD;
    int numFiles = 1, globalrank, sid;
    sion_int64 chunksize = CHUNK;
    sion_int32 fsblksize = -1;
    FILE *fileptr = NULL;
    char *newfname = NULL;
    sid = sion_paropen_mpi("fig3.sion", "bw", &numFiles, MPI_COMM_WORLD, &lComm, &chunksize,
                           &fsblksize, &globalrank, &fileptr, &newfname);
    CHECK(sid >= 0 && fileptr != NULL && strcmp(newfname, "fig3.sion") == 0);
    free(newfname);
    for (long at = 0; at < LEN; at += 500) {
        unsigned char *piece = new_pattern(me, at, 500);
        if (!sion_feof(sid)) {
            CHECK(sion_ensure_free_space(sid, 500));
            CHECK(fwrite(piece, 1, 500, fileptr) == 500);
        }
        free(piece);
    }
    CHECK(sion_parclose_mpi(sid));
    sid = reading("fig3.sion", "br", 1, &fileptr);
    CHECK(sid >= 0);
    long at = 0;
    while (!sion_feof(sid)) {
        unsigned char bytes[LEN];
        size_t left = (size_t)sion_bytes_avail_in_block(sid);
        CHECK(fread(bytes, 1, left, fileptr) == left && is_pattern(bytes, me, at, (long)left));
        at += (long)left;
    }
    CHECK(at == LEN && sion_parclose_mpi(sid));
}

/* The l flavour is the same. */
int lsion_paropen_mpi(const char *, const char *, int *, MPI_Comm, const MPI_Comm *, sion_int64 *,
                      sion_int32 *, int *, FILE **, char **);
int lsion_parclose_mpi(int sid);

static void write_set(void) {
    int files = 3, globalrank;
    sion_int64 chunk = CHUNK + me;
    sion_int32 fsblksize = -1;
    MPI_Comm local = MPI_COMM_NULL;
    char *name = NULL, expected[32];
    int sid = lsion_paropen_mpi("set.sion", "bw", &files, MPI_COMM_WORLD, &local, &chunk,
                                &fsblksize, &globalrank, NULL, &name);
    int file = me / 2 < 3 ? me / 2 : 2;
    snprintf(expected, sizeof expected, file ? "set.sion.%06d" : "set.sion", file);
    CHECK(sid >= 0 && files == 3 && fsblksize > 0 && chunk == CHUNK + me);
    CHECK(strcmp(name, expected) == 0 && sion_get_filenumber(sid) == file);
    free(name);
    write_pattern(sid, me, 10 * LEN);
    CHECK(lsion_parclose_mpi(sid));
}

/* Any number of ranks shares seven tasks. */
static void read_set(void) {
    int sid = reading("set.sion", "br", 3, NULL);
    int each = 7 / size > 0 ? 7 / size : 1;
    int until = me + 1 == size ? 7 : (me + 1) * each;
    CHECK(sid >= 0);
    for (int task = me * each; task < until && task < 7; task++) {
        CHECK(sion_feof(sid) == 0);
        read_pattern(sid, task, 10 * LEN);
    }
    CHECK(sion_feof(sid) == 1 && sion_parclose_mpi(sid));
}

/* One file for each local communicator, whose ranks count backwards. */
static void write_by_communicator(void) {
    MPI_Comm local;
    int files = -1, globalrank;
    sion_int64 chunk = CHUNK;
    sion_int32 fsblksize = FSBLK;
    MPI_Comm_split(MPI_COMM_WORLD, me == 0 || me == 3 ? 7 : 5, -me, &local);
    int sid = sion_paropen_mpi("local.sion", "bw", &files, MPI_COMM_WORLD, &local, &chunk,
                               &fsblksize, &globalrank, NULL, NULL);
    CHECK(sid >= 0 && files == 2 && sion_get_filenumber(sid) == !(me == 0 || me == 3));
    write_pattern(sid, me, LEN);
    CHECK(sion_parclose_mpi(sid));
    sid = sion_paropen_comms_mpi("comms.sion", "bw", &files, MPI_COMM_WORLD, local, &chunk,
                                 &fsblksize, &globalrank, NULL, NULL);
    CHECK(sid >= 0 && files == 2 && sion_parclose_mpi(sid));
    MPI_Comm_free(&local);
    sid = reading("local.sion", "br", 2, NULL);
    CHECK(sid >= 0);
    read_pattern(sid, me, LEN);
    CHECK(sion_parclose_mpi(sid));
}

/* What a group of two ranks writes, reads, and finds in the folder of its node. */
static void use_node(const char *name, const char *mode, int node, MPI_Comm local) {
    int files = 0, globalrank, merges = strstr(mode, "cmerge") != NULL;
    sion_int64 chunk = CHUNK;
    sion_int32 fsblksize = FSBLK;
    char *physical = NULL, expected[64], bytes[LEN];
    snprintf(expected, sizeof expected, node > 0 ? "%s.%06d" : "%s", name, node);
    int sid = sion_paropen_mpi(name, mode, &files, MPI_COMM_WORLD, &local, &chunk, &fsblksize,
                               &globalrank, NULL, &physical);
    CHECK(sid >= 0 && files == (size + 1) / 2 && sion_get_filenumber(sid) == node);
    CHECK(strcmp(physical, expected) == 0);
    free(physical);
    unsigned char *data = new_pattern(me, 0, LEN);
    CHECK(sion_coll_fwrite(data, 1, LEN, sid) == LEN);
    free(data);
    CHECK(sion_parclose_mpi(sid) && access(expected, R_OK) == 0);
    sid = sion_paropen_mpi(name, "br", &files, MPI_COMM_WORLD, &local, &chunk, &fsblksize,
                           &globalrank, NULL, NULL);
    CHECK(sid >= 0 && globalrank == me && sion_get_filenumber(sid) == node);
    if (!merges) {
        CHECK(sion_fread(bytes, 1, LEN, sid) == LEN);
        CHECK(is_pattern((unsigned char *)bytes, me, 0, LEN) && sion_feof(sid) == 1);
    }
    CHECK(sion_parclose_mpi(sid));
}

/* Each two ranks have a node with a folder of its own, which they name, or work in. */
static void node_local(void) {
    MPI_Comm local;
    int node = me / 2;
    char folder[32], name[64];
    MPI_Comm_split(MPI_COMM_WORLD, node, me, &local);
    snprintf(folder, sizeof folder, "node%d", node);
    mkdir(folder, 0700);
    MPI_Barrier(MPI_COMM_WORLD);
    snprintf(name, sizeof name, "%s/named.sion", folder);
    use_node(name, "bw", node, local);
    CHECK(chdir(folder) == 0);
    use_node("plain.sion", "bw", node, local);
    use_node("packed.sion", "bw,collective,collsize=2", node, local);
    use_node("merged.sion", "bw,cmerge,collsize=2", node, local);
    MPI_Comm_free(&local);
}

static void write_merged(void) {
    int sid = writing("merged.sion", "bw,cmerge,collsize=-1", 2, 4 * LEN, NULL);
    CHECK(sid >= 0);
    for (int call = 0; call < 3; call++) {
        unsigned char *bytes = new_pattern(me, call * 400, 400);
        CHECK(sion_coll_fwrite_mpi(bytes, 4, 100, sid) == 100);
        free(bytes);
    }
    CHECK(sion_parclose_mpi(sid));
    sid = writing("coll.sion", "bw,collective,collsize=2", 1, CHUNK, NULL);
    unsigned char bytes[CHUNK], *data = new_pattern(me, 0, CHUNK);
    CHECK(sid >= 0 && sion_coll_fwrite_mpi(data, 1, CHUNK, sid) == CHUNK);
    free(data);
    CHECK(sion_parclose_mpi(sid));
    sid = reading("coll.sion", "br,collective", 1, NULL);
    CHECK(sid >= 0 && sion_coll_fread_mpi(bytes, 1, CHUNK, sid) == CHUNK);
    CHECK(is_pattern(bytes, me, 0, CHUNK) && sion_parclose_mpi(sid));
}

static void reinit(void) {
    int sid = writing("again.sion", "bw", 1, 10, NULL);
    CHECK(sid >= 0 && sion_parreinit_mpi(sid, 4 * LEN) && sion_ensure_free_space(sid, 4 * LEN));
    write_pattern(sid, me, 4 * LEN);
    CHECK(sion_parclose_mpi(sid));
    sid = reading("again.sion", "br", 1, NULL);
    CHECK(sid >= 0 && sion_bytes_avail_in_block(sid) == 4 * LEN && sion_parclose_mpi(sid));
}

static int counted(int before) {
    return calls - before;
}

/* Every rank has two tasks, all in file 1 for the last rank. */
static void mapped(void) {
    int tasks = 2, files = 2, half = size;
    int ranks[2] = {2 * me, 2 * me + 1}, numbers[2], locals[2];
    sion_int64 sizes[2] = {CHUNK, CHUNK + 600};
    for (int i = 0; i < 2; i++) {
        numbers[i] = ranks[i] >= half;
        locals[i] = ranks[i] - half * numbers[i];
    }
    int *pranks = ranks, *pnumbers = numbers, *plocals = locals, *given = NULL;
    sion_int64 *psizes = sizes, *chunks = NULL;
    sion_int32 fsblksize = FSBLK;
    int before = calls;
    int sid = sion_paropen_mapped_mpi("mapped.sion", "bw", &files, MPI_COMM_WORLD, &tasks, &pranks,
                                      &psizes, &pnumbers, &plocals, &fsblksize, NULL);
    CHECK(sid >= 0 && counted(before) == 2);
    for (int i = 1; i >= 0; i--) {
        CHECK(sion_seek(sid, ranks[i], SION_CURRENT_BLK, SION_CURRENT_POS));
        write_pattern(sid, ranks[i], LEN);
    }
    before = calls;
    CHECK(sion_parclose_mapped_mpi(sid) && counted(before) == 2);
    tasks = -1, before = calls;
    sid = sion_paropen_mapped_mpi("mapped.sion", "br", &files, MPI_COMM_WORLD, &tasks, &given,
                                  &chunks, NULL, NULL, &fsblksize, NULL);
    CHECK(sid >= 0 && tasks == 2 && files == 2 && counted(before) == 3);
    for (int i = 0; i < tasks; i++) {
        CHECK(sion_seek(sid, given[i], 0, 0));
        read_pattern(sid, given[i], LEN);
    }
    CHECK(sion_parclose_mapped_mpi(sid));
    free(given), free(chunks);
}

/* What is wrong on one rank does not keep it from where the others are. */
static void refuse_merged(void) {
    for (int files = 1; files <= 2; files++)
        CHECK(writing("refused.sion", "bw,cmerge", files, me == 1 ? -1 : CHUNK, NULL) < 0);
    CHECK(sion_last_error_rank() == 1);
}

/* As a restart library asks before it restarts. */
static void check_openable(void) {
    sion_file_check_par_args_mpi *args =
        sion_file_check_par_args_init_mpi("br", MPI_COMM_WORLD, 1, MPI_COMM_WORLD);
    CHECK(args != NULL && sion_file_check_par_cb_mpi("fig3.sion", args) == SION_SUCCESS);
    CHECK(sion_file_check_par_cb_mpi("absent.sion", args) == SION_NOT_SUCCESS);
    CHECK(sion_file_check_par_args_free_mpi(args));
}

/* All ranks must have got the same failure, and blame the same rank. */
static void failed_alike(int sid, int code, int rank) {
    int mine[3] = {sid, sion_last_error(), sion_last_error_rank()}, low[3], high[3];
    MPI_Allreduce(mine, low, 3, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(mine, high, 3, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    CHECK(memcmp(low, high, sizeof low) == 0);
    CHECK(sid <= 0 && mine[1] == code && mine[2] == rank);
}

static void fail_to_open(void) {
    MPI_Comm none = MPI_COMM_NULL;
    int files = 0, globalrank;
    sion_int64 chunk = CHUNK;
    sion_int32 fsblksize = me == 1 ? 0 : FSBLK;
    failed_alike(reading("absent.sion", "br", 1, NULL), SION_ERR_IO, 0);
    failed_alike(writing("no/folder.sion", "bw", size, CHUNK, NULL), SION_ERR_IO, 0);
    failed_alike(writing("bad.sion", "bw", 1, me == 1 ? -5 : CHUNK, NULL), SION_ERR_ARGUMENT, 1);
    failed_alike(writing(me == 1 ? NULL : "bad.sion", "bw", 1, CHUNK, NULL), SION_ERR_IO, 1);
    failed_alike(sion_paropen_mpi("bad.sion", "bw", &files, MPI_COMM_WORLD, &none, &chunk,
                                  &fsblksize, &globalrank, NULL, NULL),
                 SION_ERR_ARGUMENT, 0);
    files = 1;
    failed_alike(sion_paropen_mpi("bad.sion", "bw", &files, MPI_COMM_WORLD, &none, &chunk,
                                  &fsblksize, &globalrank, NULL, NULL),
                 SION_ERR_ARGUMENT, 1);
    /* A folder stands where the second file of the set should be. */
    failed_alike(writing("blocked.sion", "bw", 2, CHUNK, NULL), SION_ERR_IO, size / 2);
}

/* One rank has a descriptor left for its file, none for the stream on it. */
static void fail_to_stream(void) {
    struct rlimit all, few;
    FILE *fp = NULL;
    CHECK(sion_parclose_mpi(writing("stream.sion", "bw", 1, CHUNK, NULL)));
    CHECK(getrlimit(RLIMIT_NOFILE, &all) == 0);
    int next = open("/dev/null", O_RDONLY);
    CHECK(next >= 0 && close(next) == 0);
    few = all;
    if (me == 1)
        few.rlim_cur = (rlim_t)next + 1;
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    failed_alike(reading("stream.sion", "br", 1, &fp), SION_ERR_IO, 1);
    failed_alike(writing("stream.sion", "bw", 1, CHUNK, &fp), SION_ERR_IO, 1);
    CHECK(fp == NULL && setrlimit(RLIMIT_NOFILE, &all) == 0);
}

/* One rank may write little; the others only learn of it when they close. */
static void fill_the_disk(int stdio) {
    static unsigned char bytes[1 << 19];
    FILE *fp = NULL;
    int sid = writing("full.sion", "bw", size, 1 << 20, stdio ? &fp : NULL);
    CHECK(sid >= 0);
    if (me == 1) {
        struct rlimit limit = {100000, 100000};
        signal(SIGXFSZ, SIG_IGN);
        CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    }
    if (stdio) {
        CHECK(sion_ensure_free_space(sid, sizeof bytes));
        CHECK((fwrite(bytes, 1, sizeof bytes, fp) == sizeof bytes && fflush(fp) == 0) == (me != 1));
    } else {
        size_t n = sion_fwrite(bytes, 1, sizeof bytes, sid);
        CHECK(me == 1 ? n == 0 && sion_last_error() == SION_ERR_IO : n == sizeof bytes);
    }
    failed_alike(sion_parclose_mpi(sid), stdio ? SION_ERR_IO : SION_ERR_POISONED, 1);
}

/* The last rank dies before closing; the launcher ends the others. */
static void be_killed(void) {
    int sid = writing("killed.sion", "bw", 2, CHUNK, NULL);
    CHECK(sid >= 0);
    write_pattern(sid, me, LEN);
    CHECK(sion_flush(sid));
    MPI_Barrier(MPI_COMM_WORLD);
    if (me + 1 == size)
        raise(SIGKILL);
    sion_parclose_mpi(sid);
    exit(0); /* Not reached: closing needs all ranks. */
}

/* Every rank writes what it reads of the nth file to a file named n.RANK. */
static void unpack(int n, const char *name) {
    MPI_Comm local = MPI_COMM_WORLD;
    int files, globalrank;
    sion_int64 chunk;
    sion_int32 fsblksize;
    char bytes[1000], mine[32];
    int sid = sion_paropen_mpi(name, "br", &files, MPI_COMM_WORLD, &local, &chunk, &fsblksize,
                               &globalrank, NULL, NULL);
    CHECK(sid >= 0);
    snprintf(mine, sizeof mine, "%d.%d", n, me);
    FILE *out = fopen(mine, "wb");
    CHECK(out != NULL);
    while (!sion_feof(sid)) {
        size_t len = sion_fread(bytes, 1, sizeof bytes, sid);
        CHECK(fwrite(bytes, 1, len, out) == len);
    }
    fclose(out);
    CHECK(sion_parclose_mpi(sid));
}

/* Every mode, with a file for each of two communicators, one file, and two. */
static void count_calls(void) {
    static const char *modes[] = {"bw", "bw,collective", "bw,cmerge", "bw,keyval", "bw,buddy=2"};
    MPI_Comm local;
    MPI_Comm_split(MPI_COMM_WORLD, me % 2, me, &local);
    for (int way = 0; way < 5 * 3; way++) {
        const char *mode = modes[way / 3];
        int files = way % 3, merges = strstr(mode, "cmerge") != NULL, globalrank;
        sion_int64 chunk = CHUNK;
        sion_int32 fsblksize = FSBLK;
        int before = calls;
        int sid = sion_paropen_mpi("count.sion", mode, &files, MPI_COMM_WORLD, &local, &chunk,
                                   &fsblksize, &globalrank, NULL, NULL);
        int expected = way % 3 == 0 || (merges && way % 3 == 2) ? 3 : 2;
        int apart = way % 3 == 0 ? 2 : 0, opens = 0, closes = 0;
        /* Buddy copies on other nodes: where all ranks are, two levels, and the parts of both. */
        if (apart && strstr(mode, "buddy") != NULL)
            opens = 2 + 2 * 4 + 2 + 1, closes = 2 * 6;
        CHECK(sid >= 0 && counted(before) == expected + apart + opens);
        if (strcmp(mode, "bw") == 0)
            write_pattern(sid, me, (me == 1 ? 400 : 5) * CHUNK);
        before = calls;
        CHECK(sion_parclose_mpi(sid) && counted(before) == 2 + apart + closes);
        before = calls;
        sid = reading("count.sion", strstr(mode, "buddy") ? "br,buddy=2" : "br", files, NULL);
        CHECK(sid >= 0 && counted(before) > 0 && counted(before) <= 3);
        before = calls;
        CHECK(sion_parclose_mpi(sid) && counted(before) == 0);
    }
    MPI_Comm_free(&local);
}

/* One rank after the other. */
static void take_turns(void) {
    int files = 2, globalrank;
    sion_int64 chunk = CHUNK;
    sion_int32 fsblksize = FSBLK;
    MPI_Comm local = MPI_COMM_WORLD;
    int sid = sion_paropen_mpi("turns.sion", "bw", &files, MPI_COMM_WORLD, &local, &chunk,
                               &fsblksize, &globalrank, NULL, NULL);
    setenv("SION_SERBLOCKSIZE", "1", 1);
    CHECK(sid >= 0 && !sion_endof_transaction_mpi(sid) && !sion_startof_transaction_mpi(99));
    for (int turn = 0; turn < 2; turn++) {
        CHECK(sion_startof_transaction_mpi(sid));
        FILE *log = fopen("turns", "a");
        CHECK(log != NULL && fprintf(log, "%d", me) > 0 && fclose(log) == 0);
        CHECK(sion_endof_transaction_mpi(sid));
        MPI_Barrier(MPI_COMM_WORLD);
    }
    CHECK(sion_parclose_mpi(sid));
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (strcmp(what, "figure_3") == 0)
        figure_3(), check_openable();
    else if (strcmp(what, "write_set") == 0)
        write_set();
    else if (strcmp(what, "read_set") == 0)
        read_set();
    else if (strcmp(what, "all") == 0)
        write_by_communicator(), write_merged(), refuse_merged(), reinit(), mapped();
    else if (strcmp(what, "fail_to_open") == 0)
        fail_to_open(), fail_to_stream();
    else if (strcmp(what, "fill_the_disk") == 0)
        fill_the_disk(0);
    else if (strcmp(what, "fill_the_disk_with_stdio") == 0)
        fill_the_disk(1);
    else if (strcmp(what, "be_killed") == 0)
        be_killed();
    else if (strcmp(what, "unpack") == 0)
        for (int i = 2; i < argc; i++)
            unpack(i - 2, argv[i]);
    else if (strcmp(what, "take_turns") == 0)
        take_turns();
    else if (strcmp(what, "node_local") == 0)
        node_local();
    else if (strcmp(what, "count_calls") == 0)
        count_calls();
    else
        return 2;
    return MPI_Finalize();
}
