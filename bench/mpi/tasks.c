/*
 * tasks WHAT FOLDER ROUNDS NUMBER: what MPI processes do without and with a multifile, in turn.
 * Rank 0 prints a line for each round: times in seconds from the first rank's beginning to the last
 * one's end, first those without, then those with. Nothing is left in the folder.
 */
#include <mpi.h>

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sion.h"

enum { BUFFER = 1 << 18, PHYSICAL = 4, NAME = 4096, ALIGNMENT = 1 << 20 };

static int me, size;
static char own_name[NAME], shared_name[NAME];
static double began;

static void must(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "rank %d: %s: %s\n", me, what, sion_last_error_text());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* All ranks are on one machine, so they have one clock. */
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void begin(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    began = now();
}

/* Seconds from the moment the first rank began to the moment the last one ended. */
static double end(void) {
    double mine = now(), first = 0, last = 0;
    MPI_Reduce(&began, &first, 1, MPI_DOUBLE, MPI_MIN, 0, MPI_COMM_WORLD);
    MPI_Reduce(&mine, &last, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    return last - first;
}

static void print(int count, const double *times) {
    for (int i = 0; me == 0 && i < count; i++)
        printf("%.9f%c", times[i], i + 1 == count ? '\n' : ' ');
    fflush(stdout);
}

static int open_own(int flags) {
    int fd = open(own_name, flags, 0666);
    must(fd >= 0, own_name);
    return fd;
}

/* `alignment` of the chunks, -1 for a file-system block. */
static int open_shared(const char *mode, int files, sion_int64 chunk, sion_int32 alignment) {
    MPI_Comm local = MPI_COMM_WORLD;
    int rank;
    int sid = sion_paropen_mpi(shared_name, mode, &files, MPI_COMM_WORLD, &local, &chunk,
                               &alignment, &rank, NULL, NULL);
    must(sid >= 0, shared_name);
    return sid;
}

static void remove_all(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    unlink(own_name);
    for (int file = 0; me == 0 && file < PHYSICAL; file++) {
        char name[NAME + 16];
        snprintf(name, sizeof name, file ? "%s.%06d" : "%s", shared_name, file);
        unlink(name);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Creating and closing: a file for each rank, or one for all. */
static void create(void) {
    double times[2];
    begin();
    close(open_own(O_WRONLY | O_CREAT | O_EXCL));
    times[0] = end();
    begin();
    must(sion_parclose_mpi(open_shared("bw", 1, 4096, -1)), "close");
    times[1] = end();
    print(2, times);
}

/* The paper's table 1, a tracing tool: activation, then writing `len` bytes a rank. */
static void trace(long len) {
    static char buffer[BUFFER];
    double times[4];
    memset(buffer, 0x5a, sizeof buffer);
    begin();
    int fd = open_own(O_WRONLY | O_CREAT | O_EXCL);
    times[0] = end();
    begin();
    for (long at = 0; at < len; at += BUFFER)
        must(write(fd, buffer, BUFFER) == BUFFER, "write");
    times[1] = end();
    close(fd);
    remove_all();
    begin();
    /* The page cache takes what is aligned so in far fewer pieces. */
    int sid = open_shared("bw", size < PHYSICAL ? size : PHYSICAL, len, ALIGNMENT);
    times[2] = end();
    begin();
    for (long at = 0; at < len; at += BUFFER)
        must(sion_fwrite(buffer, 1, BUFFER, sid) == BUFFER, "fwrite");
    must(sion_flush(sid), "flush");
    times[3] = end();
    must(sion_parclose_mpi(sid), "close");
    print(4, times);
}

/* What MP2C keeps of a particle: 52 bytes. */
#pragma pack(push, 4)
struct particle {
    int32_t id;
    double position[3];
    double velocity[3];
};
#pragma pack(pop)

static struct particle particle(long id) {
    struct particle it = {(int32_t)id,
                          {(double)(id % 100), (double)(id / 100 % 100), (double)(id / 10000)},
                          {1.0 / (double)(id + 1), -0.5 * (double)(id % 7), 1e-3 * (double)id}};
    return it;
}

static void check_particles(const struct particle *all, long first, long count) {
    for (long i = 0; i < count; i++) {
        struct particle expected = particle(first + i);
        must(memcmp(&all[i], &expected, sizeof expected) == 0, "a particle came back changed");
    }
}

/* Without: rank 0 writes what the others send it, and hands out what it reads, rank by rank. */
static void write_through_root(struct particle *mine, long count) {
    int bytes = (int)(count * (long)sizeof *mine);
    if (me > 0) {
        MPI_Send(mine, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        return;
    }
    FILE *file = fopen(shared_name, "wb");
    struct particle *theirs = malloc((size_t)bytes);
    must(file != NULL && theirs != NULL, shared_name);
    must(fwrite(mine, sizeof *mine, (size_t)count, file) == (size_t)count, "write");
    for (int rank = 1; rank < size; rank++) {
        MPI_Recv(theirs, bytes, MPI_BYTE, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        must(fwrite(theirs, sizeof *theirs, (size_t)count, file) == (size_t)count, "write");
    }
    must(fclose(file) == 0, "close");
    free(theirs);
}

static void read_through_root(struct particle *mine, long count) {
    int bytes = (int)(count * (long)sizeof *mine);
    if (me > 0) {
        MPI_Recv(mine, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return;
    }
    FILE *file = fopen(shared_name, "rb");
    struct particle *theirs = malloc((size_t)bytes);
    must(file != NULL && theirs != NULL, shared_name);
    must(fread(mine, sizeof *mine, (size_t)count, file) == (size_t)count, "read");
    for (int rank = 1; rank < size; rank++) {
        must(fread(theirs, sizeof *theirs, (size_t)count, file) == (size_t)count, "read");
        MPI_Send(theirs, bytes, MPI_BYTE, rank, 0, MPI_COMM_WORLD);
    }
    fclose(file);
    free(theirs);
}

/* The paper's MP2C figure: `total` particles written and read back. */
static void particles(long total) {
    long count = total / size;
    size_t bytes = (size_t)count * sizeof(struct particle);
    struct particle *mine = malloc(bytes);
    double times[4];
    must(mine != NULL, "memory");
    for (long i = 0; i < count; i++)
        mine[i] = particle(me * count + i);
    begin();
    write_through_root(mine, count);
    times[0] = end();
    memset(mine, 0, bytes);
    begin();
    read_through_root(mine, count);
    times[1] = end();
    check_particles(mine, me * count, count);
    remove_all();
    begin();
    int sid = open_shared("bw", size < PHYSICAL ? size : PHYSICAL, (sion_int64)bytes, -1);
    must(sion_fwrite(mine, sizeof *mine, (size_t)count, sid) == (size_t)count, "fwrite");
    must(sion_parclose_mpi(sid), "close");
    times[2] = end();
    memset(mine, 0, bytes);
    begin();
    sid = open_shared("br", 0, 0, -1);
    must(sion_fread(mine, sizeof *mine, (size_t)count, sid) == (size_t)count, "fread");
    must(sion_parclose_mpi(sid), "close");
    times[3] = end();
    check_particles(mine, me * count, count);
    free(mine);
    print(4, times);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    must(argc == 5, "usage: tasks WHAT FOLDER ROUNDS NUMBER");
    long number = atol(argv[4]);
    snprintf(own_name, sizeof own_name, "%s/task.%05d", argv[2], me);
    snprintf(shared_name, sizeof shared_name, "%s/shared", argv[2]);
    for (int round = 0; round < atoi(argv[3]); round++) {
        if (strcmp(argv[1], "create") == 0)
            create();
        else if (strcmp(argv[1], "trace") == 0)
            trace(number);
        else if (strcmp(argv[1], "particles") == 0)
            particles(number);
        else
            must(0, argv[1]);
        remove_all();
    }
    return MPI_Finalize();
}
