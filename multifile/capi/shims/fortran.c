/* The Fortran 77 procedures that work on every handle, and those of one process. */
#include "fortran.h"

SUBROUTINE(void, fsion_open,
           (const char *fname, const char *mode, int *ntasks, int *nfiles, sion_int64 *chunksizes,
            sion_int32 *fsblksize, int *globalranks, int *sid, size_t fname_len, size_t mode_len)) {
    char *name = c_string(fname, fname_len), *how = c_string(mode, mode_len);
    *sid = sion_open(name, how, ntasks, nfiles, &chunksizes, fsblksize, &globalranks, NULL);
    free(name);
    free(how);
}

/* The same for the module: for one task chunk size and rank are scalars there. */
ALSO(fsion_open, fsion_open_one);

SUBROUTINE(void, fsion_open_rank,
           (const char *fname, const char *mode, sion_int64 *chunksize, sion_int32 *fsblksize,
            int *rank, int *sid, size_t fname_len, size_t mode_len)) {
    char *name = c_string(fname, fname_len), *how = c_string(mode, mode_len);
    *sid = sion_open_rank(name, how, chunksize, fsblksize, rank, NULL);
    free(name);
    free(how);
}

SUBROUTINE(void, fsion_close, (const int *sid, int *ierr)) {
    *ierr = sion_close(*sid);
}

SUBROUTINE(void, fsion_write,
           (const void *data, const sion_int64 *size, const sion_int64 *nitems, const int *sid,
            sion_int64 *rc)) {
    *rc = (sion_int64)sion_fwrite(data, (size_t)*size, (size_t)*nitems, *sid);
}

ALSO(fsion_write, fsion_fwrite);
ALSO_TYPED(fsion_write, fsion_write);
ALSO_TYPED(fsion_write, fsion_fwrite);

SUBROUTINE(void, fsion_read,
           (void *data, const sion_int64 *size, const sion_int64 *nitems, const int *sid,
            sion_int64 *rc)) {
    *rc = (sion_int64)sion_fread(data, (size_t)*size, (size_t)*nitems, *sid);
}

ALSO(fsion_read, fsion_fread);
ALSO_TYPED(fsion_read, fsion_read);
ALSO_TYPED(fsion_read, fsion_fread);

SUBROUTINE(void, fsion_feof, (const int *sid, int *eof)) {
    *eof = sion_feof(*sid);
}

SUBROUTINE(void, fsion_seek,
           (const int *sid, const int *rank, const int *block, const sion_int64 *pos, int *ierr)) {
    *ierr = sion_seek(*sid, *rank, *block, *pos);
}

SUBROUTINE(void, fsion_ensure_free_space, (const int *sid, const sion_int64 *bytes, int *ierr)) {
    *ierr = sion_ensure_free_space(*sid, *bytes);
}

SUBROUTINE(void, fsion_flush, (const int *sid, int *ierr)) {
    *ierr = sion_flush(*sid);
}

SUBROUTINE(sion_int64, fsion_bytes_avail_in_block, (const int *sid)) {
    return sion_bytes_avail_in_block(*sid);
}

SUBROUTINE(sion_int64, fsion_get_position, (const int *sid)) {
    return sion_get_position(*sid);
}

/* Addresses, for programs with Cray pointers; the two below copy instead. */
SUBROUTINE(void, fsion_get_locations,
           (const int *sid, int *ntasks, int *maxblocks, sion_int64 *globalskip,
            sion_int64 *start_of_varheader, sion_int64 **chunksizes, sion_int64 **globalranks,
            sion_int64 **blockcount, sion_int64 **blocksizes, int *ierr)) {
    *ierr = sion_get_locations(*sid, ntasks, maxblocks, globalskip, start_of_varheader, chunksizes,
                               globalranks, blockcount, blocksizes);
}

SUBROUTINE(void, fsion_get_current_locations,
           (const int *sid, int *ntasks, sion_int64 **positions, sion_int64 **blocks, int *ierr)) {
    *ierr = sion_get_current_locations(*sid, ntasks, positions, blocks);
}

/* In the module the addresses are of type c_ptr, too. */
ALSO(fsion_get_locations, fsion_get_locations_ptr);
ALSO(fsion_get_current_locations, fsion_get_current_locations_ptr);

/* Chunk sizes and global ranks of all tasks; what is NULL is not wanted. */
static int copy_tasks(int sid, sion_int64 *chunksizes, sion_int64 *globalranks) {
    int ntasks, maxblocks;
    sion_int64 skip, end, *chunks = NULL, *ranks = NULL, *counts, *lengths;
    if (!sion_get_locations(sid, &ntasks, &maxblocks, &skip, &end, &chunks, &ranks, &counts,
                            &lengths))
        return SION_NOT_SUCCESS;
    if (chunks == NULL || ranks == NULL)
        return SION_NOT_SUCCESS;
    if (chunksizes != NULL)
        memcpy(chunksizes, chunks, (size_t)ntasks * sizeof *chunks);
    if (globalranks != NULL)
        memcpy(globalranks, ranks, (size_t)ntasks * sizeof *ranks);
    return SION_SUCCESS;
}

SUBROUTINE(void, fsion_get_chunksizes, (const int *sid, sion_int64 *chunksizes, int *ierr)) {
    *ierr = copy_tasks(*sid, chunksizes, NULL);
}

SUBROUTINE(void, fsion_get_globalranks, (const int *sid, sion_int64 *globalranks, int *ierr)) {
    *ierr = copy_tasks(*sid, NULL, globalranks);
}

SUBROUTINE(void, fsion_get_mapping_spec, (const int *sid, int *size, int *numfiles, int *ierr)) {
    sion_int32 *mapping;
    *ierr = sion_get_mapping(*sid, size, &mapping, numfiles);
}

/* `mapping` has room for as many pairs (file, rank in it) as the call above said. */
SUBROUTINE(void, fsion_get_mapping,
           (const int *sid, int *size, sion_int32 *mapping, int *numfiles, int *ierr)) {
    sion_int32 *pairs = NULL;
    *ierr = sion_get_mapping(*sid, size, &pairs, numfiles);
    if (*ierr == SION_SUCCESS && *size > 0 && pairs != NULL)
        memcpy(mapping, pairs, 2 * (size_t)*size * sizeof *pairs);
}

SUBROUTINE(void, fsion_get_fileno, (const int *sid, int *filenumber)) {
    *filenumber = sion_get_filenumber(*sid);
}

SUBROUTINE(void, fsion_get_file_endianness, (const int *sid, int *endianness)) {
    *endianness = sion_get_file_endianness(*sid);
}

ALSO(fsion_get_file_endianness, fsion_get_file_endianess);

SUBROUTINE(void, fsion_get_endianness, (int *endianness)) {
    *endianness = sion_get_endianness();
}

ALSO(fsion_get_endianness, fsion_get_endianess);

SUBROUTINE(void, fsion_endianness_swap_needed, (const int *sid, int *needed)) {
    *needed = sion_endianness_swap_needed(*sid);
}

SUBROUTINE(void, fsion_swap,
           (void *target, void *source, const int *size, const int *n, const int *do_swap)) {
    sion_swap(target, source, *size, *n, *do_swap);
}

/* In the module there is an `rc`, which is always good and may be absent. */
SUBROUTINE(void, fsion_swap_rc,
           (void *target, void *source, const int *size, const int *n, const int *do_swap,
            int *rc)) {
    sion_swap(target, source, *size, *n, *do_swap);
    if (rc != NULL)
        *rc = SION_SUCCESS;
}
