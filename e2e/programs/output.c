// Appends to a file, and prints, by turns.
//   output FILE COUNT
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    FILE *file = argc == 3 ? fopen(argv[1], "a") : NULL;
    if (file == NULL) return 1;
    for (int i = 0; i < atoi(argv[2]); i++) {
        fprintf(file, "file %d\n", i);
        fflush(file);
        printf("output %d\n", i);
        fflush(stdout);
    }
    return fclose(file) != 0;
}
