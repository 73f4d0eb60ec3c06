/* What works on every handle, however it was opened. */
#ifndef SION_COMMON_H
#define SION_COMMON_H

#include <stdint.h>
#include <stdio.h>

#include "sion_const.h"
#include "sion_datatypes.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Data. Counts are items, as with fread(3); a request may be larger than a chunk. A write that
 * fits a chunk is never split: what is left of the current chunk is skipped if it is too small. */
size_t sion_fwrite(const void *data, size_t size, size_t nitems, int sid);
size_t sion_fread(void *data, size_t size, size_t nitems, int sid);

/* Collective over the tasks of one physical file; every one of them calls it equally often. */
size_t sion_coll_fwrite(const void *data, size_t size, size_t nitems, int sid);
size_t sion_coll_fread(void *data, size_t size, size_t nitems, int sid);

/* Makes sure that `bytes` fit into the current chunk, moving to the next one if they do not. */
int sion_ensure_free_space(int sid, sion_int64 bytes);
/* 1 at the end of the task's data. At the end of a block moves to the next one and returns 0. */
int sion_feof(int sid);
sion_int64 sion_bytes_avail_in_block(int sid);
sion_int64 sion_bytes_avail_in_chunk(int sid);
/* Hands everything written so far to the operating system. */
int sion_flush(int sid);
sion_int64 sion_get_bytes_written(int sid);
sion_int64 sion_get_bytes_read(int sid);
/* Offset in the physical file. */
sion_int64 sion_get_position(int sid);
/* Absolute positions between two blocks are the end of the earlier one; positions from the end
 * (SION_END_POS, 0 or negative) are the start of the later one. */
int sion_seek(int sid, int rank, int blocknr, sion_int64 posinblk);
int sion_seek_fp(int sid, int rank, int blocknr, sion_int64 posinblk, FILE **fileptr);

/* Information. Arrays belong to the handle and stay valid until it is closed. */
int sion_get_locations(int sid, int *ntasks, int *maxblocks, sion_int64 *globalskip,
                       sion_int64 *start_of_varheader, sion_int64 **chunksizes,
                       sion_int64 **globalranks, sion_int64 **blockcount,
                       sion_int64 **blocksizes);
int sion_get_current_location(int sid, int *currentblock, sion_int64 *currentpos, int *maxchunks,
                              sion_int64 **chunksizes);
/* *currentpos: offsets in the physical files. */
int sion_get_current_locations(int sid, int *ntasks, sion_int64 **currentpos,
                               sion_int64 **currentblocknr);
int sion_get_mapping(int sid, int *mapping_size, sion_int32 **mapping, int *numfiles);
int sion_get_number_of_files(int sid);
/* As the header says: 1 in the only file of a serial writer. */
int sion_get_filenumber(int sid);
int sion_is_serial_opened(int sid);
int sion_using_hints(int sid);
int sion_get_file_endianness(int sid);
int sion_get_endianness(void);
int sion_endianness_swap_needed(int sid);
void sion_swap(void *target, void *source, int size, int n, int do_swap);
int sion_get_version(int *main_version, int *sub_version, int *patch_level,
                     int *fileformat_version);
int sion_is_thread_safe(void);
int sion_get_keyval_mode(int sid);
char *sion_keyval_type_to_str(int type);
int sion_get_sizeof(int sid, int *numbytes, int *numfds);

/* NULL unless the file was opened with buddy copies; the caller frees it with the last one. */
sion_io_stat_t *sion_get_io_info(int sid);
sion_io_stat_t *sion_get_io_info_by_spec(int sid, int roles, int flag);
int sion_free_io_info(sion_io_stat_t *info);

/* Streams and descriptors. sion_get_fp is NULL in mode "posix", sion_get_fd -1 otherwise. */
FILE *sion_get_fp(int sid);
int sion_get_fd(int sid);
int sion_set_second_fp(int sid, FILE *fp);
int sion_unset_second_fp(int sid);
int sion_set_fp_closed(int sid);
int sion_optimize_fp_buffer(int sid);

/* A second read position in a file opened in parallel; closed with sion_dedup. */
int sion_dup(int sid, int mode, int rank, uint64_t key);
int sion_dedup(int sid);

/* Remembered, and not needed: this library locks for itself. */
int sion_lock_register_lock_callbacks(int lock(void *), int unlock(void *), void *data);
int sion_lock_user_callbacks_defined(void);

int _sion_file_stat_file(const char *fname);
#define _sion_stat_file(fname) _sion_file_stat_file(fname)
int _sion_close_sid(int sid);

/* Key-value records, in files opened with "keyval=inline". Keys belong to one task. */
size_t sion_fwrite_key(const void *data, uint64_t key, size_t size, size_t nitems, int sid);
size_t sion_fread_key(void *data, uint64_t key, size_t size, size_t nitems, int sid);
/* SION_CURRENT_BLOCK is the key's current record, or the next one after it was read to its end;
 * with SION_CURRENT_POS nothing moves. SION_ABSOLUTE_POS counts over all records of the key. */
int sion_seek_key(int sid, uint64_t key, int entrynum, sion_int64 posinentry);
int sion_key_full_scan(int sid);
int sion_key_get_stat(int sid, uint64_t key, sion_key_stat_t *stat);
int sion_fread_key_iterator_reset(int sid);
int sion_fread_key_iterator_next(int sid, uint64_t *key, size_t *size);
int sion_key_list_iterator_reset(int sid);
int sion_key_list_iterator_next(int sid, uint64_t *key);

#ifdef __cplusplus
}
#endif

#endif
