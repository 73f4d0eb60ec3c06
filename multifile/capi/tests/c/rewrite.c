/* rewrite SOURCE TARGET MODE: writes the same blocks of the same tasks to another multifile. */
#include "check.h"

int main(int argc, char **argv) {
    int ntasks, nfiles, maxblocks, *ranks = NULL;
    sion_int32 fsblksize;
    sion_int64 *chunks = NULL, skip, table, *counts, *lens, most = 1;
    if (argc != 4)
        return 2;
    int in = sion_open(argv[1], "br", &ntasks, &nfiles, &chunks, &fsblksize, &ranks, NULL);
    CHECK(in >= 0);
    CHECK(sion_get_locations(in, &ntasks, &maxblocks, &skip, &table, NULL, NULL, &counts, &lens));
    int out = sion_open(argv[2], argv[3], &ntasks, &nfiles, &chunks, &fsblksize, &ranks, NULL);
    CHECK(out >= 0);
    for (int task = 0; task < ntasks; task++)
        most = chunks[task] > most ? chunks[task] : most;
    char *bytes = (char *)malloc((size_t)most);
    for (int block = 0; block < maxblocks; block++)
        for (int task = 0; task < ntasks; task++) {
            size_t len = (size_t)lens[block * ntasks + task];
            if (block >= counts[task])
                continue;
            CHECK(sion_seek(in, task, block, 0) && sion_fread(bytes, 1, len, in) == len);
            CHECK(sion_seek(out, task, SION_CURRENT_BLK, SION_CURRENT_POS));
            /* What does not fit the rest of a chunk starts a new one. */
            if (block > 0)
                CHECK(sion_ensure_free_space(out, chunks[task]));
            CHECK(sion_fwrite(bytes, 1, len, out) == len);
        }
    CHECK(sion_close(in) && sion_close(out));
    free(bytes);
    free(chunks);
    free(ranks);
    return 0;
}
