// Streams that are used for wide characters, and streams that are used again after that.
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <unistd.h>
#include <wchar.h>

static void show(const char *name) {
    char text[64] = "";
    FILE *file = fopen(name, "r");
    printf("%s: %zu bytes, %s\n", name, fread(text, 1, sizeof text - 1, file), text);
    fclose(file);
}

int main(void) {
    wchar_t line[32] = L"";
    setlocale(LC_ALL, "C.UTF-8");
    FILE *file = fopen("wide", "w+");
    printf("oriented %d", fwide(file, 0));
    printf(" wrote %d", fwprintf(file, L"%ls %d\n", L"w\u00ef" L"de", 5));
    printf(" put %d", fputwc(L'x', file) == L'x');
    printf(" oriented %d bytes %d\n", fwide(file, 0) > 0, fputs("no", file));
    printf("at %ld", ftell(file));
    rewind(file);
    printf(" read %d %ls", fgetws(line, 32, file) != NULL, line);
    fseek(file, 0, SEEK_END);
    fputws(L"end", file);
    file = freopen("wide2", "w", file);
    fputs("bytes", file);
    file = freopen(NULL, "a", file);
    fputws(L" wide", file);
    printf("closed %d\n", fclose(file));
    show("wide");
    show("wide2");
    file = fopen("wide", "a");
    fputws(L"+", file);
    fclose(file);
    file = fopen("wide", "a");
    fputs("-", file);
    printf("oriented %d\n", fwide(file, 1) < 0);
    fclose(file);
    show("wide");
    int fd = open("wide5", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    write(fd, "cut off again", 13);
    file = fopen("wide5", "w,ccs=UTF-8");
    fputws(L"n\u00ef" L"w", file);
    fclose(file);
    close(fd);
    show("wide5");
    fputws(L"left", fopen("wide3", "w"));
    return 0;
}
