/* Types of the interface. The integers are macros, because programs test them with #ifdef. */
#ifndef SION_DATATYPES_H
#define SION_DATATYPES_H

#include <stddef.h>
#include <stdint.h>

#define sion_int32 int
#define sion_uint32 unsigned int
#define sion_int64 long long
#define sion_uint64 unsigned long long

/* What is stored under one key of one task. */
typedef struct {
    uint64_t key;
    sion_int64 num_blocks; /* records */
    sion_int64 total_size; /* bytes of all records together */
} sion_key_stat_t;

/* The physical files that a process used, when buddy copies are kept. */
typedef struct {
    int nfiles;
    const char **names;
    size_t *sizes;
    int *roles; /* SION_ROLE_..., added up */
} sion_io_stat_t;

#endif
