/* The interface as SIONlib 1.7 has it: constants, types, the signature of every function that
 * programs are known to use, under both names; and calls of those that no other test needs. */
#include <unistd.h>

#include <sion_debug.h>

#include "threads.h"

#define IS(name, value) _Static_assert((name) == (value), #name)

IS(SION_SUCCESS, 1);
IS(SION_NOT_SUCCESS, 0);
IS(SION_STD_SUCCESS, 0);
IS(SION_STD_NOT_SUCCESS, 1);
IS(SION_SMALLEST_VALID_ID, 0);
IS(SION_ID_UNDEF, -1);
IS(SION_ID_NOT_VALID, -1);
IS(SION_UNKNOWN, -1);
IS(SION_AUTOMATIC, -1);
IS(SION_SIZE_NOT_VALID, -1);
IS(SION_ANSI_SIZE_NOT_VALID, 0);
IS(SION_MAIN_VERSION, 1);
IS(SION_SUB_VERSION, 7);
IS(SION_VERSION_PATCHLEVEL, 6);
IS(SION_FILEFORMAT_VERSION, 5);
IS(SION_CURRENT_RANK, -101);
IS(SION_CURRENT_BLK, -102);
IS(SION_CURRENT_CHUNK, -102);
IS(SION_CURRENT_BLOCK, -102);
IS(SION_CURRENT_POS, -103);
IS(SION_ABSOLUTE_POS, -104);
IS(SION_END_POS, -105);
IS(SION_DUP_ALL, -201);
IS(SION_DUP_RANK, -202);
IS(SION_DUP_RANK_KEY, -203);
IS(SION_KEYVAL_NONE, 50);
IS(SION_KEYVAL_INLINE, 51);
IS(SION_KEYVAL_META, 52);
IS(SION_KEYVAL_HASH, 53);
IS(SION_KEYVAL_UNKNOWN, 54);
IS(SION_KEYVAL_NOTSET, 55);
IS(_SION_INT32, 10);
IS(_SION_INT64, 11);
IS(_SION_CHAR, 12);
IS(SION_ROLE_NONE, 0);
IS(SION_ROLE_COLLECTOR, 1);
IS(SION_ROLE_SENDER, 2);
IS(SION_ROLE_WRITER, 4);
IS(SION_ROLE_NOWRITER, 8);
IS(SION_ROLE_READER, 16);
IS(SION_ROLE_NOREADER, 32);
IS(SION_ROLE_COLLECTOR_READER, 64);
IS(SION_GET_IO_INFO_FLAG_NONE, 0);
IS(SION_MAX_FSBLOCKSIZE, 32 << 20);
IS(SION_DEFAULT_FSBLOCKSIZE, 2 << 20);
IS(SION_FILENAME_LENGTH, 1024);
IS(MAXCHUNKS, 100);

#if !defined sion_int32 || !defined sion_uint32 || !defined sion_int64 || !defined sion_uint64
#error "the integers are macros"
#endif
#define SAME(a, b) _Static_assert(__builtin_types_compatible_p(a, b), #a)
SAME(sion_int32, int);
SAME(sion_uint32, unsigned);
SAME(sion_int64, long long);
SAME(sion_uint64, unsigned long long);
SAME(__typeof__(((sion_key_stat_t *)0)->key), uint64_t);
SAME(__typeof__(((sion_key_stat_t *)0)->num_blocks), long long);
SAME(__typeof__(((sion_key_stat_t *)0)->total_size), long long);
SAME(__typeof__(((sion_io_stat_t *)0)->nfiles), int);
SAME(__typeof__(((sion_io_stat_t *)0)->names), const char **);
SAME(__typeof__(((sion_io_stat_t *)0)->sizes), size_t *);
SAME(__typeof__(((sion_io_stat_t *)0)->roles), int *);

typedef long long i64;
typedef int gather_cb(const void *, i64 *, int, i64, void *, int, int, int, int,
                      int (*)(const void *, i64 *, int));
typedef int scatter_cb(void *, i64 *, int, i64, void *, int, int, int, int,
                       int (*)(void *, i64 *, int));
typedef int exchange_cb(void *, void *, void *, int, int, int);
typedef int varying_cb(void *, void *, void *, int, int *, int, int);

/* Names that are only read are const here, which no caller notices. */
#define FUNCTIONS(F)                                                                               \
    F(sion_open, int, (const char *, const char *, int *, int *, i64 **, int *, int **, FILE **))   \
    F(sion_open_rank, int, (const char *, const char *, i64 *, int *, int *, FILE **))              \
    F(sion_close, int, (int))                                                                      \
    F(sion_fwrite, size_t, (const void *, size_t, size_t, int))                                    \
    F(sion_fread, size_t, (void *, size_t, size_t, int))                                           \
    F(sion_ensure_free_space, int, (int, i64))                                                     \
    F(sion_feof, int, (int))                                                                       \
    F(sion_bytes_avail_in_block, i64, (int))                                                       \
    F(sion_bytes_avail_in_chunk, i64, (int))                                                       \
    F(sion_flush, int, (int))                                                                      \
    F(sion_get_bytes_written, i64, (int))                                                          \
    F(sion_get_bytes_read, i64, (int))                                                             \
    F(sion_get_position, i64, (int))                                                               \
    F(sion_seek, int, (int, int, int, i64))                                                        \
    F(sion_seek_fp, int, (int, int, int, i64, FILE **))                                            \
    F(sion_get_locations, int, (int, int *, int *, i64 *, i64 *, i64 **, i64 **, i64 **, i64 **))   \
    F(sion_get_current_location, int, (int, int *, i64 *, int *, i64 **))                          \
    F(sion_get_current_locations, int, (int, int *, i64 **, i64 **))                               \
    F(sion_get_mapping, int, (int, int *, int **, int *))                                          \
    F(sion_get_number_of_files, int, (int))                                                        \
    F(sion_get_filenumber, int, (int))                                                             \
    F(sion_is_serial_opened, int, (int))                                                           \
    F(sion_using_hints, int, (int))                                                                \
    F(sion_get_file_endianness, int, (int))                                                        \
    F(sion_get_endianness, int, (void))                                                            \
    F(sion_endianness_swap_needed, int, (int))                                                     \
    F(sion_swap, void, (void *, void *, int, int, int))                                            \
    F(sion_get_version, int, (int *, int *, int *, int *))                                         \
    F(sion_is_thread_safe, int, (void))                                                            \
    F(sion_get_keyval_mode, int, (int))                                                            \
    F(sion_keyval_type_to_str, char *, (int))                                                      \
    F(sion_get_sizeof, int, (int, int *, int *))                                                   \
    F(sion_get_io_info, sion_io_stat_t *, (int))                                                   \
    F(sion_get_io_info_by_spec, sion_io_stat_t *, (int, int, int))                                 \
    F(sion_free_io_info, int, (sion_io_stat_t *))                                                  \
    F(sion_get_fp, FILE *, (int))                                                                  \
    F(sion_get_fd, int, (int))                                                                     \
    F(sion_set_second_fp, int, (int, FILE *))                                                      \
    F(sion_unset_second_fp, int, (int))                                                            \
    F(sion_set_fp_closed, int, (int))                                                              \
    F(sion_optimize_fp_buffer, int, (int))                                                         \
    F(sion_dup, int, (int, int, int, uint64_t))                                                    \
    F(sion_dedup, int, (int))                                                                      \
    F(sion_lock_register_lock_callbacks, int, (int (*)(void *), int (*)(void *), void *))          \
    F(sion_lock_user_callbacks_defined, int, (void))                                               \
    F(sion_fwrite_key, size_t, (const void *, uint64_t, size_t, size_t, int))                      \
    F(sion_fread_key, size_t, (void *, uint64_t, size_t, size_t, int))                             \
    F(sion_seek_key, int, (int, uint64_t, int, i64))                                               \
    F(sion_key_full_scan, int, (int))                                                              \
    F(sion_key_get_stat, int, (int, uint64_t, sion_key_stat_t *))                                  \
    F(sion_fread_key_iterator_reset, int, (int))                                                   \
    F(sion_fread_key_iterator_next, int, (int, uint64_t *, size_t *))                              \
    F(sion_key_list_iterator_reset, int, (int))                                                    \
    F(sion_key_list_iterator_next, int, (int, uint64_t *))                                         \
    F(sion_coll_fwrite, size_t, (const void *, size_t, size_t, int))                               \
    F(sion_coll_fread, size_t, (void *, size_t, size_t, int))                                      \
    F(sion_generic_create_api, int, (const char *))                                                \
    F(sion_generic_free_api, int, (int))                                                           \
    F(sion_generic_register_create_local_commgroup_cb, int,                                        \
      (int, int (*)(void **, void *, int, int, int, int, int, int)))                               \
    F(sion_generic_register_free_local_commgroup_cb, int, (int, int (*)(void *)))                  \
    F(sion_generic_register_barrier_cb, int, (int, int (*)(void *)))                               \
    F(sion_generic_register_bcastr_cb, int, (int, int (*)(void *, void *, int, int, int)))         \
    F(sion_generic_register_gatherr_cb, int, (int, exchange_cb *))                                 \
    F(sion_generic_register_gathervr_cb, int, (int, varying_cb *))                                 \
    F(sion_generic_register_scatterr_cb, int, (int, exchange_cb *))                                \
    F(sion_generic_register_scattervr_cb, int, (int, varying_cb *))                                \
    F(sion_generic_register_get_multi_filename_cb, int, (int, char *(*)(const char *, int)))       \
    F(sion_generic_register_gather_and_execute_cb, int, (int, gather_cb *))                        \
    F(sion_generic_register_execute_and_scatter_cb, int, (int, scatter_cb *))                      \
    F(sion_generic_register_get_capability_cb, int, (int, int (*)(void *)))                        \
    F(sion_generic_paropen, int,                                                                   \
      (int, const char *, const char *, i64 *, int *, void *, int, int, int *, int *, const int *,  \
       const int *, FILE **, char **))                                                             \
    F(sion_generic_parclose, int, (int))                                                           \
    F(sion_generic_paropen_mapped, int,                                                            \
      (int, const char *, const char *, int *, void *, int, int, int *, int **, i64 **, int **,     \
       int **, int *, FILE **))                                                                    \
    F(sion_generic_parclose_mapped, int, (int))                                                    \
    F(sion_generic_parreinit, int, (int, i64))                                                     \
    F(sion_isdebug, int, (void))                                                                   \
    F(sion_debug_on, void, (int, const char *))                                                    \
    F(sion_debug_off, void, (void))                                                                \
    F(sion_get_dfile, FILE *, (void))                                                              \
    F(sion_dclose, void, (void))

#define DECLARE(name, result, parameters)                                                          \
    SAME(__typeof__(name), result parameters);                                                     \
    extern __typeof__(name) l##name;
FUNCTIONS(DECLARE)

SAME(__typeof__(_sion_file_stat_file), int(const char *));
SAME(__typeof__(_sion_close_sid), int(int));
extern __typeof__(_sion_file_stat_file) _lsion_file_stat_file;

/* The same library behind both names. */
static void both_names_are_one(void) {
#define FOUND(name, result, parameters) CHECK((void (*)(void))l##name != NULL);
    FUNCTIONS(FOUND)
    int sid = create_tasks("names.sion", "bw", 1, 100, 512, NULL);
    CHECK(lsion_fwrite("abc", 1, 3, sid) == 3 && sion_get_bytes_written(sid) == 3);
    CHECK(lsion_close(sid) && _lsion_file_stat_file("names.sion") == 1);
}

static void chunks_are_blocks(void) {
    int ntasks, sid = create_tasks("chunks.sion", "bw", 1, 1000, 512, NULL);
    CHECK(sion_bytes_avail_in_chunk(sid) == sion_bytes_avail_in_block(sid));
    CHECK(sion_bytes_avail_in_chunk(sid) == 1024 && sion_fwrite("abc", 1, 3, sid) == 3);
    CHECK(sion_bytes_avail_in_chunk(sid) == 1021 && sion_close(sid));
    sid = open_tasks("chunks.sion", "br", &ntasks, NULL);
    CHECK(sion_bytes_avail_in_chunk(sid) == 3 && _sion_close_sid(sid));
    CHECK(sion_bytes_avail_in_chunk(sid) == -1);
}

static int lock(void *count) {
    ++*(int *)count;
    return SION_SUCCESS;
}

static void the_first_locks_are_kept(void) {
    int count = 0;
    CHECK(sion_is_thread_safe() && !sion_lock_user_callbacks_defined());
    CHECK(!sion_lock_register_lock_callbacks(NULL, lock, &count));
    CHECK(sion_lock_register_lock_callbacks(lock, lock, &count));
    CHECK(!sion_lock_register_lock_callbacks(lock, lock, &count));
    CHECK(sion_lock_user_callbacks_defined());
}

static void nothing_is_debugged(void) {
    sion_debug_on(1023, "debug.txt");
    CHECK(!sion_isdebug() && sion_get_dfile() == NULL);
    sion_debug_off();
    sion_dclose();
    CHECK(access("debug.txt", F_OK) != 0);
}

static int gather_cb_of_old(const void *data, i64 *spec, int spec_len, i64 fsblksize, void *comm,
                            int collector, int first, int last, int sid,
                            int process(const void *, i64 *, int)) {
    (void)data, (void)spec, (void)spec_len, (void)fsblksize, (void)comm, (void)collector;
    (void)first, (void)last, (void)sid, (void)process;
    return SION_STD_NOT_SUCCESS;
}

static int scatter_cb_of_old(void *data, i64 *spec, int spec_len, i64 fsblksize, void *comm,
                             int collector, int first, int last, int sid,
                             int process(void *, i64 *, int)) {
    (void)process;
    return gather_cb_of_old(data, spec, spec_len, fsblksize, comm, collector, first, last, sid,
                            NULL);
}

static int any_capability(void *comm) {
    return comm == NULL;
}

static void write_collectively(struct rank *rank) {
    char byte = 0;
    int sid = paropen(rank, "old.sion", "bw,collective,collsize=2,buddy", 1, 100, 512, NULL);
    CHECK(sid >= 0 && sion_coll_fwrite("x", 1, 1, sid) == 1);
    sion_io_stat_t *info = sion_get_io_info_by_spec(sid, SION_ROLE_WRITER, 0);
    CHECK(info != NULL && info->nfiles == 2 && sion_free_io_info(info));
    info = sion_get_io_info_by_spec(sid, SION_ROLE_READER, SION_GET_IO_INFO_FLAG_NONE);
    CHECK(info != NULL && info->nfiles == 0 && sion_free_io_info(info));
    CHECK(sion_generic_parclose(sid));
    sid = paropen(rank, "old.sion", "br,buddy", 1, 0, 0, NULL);
    CHECK(sid >= 0 && sion_coll_fread(&byte, 1, 1, sid) == 1 && byte == 'x');
    CHECK(sion_generic_parclose(sid));
}

/* Programs that bring the callbacks of the original's collective writes: they are not needed. */
static void collective_callbacks_are_taken_and_left(void) {
    int aid = new_api();
    CHECK(sion_generic_register_execute_and_scatter_cb(aid, scatter_cb_of_old));
    CHECK(sion_generic_register_gather_and_execute_cb(aid, gather_cb_of_old));
    CHECK(!sion_generic_register_gather_and_execute_cb(aid, gather_cb_of_old));
    CHECK(sion_generic_register_get_capability_cb(aid, any_capability));
    run_ranks(4, aid, write_collectively, NULL);
    CHECK(sion_generic_free_api(aid));
}

int main(void) {
    both_names_are_one();
    chunks_are_blocks();
    the_first_locks_are_kept();
    nothing_is_debugged();
    collective_callbacks_are_taken_and_left();
    return 0;
}
