// Opens streams of libc's own once more, by name, in every mode, while others append to the file.
//   reopening, in the folder of the files
// Says on what was standard error what there is then.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAID = 3 };

static void show(const char *what, const char *name) {
    char text[200];
    int fd = open(name, O_RDONLY);
    ssize_t len = read(fd, text, sizeof text - 1);
    close(fd);
    text[len < 0 ? 0 : len] = 0;
    for (char *at = text; *at; at++) *at = *at == '\n' ? '|' : *at;
    dprintf(SAID, "%s [%s]\n", what, text);
}

static void put(const char *name, const char *text) {
    int fd = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0644);
    if (write(fd, text, strlen(text)) < 0) perror(name);
    close(fd);
}

static void use(FILE *stream, const char *mode, const char *name) {
    char command[64], text[64] = "none";
    snprintf(command, sizeof command, "echo child >>%s", name);
    if (*mode != 'r' || mode[1] == '+') {
        fputs("NEW", stream);
        fflush(stream);
    } else if (!fgets(text, sizeof text, stream)) {
        dprintf(SAID, "nothing is read\n");
    }
    dprintf(SAID, "at %ld, read %s\n", ftell(stream), text);
    show("  first", name);
    if (strchr(mode, '+')) {
        rewind(stream);
        dprintf(SAID, "read %s\n", fgets(text, sizeof text, stream) ? text : "nothing");
    }
    if (*mode == 'r' || system(command)) return;
    fseek(stream, 0, SEEK_CUR);
    fputs("MORE", stream);
    fflush(stream);
    show("  beside another", name);
}

static void reopen(FILE *stream, int which) {
    const char *modes[] = {"w",   "a",  "r+", "w+",  "a+", "wx",          "ae", "a+e",
                           "wex", "we", "r",  "acm", "z",  "a,ccs=UTF-8", "re"};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        char name[20];
        snprintf(name, sizeof name, "file.%d.%zu", which, i);
        put(name, "old content\n");
        errno = 0;
        FILE *found = freopen(name, modes[i], stream);
        dprintf(SAID, "%d %s: %s\n", which, modes[i], found ? "open" : strerror(errno));
        if (found) {
            int fd = fileno(found), append = fcntl(fd, F_GETFL) & O_APPEND;
            dprintf(SAID, "number %d, append %d, %d\n", fd, append, fcntl(fd, F_GETFD));
        }
        if (found && !strchr(modes[i], ',')) use(found, modes[i], name);
        show("  then", name);
        if (!freopen("/dev/null", "r+", stream)) dprintf(SAID, "no null\n");
    }
}

int main(void) {
    dup2(STDERR_FILENO, SAID);
    reopen(stdout, 1);
    reopen(stderr, 2);
    reopen(stdin, 0);
    put("log", "old\n");
    FILE *other = freopen("log", "a", tmpfile());
    if (!other || fputs("new\n", other) < 0 || fclose(other)) dprintf(SAID, "no log\n");
    show("of a temporary file's stream", "log");
    FILE *again = freopen("log", "a", tmpfile());
    if (again && fputs("what waits is in the old file\n", again) >= 0) again = freopen("log", "w", again);
    if (!again || fputs("new\n", again) < 0 || fclose(again)) dprintf(SAID, "not again\n");
    show("of a stream with what waits", "log");
    close(STDIN_FILENO);
    FILE *closed = freopen("log", "r", stdin);
    dprintf(SAID, "closed before: %d %c\n", closed ? fileno(closed) : -1, closed ? getc(closed) : '-');
    return 0;
}
