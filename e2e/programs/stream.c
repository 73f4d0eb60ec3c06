/* Writes MIB times 1 MiB to FILE, words that tell their place, and syncs it: FILE MIB. */
#include <endian.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

enum { LEN = 1 << 20 };

int main(int count, char **words) {
    static uint64_t piece[LEN / 8];
    if (count != 3)
        return 2;
    int file = open(words[1], O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (file < 0)
        return 3;
    uint64_t word = 0;
    for (long left = atol(words[2]); left > 0; left--) {
        for (int i = 0; i < LEN / 8; i++)
            piece[i] = htole64(++word);
        if (write(file, piece, LEN) != LEN)
            return 4;
    }
    return fsync(file) || close(file) ? 5 : 0;
}
