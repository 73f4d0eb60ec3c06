/* Prints what libc's own walks find by the patterns, and below the folders, that it is given. */
#define _GNU_SOURCE
#include <errno.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>

static int count;

static int visit(const char *path, const struct stat *status, int kind, struct FTW *at)
{
    (void)path, (void)status, (void)kind, (void)at;
    count++;
    return 0;
}

static void walk(char *path)
{
    char *paths[] = {path, NULL};
    errno = count = 0;
    int walked = nftw(path, visit, 8, FTW_PHYS);
    printf("nftw %s %d %s\n", path, walked == 0 ? count : -1, strerrorname_np(errno));
    errno = 0;
    FTS *walk = fts_open(paths, FTS_PHYSICAL, NULL);
    printf("fts %s %d %s\n", path, walk != NULL, strerrorname_np(errno));
    if (walk != NULL)
        fts_close(walk);
}

static void match(const char *pattern)
{
    glob_t found;
    int failed = glob(pattern, 0, NULL, &found);
    printf("glob %s %d", pattern, failed);
    for (size_t i = 0; !failed && i < found.gl_pathc; i++)
        printf(" %s", found.gl_pathv[i]);
    printf("\n");
}

int main(int count, char **words)
{
    for (int i = 1; i < count; i++)
        if (strpbrk(words[i], "*.") != NULL)
            match(words[i]);
        else
            walk(words[i]);
    return 0;
}
