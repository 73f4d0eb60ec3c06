/* Calls on names that the kernel refuses, or takes otherwise than they look, in the folder named.
 *
 *   names FOLDER         prints what each call answers
 *   names race FOLDER    opens a file with O_CREAT while a thread unlinks it: that never fails
 *   names enter FOLDER   enters folders of several modes: that asks for x, not for r
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#define SAY(call)                                                                                  \
    do {                                                                                           \
        errno = 0;                                                                                 \
        long answer = (call);                                                                      \
        printf("%s: %ld %s\n", #call, answer, answer < 0 ? strerror(errno) : "");                  \
    } while (0)

static void endings(void)
{
    char text[99];
    struct stat found;
    SAY(mkdir("new/.", 0755));
    SAY(mkdir("new/.//", 0755));
    SAY(rmdir("d/."));
    SAY(rmdir("d/.//"));
    SAY(rmdir("d/./"));
    SAY(remove("d/.//"));
    SAY(unlinkat(AT_FDCWD, "d/.//", AT_REMOVEDIR));
    SAY(rename("d2", "d/.//"));
    SAY(rename("d/./", "d3"));
    SAY(stat("d", &found));
    SAY(rmdir("new"));
    SAY(rmdir("d//"));
    SAY(mkdir("d", 0755));
    SAY(readlink("l/", text, sizeof text));
    SAY(readlink("l/.", text, sizeof text));
    SAY(unlink("l/"));
    SAY(rmdir("l/"));
    SAY(lstat("l/", &found));
    SAY(S_ISDIR(found.st_mode));
    SAY(unlink("f/."));
    SAY(stat("f/", &found));
    SAY(rename("f/", "g"));
    SAY(rename("f", "g/"));
    SAY(link("f/", "h"));
    SAY(link("f", "h/"));
    SAY(symlink("x", "y/"));
    SAY(mkdir("l/", 0755));
    SAY(chdir("f/."));
    SAY(access("f/.", 0));
    SAY(open("f/", O_RDONLY));
    SAY(open("new/", O_CREAT | O_RDWR, 0644));
    SAY(chmod("f/", 0644));
    SAY(truncate("f/", 0));
    SAY(open("l", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    SAY(open("l", O_RDONLY | O_NOFOLLOW));
}

static void no_names(void)
{
    char text[9];
    struct stat found;
    int folder = open(".", O_RDONLY | O_DIRECTORY);
    SAY(openat(folder, "", O_RDONLY));
    SAY(openat(folder, "", O_RDWR | O_CREAT, 0644));
    SAY(unlinkat(folder, "", 0));
    SAY(mkdirat(folder, "", 0755));
    SAY(fstatat(folder, "", &found, 0));
    SAY(fstatat(folder, "", &found, AT_EMPTY_PATH));
    SAY(renameat(folder, "", folder, "x"));
    SAY(faccessat(folder, "", 0, 0));
    SAY(readlinkat(folder, "", text, sizeof text));
    SAY(utimensat(folder, "", NULL, 0));
    close(folder);
}

static void no_folders(int folder)
{
    char text[9];
    struct stat found;
    SAY(fstatat(folder, "f", &found, 0));
    SAY(renameat(folder, "f", AT_FDCWD, "o"));
    SAY(renameat(AT_FDCWD, "f", folder, "o"));
    SAY(openat(folder, "f", O_RDONLY));
    SAY(openat(folder, "new", O_RDWR | O_CREAT, 0644));
    SAY(unlinkat(folder, "f", 0));
    SAY(mkdirat(folder, "new", 0777));
    SAY(linkat(folder, "f", AT_FDCWD, "new", 0));
    SAY(linkat(AT_FDCWD, "f", folder, "new", 0));
    SAY(symlinkat("x", folder, "new"));
    SAY(readlinkat(folder, "l", text, sizeof text));
    SAY(faccessat(folder, "f", 0, 0));
    SAY(fchmodat(folder, "f", 0644, 0));
    SAY(utimensat(folder, "f", NULL, 0));
}

static const char *volatile nameless;

static void times(void)
{
    struct stat found;
    struct timespec never[2] = {{0, -1}, {0, 0}}, ages[2] = {{0, 1000000000}, {0, 0}};
    struct timeval odd[2] = {{0, 1000000}, {0, 0}}, past[2] = {{5, 6}, {7, 8}};
    int file = open("f", O_RDWR);
    SAY(futimens(AT_FDCWD, NULL));
    SAY(futimens(-1, NULL));
    SAY(utimensat(AT_FDCWD, nameless, NULL, 0));
    SAY(utimensat(AT_FDCWD, "f", never, 0));
    SAY(utimensat(AT_FDCWD, "f", NULL, 0x4000));
    SAY(futimens(file, ages));
    SAY(futimes(file, odd));
    SAY(utimes("f", odd));
    SAY(lutimes("f", odd));
    SAY(lutimes("l", past));
    SAY(lstat("l", &found));
    SAY(found.st_mtim.tv_sec * 1000000000 + found.st_mtim.tv_nsec);
    close(file);
}

static atomic_int ends;

static void *unlink_again_and_again(void *name)
{
    while (!ends)
        unlink(name);
    return NULL;
}

static int race(char *name)
{
    pthread_t thread;
    int failed = 0, other = 0;
    pthread_create(&thread, NULL, unlink_again_and_again, name);
    for (int i = 0; i < 500; i++) {
        struct stat found;
        char byte = 0;
        int file = open(name, O_RDWR | O_CREAT, 0644);
        failed += file < 0;
        other += file >= 0 && (pwrite(file, "x", 1, 0) != 1 || pread(file, &byte, 1, 0) != 1 ||
                               byte != 'x' || fstat(file, &found) < 0 || found.st_size != 1);
        close(file);
    }
    ends = 1;
    pthread_join(thread, NULL);
    printf("%d failed, %d led elsewhere\n", failed, other);
    return failed + other != 0;
}

static void enter(void)
{
    static const int modes[] = {0100, 0300, 0311, 0400, 0600, 0700};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        int up = open(".", O_RDONLY | O_DIRECTORY);
        char name[9];
        snprintf(name, sizeof name, "%o", (unsigned)modes[i]);
        mkdir(name, 0700);
        chmod(name, (mode_t)modes[i]);
        int answer = chdir(name);
        printf("%s: enter %s\n", name, answer < 0 ? strerror(errno) : "ok");
        if (answer == 0 && fchdir(up) < 0)
            exit(2);
        int folder = open(name, O_RDONLY | O_DIRECTORY);
        printf("%s: read %s\n", name, folder < 0 ? strerror(errno) : "ok");
        close(folder);
        close(up);
        chmod(name, 0700);
        rmdir(name);
    }
}

int main(int count, char **words)
{
    if (count < 2 || chdir(words[count - 1]) < 0)
        return 2;
    if (count == 3 && strcmp(words[1], "race") == 0)
        return race("raced");
    if (count == 3) {
        enter();
        return 0;
    }
    mkdir("d", 0755);
    mkdir("d2", 0755);
    symlink("d", "l");
    close(open("f", O_CREAT | O_WRONLY, 0644));
    endings();
    no_names();
    int file = open("f", O_RDONLY);
    no_folders(-1);
    no_folders(-9);
    no_folders(777);
    no_folders(file);
    close(file);
    times();
    return 0;
}
