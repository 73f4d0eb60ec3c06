/* A trace writer as OTF2 does it: one stream of records a location, over generic callbacks. */
#include "threads.h"

enum { FSBLK = 512, CHUNK = 1 << 10, CHUNKS = 7, LOCATIONS = 2 };

/* Length of trace chunk `i` of a location: from empty to several blocks. */
static long chunk_len(int location, int i) {
    return i == 3 ? 0 : 100L + 700L * i + location;
}

static void write_trace(struct rank *rank) {
    int me = rank->comm.rank;
    int sid = paropen(rank, "traces.sion", "bw,keyval=inline", 2, CHUNK, -1, NULL);
    CHECK(sid >= 0 && sion_get_keyval_mode(sid) == SION_KEYVAL_INLINE);
    for (int i = 0; i < CHUNKS; i++)
        for (int key = 0; key < LOCATIONS; key++) {
            int location = me * LOCATIONS + key;
            unsigned char *bytes = new_pattern(location, i, chunk_len(location, i));
            CHECK(sion_fwrite_key(bytes, (uint64_t)location << 40, 1,
                                  (size_t)chunk_len(location, i),
                                  sid) == (size_t)chunk_len(location, i));
            free(bytes);
        }
    CHECK(sion_generic_parclose(sid));
}

static void read_location(int sid, int location) {
    uint64_t key = (uint64_t)location << 40;
    unsigned char bytes[8192];
    sion_key_stat_t stat;
    long total = 0;
    for (int i = 0; i < CHUNKS; i++)
        total += chunk_len(location, i);
    CHECK(sion_key_get_stat(sid, key, &stat));
    CHECK(stat.key == key && stat.num_blocks == CHUNKS && stat.total_size == total);
    for (int i = CHUNKS - 1; i >= 0; i--) {
        if (chunk_len(location, i) == 0)
            continue;
        CHECK(sion_seek_key(sid, key, i, 0));
        size_t len = (size_t)chunk_len(location, i);
        CHECK(sion_fread_key(bytes, key, 1, sizeof bytes, sid) == len);
        CHECK(is_pattern(bytes, location, i, (long)len));
        /* Whole items only: what is left of the record stays. */
        CHECK(sion_seek_key(sid, key, i, 1));
        CHECK(sion_fread_key(bytes, key, len - 2, 5, sid) == 1);
        CHECK(sion_fread_key(bytes, key, 1, 5, sid) == 1);
        CHECK(bytes[0] == pattern(location, i + (long)len - 1));
        /* Then it is passed over. */
        CHECK(sion_seek_key(sid, key, i, (sion_int64)len - 1));
        int next = i + 1;
        while (next < CHUNKS && chunk_len(location, next) < 2)
            next++;
        CHECK(sion_fread_key(bytes, key, 2, 1, sid) == (next < CHUNKS));
        CHECK(next == CHUNKS || is_pattern(bytes, location, next, 2));
        CHECK(!sion_seek_key(sid, key, i, (sion_int64)len + 1));
    }
    CHECK(!sion_seek_key(sid, key, CHUNKS, 0) && !sion_seek_key(sid, 77, 0, 0));
    CHECK(sion_seek_key(sid, key, SION_ABSOLUTE_POS, 0));
    long read = 0;
    for (size_t n; (n = sion_fread_key(bytes, key, 1, 1000, sid)) > 0;)
        read += (long)n;
    CHECK(read == total);
}

static void read_trace(struct rank *rank) {
    int me = rank->comm.rank;
    uint64_t key;
    size_t size;
    int sid = paropen(rank, "traces.sion", "br,keyval=unknown", 2, 0, 0, NULL);
    CHECK(sid >= 0 && sion_get_keyval_mode(sid) == SION_KEYVAL_INLINE);
    CHECK(sion_key_full_scan(sid));
    int copy = sion_dup(sid, SION_DUP_RANK_KEY, -1, (uint64_t)(me * LOCATIONS) << 40);
    CHECK(copy >= 0);
    read_location(copy, me * LOCATIONS);
    read_location(sid, me * LOCATIONS + 1);
    for (int i = 0; i < LOCATIONS; i++)
        CHECK(sion_key_list_iterator_next(sid, &key) &&
              key == (uint64_t)(me * LOCATIONS + i) << 40);
    CHECK(!sion_key_list_iterator_next(sid, &key) && sion_key_list_iterator_reset(sid));
    CHECK(sion_key_list_iterator_next(sid, &key));
    for (int i = 0; i < CHUNKS * LOCATIONS; i++) {
        int location = me * LOCATIONS + i % LOCATIONS;
        CHECK(sion_fread_key_iterator_next(sid, &key, &size));
        CHECK(key == (uint64_t)location << 40);
        CHECK(size == (size_t)chunk_len(location, i / LOCATIONS));
    }
    CHECK(!sion_fread_key_iterator_next(sid, &key, &size) && sion_fread_key_iterator_reset(sid));
    CHECK(sion_dedup(copy) && sion_generic_parclose(sid));
}

/* Who reads a trace alone takes the tasks one after the other. */
static void read_alone(int ranks) {
    int ntasks;
    int sid = open_tasks("traces.sion", "br,keyval=unknown", &ntasks, NULL);
    CHECK(sid >= 0 && ntasks == ranks);
    for (int task = ntasks - 1; task >= 0; task--) {
        CHECK(sion_seek(sid, task, SION_CURRENT_BLK, SION_CURRENT_POS));
        read_location(sid, task * LOCATIONS);
    }
    CHECK(sion_close(sid));
}

int main(void) {
    int aid = new_api();
    run_ranks(5, aid, write_trace, NULL);
    run_ranks(5, aid, read_trace, NULL);
    read_alone(5);
    CHECK(sion_generic_free_api(aid));
    return 0;
}
