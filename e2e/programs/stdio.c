// Streams in every mode, and everything that is done with them.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void show(const char *name) {
    FILE *file = fopen(name, "r");
    int byte;
    printf("%s:", name);
    if (!file) {
        printf(" %s\n", strerror(errno));
        return;
    }
    while ((byte = getc(file)) != EOF) printf(byte == '\n' ? "|" : "%c", byte);
    printf("\n");
    fclose(file);
}

static FILE *must_open(const char *name, const char *mode) {
    FILE *file = fopen(name, mode);
    if (!file) printf("fopen %s %s: %s\n", name, mode, strerror(errno));
    return file;
}

static void modes(void) {
    const char *all[] = {"w", "w+", "a", "a+", "r", "r+", "wx", "wex", "rb", "rb+", "r+b", "wb", "ab+", "re", "z", "", "w,ccs=UTF-8"};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        FILE *file = fopen("modes", all[i]);
        if (!file) {
            printf("%s: %s\n", all[i], strerror(errno));
            continue;
        }
        int cloexec = fcntl(fileno(file), F_GETFD), flags = fcntl(fileno(file), F_GETFL);
        printf("%s: at %ld, cloexec %d, flags %o\n", all[i], ftell(file), cloexec, flags);
        errno = 0;
        int written = fprintf(file, "<%s>", all[i]);
        printf("  wrote %d, error %d\n", written, ferror(file) != 0);
        printf("  at %ld\n", ftell(file));
        clearerr(file);
        char got[8] = "";
        if (fseek(file, 0, SEEK_SET)) printf("  seek: %s\n", strerror(errno));
        size_t len = fread(got, 1, 4, file);
        printf("  read %zu '%.*s', error %d, eof %d\n", len, (int)len, got, ferror(file) != 0, feof(file) != 0);
        printf("  close %d\n", fclose(file));
        show("modes");
    }
}

static void calls(void) {
    FILE *file = must_open("calls", "w+");
    struct stat st;
    printf("fileno ok %d\n", fileno(file) > 2 && fileno(file) == fileno_unlocked(file));
    fprintf(file, "line %d %s\n", 1, "one");
    fputs("yz\n", file);
    fputc('x', file);
    putc_unlocked('q', file);
    fwrite("abcdef\n", 1, 7, file);
    printf("tell %ld\n", ftell(file));
    fflush(file);
    fstat(fileno(file), &st);
    printf("size %ld\n", (long)st.st_size);
    rewind(file);
    char line[100];
    while (fgets(line, sizeof line, file)) printf("got %s", line);
    printf("eof %d error %d\n", feof(file), ferror(file));
    rewind(file);
    int number = 0;
    char word[10];
    printf("scanned %d: %d %s\n", fscanf(file, "line %d %9s", &number, word), number, word);
    int byte = getc(file);
    printf("getc %d ungetc %d", byte, ungetc('Z', file));
    printf(" again %c %c\n", getc_unlocked(file), getc(file));
    fseek(file, -3, SEEK_END);
    printf("tell %ld\n", ftell(file));
    fseek(file, -1, SEEK_CUR);
    printf("tell %ld %c\n", ftell(file), getc(file));
    fpos_t place;
    fgetpos(file, &place);
    fputs("END", file);
    fsetpos(file, &place);
    printf("from place %c\n", getc(file));
    fseeko(file, 20000, SEEK_SET);
    fputs("far", file);
    fflush(file);
    fstat(fileno(file), &st);
    printf("size %ld\n", (long)st.st_size);
    char *text = NULL;
    size_t room = 0;
    rewind(file);
    printf("getline %zd", getline(&text, &room, file));
    printf(" getdelim %zd\n", getdelim(&text, &room, 'x', file));
    free(text);
    ftruncate(fileno(file), 5);
    fclose(file);
    show("calls");
}

static void buffers(void) {
    static char own[1 << 16];
    struct {
        const char *name;
        char *buffer;
        int kind;
        size_t size;
    } all[] = {{"own", own, _IOFBF, sizeof own}, {"none", NULL, _IONBF, 0}, {"line", NULL, _IOLBF, 0}, {"small", own, _IOFBF, 7}};
    for (int i = 0; i < 4; i++) {
        FILE *file = must_open(all[i].name, "w");
        printf("setvbuf %d\n", setvbuf(file, all[i].buffer, all[i].kind, all[i].size));
        for (int n = 0; n < 2000; n++) fprintf(file, "%d,%s", n, n % 10 ? "" : "\n");
        struct stat st;
        stat(all[i].name, &st);
        // An unbuffered and a line-buffered stream have written; how much the others have is theirs.
        if (i == 1 || i == 2) printf("size %ld\n", (long)st.st_size);
        fclose(file);
        stat(all[i].name, &st);
        printf("size %ld\n", (long)st.st_size);
    }
    FILE *big = must_open("big", "w");
    for (int n = 0; n < 100; n++) fwrite(own, 1, sizeof own - 1, big);
    printf("tell %ld\n", ftell(big));
    fclose(big);
}

static void reopened(void) {
    FILE *file = must_open("first", "w");
    fputs("to first\n", file);
    int before = fileno(file);
    FILE *again = freopen("second", "w+", file);
    printf("same stream %d, same number %d\n", again == file, fileno(again) == before);
    fputs("to second\n", again);
    fseek(again, 3, SEEK_SET);
    printf("read %c\n", getc(again));
    again = freopen("first", "r", again);
    char line[50];
    printf("gets %s", fgets(line, sizeof line, again));
    printf("puts %d error %d\n", fputs("no", again), ferror(again) != 0);
    again = freopen("first", "a", again);
    printf("at the end %ld", ftell(again));
    printf(" %d", fseek(again, -2, SEEK_CUR));
    printf(" %ld\n", ftell(again));
    fputs("more\n", again);
    printf("tell %ld\n", ftell(again));
    again = freopen(NULL, "r", again);
    printf("null: %d\n", again != NULL);
    if (again) printf("gets %s", fgets(line, sizeof line, again));
    errno = 0;
    FILE *none = freopen("no/such/file", "r", again);
    printf("missing: %d %s\n", none == NULL, strerror(errno));
    show("first");
    show("second");
    FILE *out = must_open("third", "w");
    fputs("third\n", out);
    out = freopen("fourth", "r", out);
    printf("empty: %d %s\n", out == NULL, strerror(errno));
    show("third");
}

// What `setvbuf` was told holds for one file: the next has a buffer of libc's own.
static void reopened_with_another_buffer(void) {
    char *own = malloc(5000);
    FILE *file = must_open("lent", "w");
    setvbuf(file, own, _IOFBF, 5000);
    fputs("one", file);
    file = freopen("returned", "w", file);
    fprintf(file, "hello world");
    memset(own, '#', 5000);
    free(own);
    fclose(file);
    show("lent");
    show("returned");
    for (int kind = _IOLBF; kind <= _IONBF; kind++) {
        struct stat st;
        file = must_open("at once", "w+");
        setvbuf(file, NULL, kind, 0);
        fputs("1\n", file);
        file = freopen("buffered", "w+", file);
        fputs("2\n", file);
        stat("at once", &st);
        printf("of the first %ld,", (long)st.st_size);
        stat("buffered", &st);
        printf(" of the second %ld\n", (long)st.st_size);
        rewind(file);
        ungetc('u', file);
        file = freopen("buffered", "r", file);
        printf("read %c\n", getc(file));
        file = freopen("no/such/file", "w", file) ? NULL : file;
        int put = fputs("no", file);
        printf("missing: %d %s\n", put, strerror(errno));
        printf("closed %d\n", fclose(file));
    }
    show("buffered");
}

static void over_descriptors(void) {
    int fd = open("over", O_RDWR | O_CREAT | O_TRUNC, 0600);
    write(fd, "direct\n", 7);
    FILE *file = fdopen(dup(fd), "w");
    fputs("stream\n", file);
    fflush(file);
    write(fd, "direct again\n", 13);
    fputs("stream again\n", file);
    fclose(file);
    file = fdopen(fd, "a");
    printf("append %d\n", (fcntl(fd, F_GETFL) & O_APPEND) != 0);
    fseek(file, 0, SEEK_SET);
    fputs("at the end\n", file);
    fclose(file);
    printf("closed %d\n", close(fd) == -1 && errno == EBADF);
    fd = open("over", O_RDONLY);
    errno = 0;
    file = fdopen(fd, "w");
    printf("wrong mode %d %s\n", file == NULL, strerror(errno));
    file = fdopen(-1, "w");
    printf("no number %d %s\n", file == NULL, strerror(errno));
    close(fd);
    show("over");
    // One that appends already stays where it is, whoever has opened it.
    fd = open("over", O_WRONLY | O_APPEND);
    lseek(fd, 3, SEEK_SET);
    file = fdopen(dup(fd), "a");
    printf("at %ld %ld\n", ftell(file), (long)lseek(fd, 0, SEEK_CUR));
    fclose(file);
    file = fdopen(fd, "a");
    printf("at %ld %ld\n", ftell(file), (long)lseek(fd, 0, SEEK_CUR));
    fputs("more\n", file);
    printf("at %ld\n", ftell(file));
    fclose(file);
    fd = open("over", O_WRONLY);
    lseek(fd, 3, SEEK_SET);
    file = fdopen(fd, "a");
    printf("at %ld %ld\n", ftell(file), (long)lseek(fd, 0, SEEK_CUR));
    fclose(file);
    show("over");
}

// A stream that only reads what its descriptor has written.
static void read_back(void) {
    char line[30];
    int fd = open("back", O_RDWR | O_CREAT | O_TRUNC, 0600);
    write(fd, "zero one two", 12);
    FILE *file = fdopen(dup(fd), "r");
    printf("at %ld\n", ftell(file));
    printf("end %d\n", getc(file) == EOF);
    fclose(file);
    lseek(fd, 5, SEEK_SET);
    file = fdopen(fd, "r");
    printf("at %ld\n", ftell(file));
    printf("'%s'\n", fgets(line, sizeof line, file));
    write(fd, " three", 6);
    clearerr(file);
    printf("end %d\n", getc(file) == EOF);
    rewind(file);
    printf("all '%s'\n", fgets(line, sizeof line, file));
    int written = fputs("no", file);
    printf("wrote %d %s\n", written, strerror(errno));
    fclose(file);
    // The descriptor is written only when the stream is there.
    fd = open("later", O_RDWR | O_CREAT | O_TRUNC, 0600);
    file = fdopen(fd, "r");
    write(fd, "later", 5);
    printf("end %d\n", getc(file) == EOF);
    printf("at %ld\n", (long)lseek(fd, 0, SEEK_CUR));
    fclose(file);
    show("back");
    show("later");
}

// What reads as much as a buffer has at once finds what was written behind the end; what reads less
// is told of the end until it clears that.
static void grown(void) {
    static char own[1024], room[1 << 16];
    FILE *volatile nobody = NULL;
    printf("nothing %zu\n", fread(room, 1, 0, nobody));
    volatile size_t large = sizeof room, buffer = sizeof own;
    int fd = open("grown", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    for (int lent = 0; lent <= 1; lent++) {
        FILE *file = must_open("grown", "r+");
        if (lent) setvbuf(file, own, _IOFBF, sizeof own);
        size_t (*read)(void *, size_t, size_t, FILE *) = lent ? fread_unlocked : fread;
        for (int i = 0; i < 3; i++) {
            write(fd, "line\n", 5);
            printf("read %zu,", fread(room, 1, large, file));
            write(fd, "line\n", 5);
            printf(" %zu, eof %d\n", fread_unlocked(room, 1, large, file), feof(file) != 0);
        }
        write(fd, "line\n", 5);
        printf("few %zu,", fread(room, 1, buffer - 1, file));
        printf(" many %zu,", read(room, 1, lent ? buffer : large, file));
        write(fd, room, large);
        printf(" and %zu, eof %d,", read(room, large / 2, 1, file), feof(file) != 0);
        printf(" and %zu, eof %d\n", read(room, large / 2, 2, file), feof(file) != 0);
        clearerr(file);
        printf("none %zu, eof %d\n", read(room, 1, 1, file), feof(file) != 0);
        fclose(file);
    }
    close(fd);
}

static void failures(void) {
    FILE *full = fopen("/dev/full", "w");
    fputs("x", full);
    int flushed = fflush(full);
    printf("flush %d %s, error %d\n", flushed, strerror(errno), ferror(full) != 0);
    fputs("y", full);
    int closed = fclose(full);
    printf("close %d %s\n", closed, strerror(errno));
    FILE *none = fopen("no/such/file", "w");
    printf("missing %d %s\n", none == NULL, strerror(errno));
    mkdir("folder", 0700);
    none = fopen("folder", "w");
    printf("folder %d %s\n", none == NULL, strerror(errno));
    FILE *file = must_open("gone", "w");
    fputs("lost", file);
    close(fileno(file));
    errno = 0;
    closed = fclose(file);
    printf("closed beneath: %d %s\n", closed, strerror(errno));
}

static void standard_numbers(void) {
    fflush(stdout);
    int saved = dup(1), fd = open("redirected", O_RDWR | O_CREAT | O_TRUNC, 0644);
    write(fd, "before ", 7);
    dup2(fd, 1);
    printf("printed ");
    fflush(stdout);
    write(fd, "between ", 8);
    printf("printed again ");
    fflush(stdout);
    write(1, "after", 5);
    close(fd);
    close(1);
    int again = open("first-free", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    printf("number %d", again);
    fflush(stdout);
    dup2(saved, 1);
    close(saved);
    show("redirected");
    show("first-free");
}

// Records that are read, written over in place, and read on behind.
static void updated(void) {
    char record[21], large[10000];
    FILE *file = must_open("updated", "w");
    for (int i = 0; i < 2000; i++) fprintf(file, "record %012d\n", i);
    fclose(file);
    file = must_open("updated", "r+");
    unsigned long sum = 0;
    for (int i = 0; fread(record, 1, 20, file) == 20; i++) {
        for (int at = 0; at < 20; at++) sum = sum * 31 + (unsigned char)record[at];
        if (i % 3) continue;
        fseek(file, i * 20L, SEEK_SET);
        fprintf(file, "RECORD %012d\n", i);
        fseek(file, 0, SEEK_CUR);
        if (i % 90 == 0) printf("at %ld\n", ftell(file));
    }
    memset(large, 'x', sizeof large);
    fseek(file, 1000, SEEK_SET);
    fwrite(large, 1, sizeof large, file);
    fseek(file, 0, SEEK_CUR);
    printf("read on %zu: %.20s at %ld\n", fread(record, 1, 20, file), record, ftell(file));
    fclose(file);
    printf("sum %lu\n", sum);
}

// A stream of libc's own goes on in what is put beneath it.
static void put_beneath(void) {
    FILE *log = must_open("/dev/null", "w");
    int fd = open("beneath", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    write(fd, "header\n", 7);
    printf("beneath %d\n", dup2(fd, fileno(log)) == fileno(log));
    fprintf(log, "line 1\n");
    fflush(log);
    write(fd, "between\n", 8);
    fprintf(log, "line 2\n");
    printf("closed %d %d\n", fclose(log), close(fd));
    show("beneath");
}

int main(void) {
    updated();
    standard_numbers();
    modes();
    calls();
    buffers();
    reopened();
    reopened_with_another_buffer();
    over_descriptors();
    put_beneath();
    read_back();
    grown();
    failures();
    FILE *leftover = must_open("leftover", "w");
    fputs("flushed at exit\n", leftover);
    FILE *standard = freopen("standard", "w", stderr);
    fprintf(standard, "to standard error\n");
    return 0;
}
