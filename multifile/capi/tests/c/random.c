/*
 * random SEED COUNT: processes and threads run random programs over the whole interface, each
 * compared with a model of what SIONlib does with the same calls. Every process draws the same
 * plans, so each knows what all others write.
 */
#include <errno.h>
#include <mpi.h>
#include <omp.h>

#define SION_OMP
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "random.h"

static int me;
static unsigned long chosen; /* what each process chooses for itself */
static MPI_Comm all, local;

/* On storage of nodes, processes with and without threads. */
static int is_hybrid(const plan *p) {
    return p->kind == HYBRID || (p->kind == LOCAL && p->threads > 1);
}

static int opening(const plan *p, const char *name, const char *mode, int task) {
    int files = p->files, rank = -1;
    sion_int64 chunk = p->chunk[task];
    sion_int32 fsblk = p->fsblk;
    int sid;
    if (p->kind == TEAM)
        sid = sion_paropen_omp(name, mode, &chunk, &fsblk, &rank, NULL, NULL);
    else if (is_hybrid(p))
        sid = sion_paropen_ompi(name, mode, &files, all, &local, &chunk, &fsblk, &rank, NULL, NULL);
    else
        sid = sion_paropen_mpi(name, mode, &files, all, &local, &chunk, &fsblk, &rank, NULL, NULL);
    CHECK(sid >= 0 && rank == task && fsblk == p->fsblk);
    return sid;
}

static int closing(const plan *p, int sid) {
    if (p->kind == TEAM)
        return sion_parclose_omp(sid);
    return is_hybrid(p) ? sion_parclose_ompi(sid) : sion_parclose_mpi(sid);
}

/* One write, and where it leaves the task. */
static void write_one(const plan *p, int task, int op, int sid) {
    size_t len = (size_t)p->len[task][op];
    long at = offset(p, task, op), pos;
    int key = p->key[task][op];
    unsigned char *bytes = new_pattern(task, at, (long)len);
    if (p->keyed)
        CHECK(sion_fwrite_key(bytes, (uint64_t)key, 1, len, sid) == len);
    else if (p->packing != ALIGNED)
        CHECK(sion_coll_fwrite(bytes, 1, len, sid) == len);
    else {
        CHECK(len == 0 || key % 2 || sion_ensure_free_space(sid, (sion_int64)len));
        CHECK(sion_fwrite(bytes, 1, len, sid) == len);
    }
    free(bytes);
    if (p->keyed || p->packing == MERGED || p->packing == COPIED)
        return;
    int lens[OPS_MAX + 1], blocks = blocks_of(p, task, op + 1, lens), found, most;
    sion_int64 in_block, *sizes;
    CHECK(sion_get_current_location(sid, &found, &in_block, &most, &sizes));
    pos = lens[blocks - 1];
    CHECK(found == blocks - 1 && in_block == pos && most == blocks);
    CHECK(sion_get_bytes_written(sid) == at + (long)len);
}

/* The stream of a task from its start, in random pieces. */
static void read_stream(const plan *p, int task, int sid) {
    unsigned char *expected, *bytes;
    long len = stream_of(p, task, &expected), at = 0;
    bytes = malloc((size_t)len + 1);
    while (sion_feof(sid) == 0) {
        long left = (long)sion_bytes_avail_in_block(sid);
        long n = left > 0 ? 1 + below(&chosen, left) : 0;
        CHECK(at + n <= len && sion_fread(bytes, 1, (size_t)n, sid) == (size_t)n);
        CHECK(memcmp(bytes, expected + at, (size_t)n) == 0);
        at += n;
    }
    CHECK(at == len && sion_get_bytes_read(sid) == len);
    free(bytes);
    free(expected);
}

/* Random places of a task's stream; then its start. */
static void seek(const plan *p, int task, int sid, int rank) {
    unsigned char *expected, byte;
    int lens[OPS_MAX + 1], blocks = blocks_of(p, task, p->ops, lens);
    long len = stream_of(p, task, &expected);
    for (int i = 0; i < 5 && p->packing != MERGED; i++) {
        int block = (int)below(&chosen, blocks);
        long before = 0, pos = below(&chosen, lens[block] + 1);
        for (int earlier = 0; earlier < block; earlier++)
            before += lens[earlier];
        CHECK(sion_seek(sid, rank, block, pos));
        CHECK(sion_bytes_avail_in_block(sid) == lens[block] - pos);
        if (pos < lens[block])
            CHECK(sion_fread(&byte, 1, 1, sid) == 1 && byte == expected[before + pos]);
        CHECK(!sion_seek(sid, rank, blocks, 0) && !sion_seek(sid, rank, block, lens[block] + 1));
        pos = below(&chosen, len + 1);
        CHECK(sion_seek(sid, rank, SION_ABSOLUTE_POS, pos) && sion_get_bytes_read(sid) == pos);
    }
    CHECK(sion_seek(sid, rank, 0, 0));
    free(expected);
}

/* Records in the order in which they were written, and each by its key. */
static void read_records(const plan *p, int task, int sid) {
    uint64_t key;
    size_t size;
    sion_key_stat_t stat;
    CHECK(sion_fread_key_iterator_reset(sid));
    for (int op = 0; op < p->ops; op++) {
        CHECK(sion_fread_key_iterator_next(sid, &key, &size));
        CHECK(key == (uint64_t)p->key[task][op] && size == (size_t)p->len[task][op]);
    }
    CHECK(!sion_fread_key_iterator_next(sid, &key, &size) && sion_key_full_scan(sid));
    for (int op = 0; op < p->ops; op++) {
        int own = p->key[task][op], entry = 0, entries = 0;
        long total = 0, len = p->len[task][op], pos = below(&chosen, len);
        for (int other = 0; other < p->ops; other++)
            if (p->key[task][other] == own) {
                entry += other < op;
                entries++;
                total += p->len[task][other];
            }
        CHECK(sion_key_get_stat(sid, (uint64_t)own, &stat));
        CHECK(stat.num_blocks == entries && stat.total_size == total);
        unsigned char *bytes = malloc((size_t)len);
        CHECK(sion_seek_key(sid, (uint64_t)own, entry, pos));
        CHECK(sion_fread_key(bytes, (uint64_t)own, 1, (size_t)len, sid) == (size_t)(len - pos));
        CHECK(is_pattern(bytes, task, offset(p, task, op) + pos, len - pos));
        free(bytes);
    }
}

static void read_task(const plan *p, int task, int sid, int rank) {
    if (p->keyed)
        read_records(p, task, sid);
    else if (p->packing == COPIED)
        for (int op = 0; op < p->ops; op++) {
            size_t len = (size_t)p->len[task][op];
            unsigned char *bytes = malloc(len + 1);
            CHECK(sion_coll_fread(bytes, 1, len, sid) == len);
            CHECK(is_pattern(bytes, task, offset(p, task, op), (long)len));
            free(bytes);
        }
    else {
        seek(p, task, sid, rank);
        read_stream(p, task, sid);
    }
}

/* All tasks by one process; what it says of their blocks. */
static void read_serially(const plan *p, const char *name) {
    int tasks, sid = open_tasks(name, p->keyed ? "rb,keyval=unknown" : "rb", &tasks, NULL);
    int most, found;
    sion_int64 skip, at, *chunks, *ranks, *counts, *sizes;
    CHECK(sid >= 0 && tasks == p->tasks);
    CHECK(sion_get_locations(sid, &found, &most, &skip, &at, &chunks, &ranks, &counts, &sizes));
    for (int task = 0; task < tasks; task++) {
        int lens[OPS_MAX + 1], blocks = blocks_of(p, task, p->ops, lens);
        CHECK(ranks[task] == task);
        if (!p->keyed && p->packing != MERGED && p->packing != COPIED) {
            CHECK(counts[task] == blocks && chunks[task] == room(p, task));
            for (int block = 0; block < blocks; block++)
                CHECK(sizes[block * tasks + task] == lens[block]);
        }
        CHECK(sion_seek(sid, task, 0, 0));
        if (p->packing == COPIED)
            read_stream(p, task, sid);
        else
            read_task(p, task, sid, task);
    }
    CHECK(sion_close(sid));
}

static void write_serially(const plan *p, const char *name) {
    int tasks = p->tasks, files = 1, ranks[TASKS_MAX], *pranks = ranks, done[TASKS_MAX] = {0};
    sion_int64 chunks[TASKS_MAX], *pchunks = chunks;
    sion_int32 fsblk = p->fsblk;
    for (int task = 0; task < tasks; task++) {
        ranks[task] = task;
        chunks[task] = p->chunk[task];
    }
    const char *mode = p->keyed ? "bw,keyval=inline" : "bw";
    int sid = sion_open(name, mode, &tasks, &files, &pchunks, &fsblk, &pranks, NULL);
    CHECK(sid >= 0);
    for (int left = tasks * p->ops; left > 0;) {
        int task = (int)below(&chosen, tasks);
        if (done[task] == p->ops)
            continue;
        CHECK(sion_seek(sid, task, SION_CURRENT_BLK, SION_CURRENT_POS));
        write_one(p, task, done[task]++, sid);
        left--;
    }
    CHECK(sion_close(sid));
}

/* Every process has each p->procs-th task. */
static void write_and_read_mapped(const plan *p, const char *name) {
    int ranks[TASKS_MAX], numbers[TASKS_MAX], locals[TASKS_MAX], count = 0, files = p->files;
    int *pranks = ranks, *pnumbers = numbers, *plocals = locals;
    sion_int64 chunks[TASKS_MAX], *pchunks = chunks;
    sion_int32 fsblk = p->fsblk;
    for (int task = me; task < p->tasks; task += p->procs) {
        ranks[count] = task;
        numbers[count] = task % files;
        locals[count] = task / files;
        chunks[count++] = p->chunk[task];
    }
    for (int reads = 0; reads < 2; reads++) {
        int own = count;
        int sid = sion_paropen_mapped_mpi((char *)name, reads ? "br" : "bw", &files, all, &own,
                                          &pranks, &pchunks, &pnumbers, &plocals, &fsblk, NULL);
        CHECK(sid >= 0 && own == count && files == p->files);
        for (int i = 0; i < count; i++) {
            int task = ranks[i];
            CHECK(!reads || (chunks[i] == room(p, task) && numbers[i] == task % files));
            CHECK(sion_seek(sid, task, reads ? 0 : SION_CURRENT_BLK, reads ? 0 : SION_CURRENT_POS));
            for (int op = 0; op < p->ops && !reads; op++)
                write_one(p, task, op, sid);
            if (reads)
                read_task(p, task, sid, task);
        }
        CHECK(sion_parclose_mapped_mpi(sid));
    }
}

/* What one process or thread of a team does. */
static void write_and_read(const plan *p, const char *name, int task) {
    char mode[64], lost[NAME_LEN + 8];
    mode_of(p, mode, 1);
    int sid = opening(p, name, mode, task);
    for (int op = 0; op < p->ops; op++)
        write_one(p, task, op, sid);
    CHECK(closing(p, sid));
    if (p->packing == COPIED && p->groups > 1) {
        int file = (int)(p->seed % (unsigned long)p->groups);
        snprintf(lost, sizeof lost, file > 0 ? "%s.%06d" : "%s", name, file);
        /* MPI is the first thread's. */
#pragma omp barrier
#pragma omp master
        {
            MPI_Barrier(all);
            /* On storage of nodes each process sees its own file. */
            if (p->kind == LOCAL ? file_of(p, task) == file : task == 0)
                CHECK(unlink(lost) == 0 || (p->kind == LOCAL && errno == ENOENT));
            MPI_Barrier(all);
        }
#pragma omp barrier
    }
    mode_of(p, mode, 0);
    sid = opening(p, name, mode, task);
    read_task(p, task, sid, SION_CURRENT_RANK);
    CHECK(closing(p, sid));
}

/* A folder for each node, that its processes name, or work in. */
static void enter_node(const plan *p, char *name) {
    char folder[16], own[NAME_LEN];
    snprintf(folder, sizeof folder, "node%d", color(p, me));
    mkdir(folder, 0700);
    MPI_Barrier(all);
    if (p->seed % 2)
        CHECK(chdir(folder) == 0);
    else {
        snprintf(own, sizeof own, "%s/%s", folder, name);
        snprintf(name, NAME_LEN, "%s", own);
    }
}

static void run(const plan *p) {
    char name[NAME_LEN], folder[4096];
    snprintf(name, sizeof name, "case%lu.sion", p->seed);
    CHECK(getcwd(folder, sizeof folder) != NULL);
    MPI_Comm_split(all, color(p, me), me, &local);
    if (p->kind == LOCAL)
        enter_node(p, name);
    if (p->kind == SERIAL)
        write_serially(p, name);
    else if (p->kind == MAPPED)
        write_and_read_mapped(p, name);
    else {
#pragma omp parallel num_threads(p->threads)
        write_and_read(p, name, me * p->threads + omp_get_thread_num());
    }
    CHECK(chdir(folder) == 0);
    MPI_Barrier(all);
    int is_lost = p->packing == COPIED && p->groups > 1;
    if (me == 0 && p->kind != LOCAL && !is_lost)
        read_serially(p, name);
    MPI_Comm_free(&local);
}

static unsigned long running;

static void tell(void) {
    if (running > 0)
        fprintf(stderr, "rank %d fails with SEED=%lu\n", me, running - 1);
}

int main(int argc, char **argv) {
    int provided;
    if (argc != 3)
        return 2;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    omp_set_dynamic(0);
    atexit(tell);
    unsigned long first = strtoul(argv[1], NULL, 10), count = strtoul(argv[2], NULL, 10);
    for (unsigned long seed = first; seed < first + count; seed++) {
        plan p;
        running = seed + 1;
        draw(&p, seed);
        chosen = seed * 31 + (unsigned long)me;
        MPI_Comm_split(MPI_COMM_WORLD, me < p.procs, me, &all);
        if (me < p.procs)
            run(&p);
        MPI_Comm_free(&all);
    }
    running = 0;
    if (me == 0)
        printf("%lu cases\n", count);
    return MPI_Finalize();
}
