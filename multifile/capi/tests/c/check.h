/* What all test programs share. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sion.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: %s (%d: %s)\n", __FILE__, __LINE__, #what, sion_last_error(),  \
                    sion_last_error_text());                                                       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Bytes that tell task and position. */
static inline unsigned char pattern(int task, long at) {
    return (unsigned char)(task * 37 + at % 251);
}

static inline unsigned char *new_pattern(int task, long from, long len) {
    unsigned char *bytes = (unsigned char *)malloc((size_t)len + 1);
    for (long at = 0; at < len; at++)
        bytes[at] = pattern(task, from + at);
    return bytes;
}

static inline int is_pattern(const unsigned char *bytes, int task, long from, long len) {
    for (long at = 0; at < len; at++)
        if (bytes[at] != pattern(task, from + at))
            return 0;
    return 1;
}

/* Creates a multifile of tasks with equal chunks; ranks count from 0. */
static inline int create_tasks(const char *name, const char *mode, int ntasks, sion_int64 chunk,
                               sion_int32 fsblksize, FILE **fp) {
    int nfiles = 1;
    sion_int64 *chunks = (sion_int64 *)malloc(sizeof(sion_int64) * (size_t)(ntasks + 1));
    int *ranks = (int *)malloc(sizeof(int) * (size_t)(ntasks + 1));
    for (int i = 0; i < ntasks; i++) {
        chunks[i] = chunk;
        ranks[i] = i;
    }
    int sid = sion_open(name, mode, &ntasks, &nfiles, &chunks, &fsblksize, &ranks, fp);
    free(chunks);
    free(ranks);
    return sid;
}

/* Opens a multifile to read all of its tasks. */
static inline int open_tasks(const char *name, const char *mode, int *ntasks, FILE **fp) {
    int nfiles;
    sion_int32 fsblksize;
    return sion_open(name, mode, ntasks, &nfiles, NULL, &fsblksize, NULL, fp);
}

#endif
