/* unpack FILE HOW: writes the stream of every task to a file named after its index. */
#include "check.h"

static void put(int task, int sid, FILE *fp, int stdio) {
    char name[32], bytes[1000];
    sprintf(name, "%d", task);
    FILE *out = fopen(name, "wb");
    CHECK(out != NULL);
    if (stdio) {
        while (!sion_feof(sid)) {
            sion_int64 left = sion_bytes_avail_in_block(sid);
            while (left > 0) {
                size_t part = left < 1000 ? (size_t)left : 1000;
                CHECK(fread(bytes, 1, part, fp) == part);
                CHECK(fwrite(bytes, 1, part, out) == part);
                left -= (sion_int64)part;
            }
        }
    } else {
        for (size_t n; (n = sion_fread(bytes, 1, sizeof bytes, sid)) > 0;)
            CHECK(fwrite(bytes, 1, n, out) == n);
        CHECK(sion_last_error() == SION_ERR_NONE && sion_feof(sid) == 1);
    }
    fclose(out);
}

int main(int argc, char **argv) {
    int ntasks;
    FILE *fp = NULL;
    if (argc != 3)
        return 2;
    int stdio = strcmp(argv[2], "stdio") == 0;
    int sid = open_tasks(argv[1], "br", &ntasks, stdio ? &fp : NULL);
    CHECK(sid >= 0);
    if (strcmp(argv[2], "rank") == 0) {
        CHECK(sion_close(sid));
        for (int task = 0; task < ntasks; task++) {
            sion_int64 chunk;
            sion_int32 fsblksize;
            sid = sion_open_rank(argv[1], "br", &chunk, &fsblksize, &task, NULL);
            CHECK(sid >= 0);
            put(task, sid, NULL, 0);
            CHECK(sion_close(sid));
        }
        return 0;
    }
    for (int task = 0; task < ntasks; task++) {
        CHECK(sion_seek_fp(sid, task, 0, 0, stdio ? &fp : NULL));
        put(task, sid, fp, stdio);
    }
    CHECK(sion_close(sid));
    return 0;
}
