/* Threads that write files of their own, and one that writes and reads a stream. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { THREADS = 4, LINES = 500 };

static void *write_lines(void *number)
{
    char name[32];
    snprintf(name, sizeof name, "lines.%d", *(int *)number);
    int file = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0644);
    for (int line = 0; line < LINES; line++)
        dprintf(file, "%d\n", line);
    close(file);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        if (pthread_create(&threads[i], NULL, write_lines, &numbers[i]) != 0)
            return 1;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    FILE *stream = fopen("stream", "w+");
    for (int line = 0; line < LINES; line++)
        fprintf(stream, "line %d\n", line);
    rewind(stream);
    char first[16];
    struct stat status;
    if (fgets(first, sizeof first, stream) == NULL || stat("lines.3", &status) != 0)
        return 1;
    printf("%s%lld\n", first, (long long)status.st_size);
    return fclose(stream) == 0 ? 4 : 1;
}
