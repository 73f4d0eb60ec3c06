// Opens a stream once more, without a name, and uses it.
//   reopened FILE MODE [standard]
// FILE is written first. Says what could be read, or why the stream could not be opened. With a
// third argument the stream has the number of standard input.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char text[16] = "";
    if (argc > 3) close(0);
    FILE *file = argc > 2 ? fopen(argv[1], argc > 3 ? "w" : "w+") : NULL;
    if (!file || fputs("written", file) < 0) return 1;
    file = freopen(NULL, argv[2], file);
    if (!file) {
        printf("%s\n", strerror(errno));
        return 0;
    }
    if (*argv[2] != 'r') fputs(" once more", file);
    size_t len = fread(text, 1, sizeof text - 1, file);
    printf("read %zu %s, closed %d\n", len, text, fclose(file));
    return 0;
}
