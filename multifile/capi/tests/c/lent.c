/* What a program is lent, streams and descriptors, and what it does with it; argv[1] says which. */
#include "check.h"

enum { FSBLK = 512 };

/* A stream of the program's own goes on after the handle. */
static void second(void) {
    char bytes[8] = {0};
    int sid = create_tasks("a.sion", "bw", 1, 4096, FSBLK, NULL);
    CHECK(sid >= 0);
    FILE *own = fopen("a.sion", "r+b");
    CHECK(own != NULL && sion_set_second_fp(sid, own));
    CHECK(fputs("first", own) >= 0 && sion_optimize_fp_buffer(sid));
    CHECK(sion_unset_second_fp(sid) && sion_close(sid));
    CHECK(fseek(own, 2048, SEEK_SET) == 0 && fputs("behind", own) >= 0);
    CHECK(fseek(own, 2048, SEEK_SET) == 0 && fread(bytes, 1, 6, own) == 6);
    CHECK(strcmp(bytes, "behind") == 0 && fclose(own) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 2 && strcmp(argv[1], "second") == 0);
    second();
    return 0;
}
