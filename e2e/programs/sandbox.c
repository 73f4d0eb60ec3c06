/* Forbids itself to open files (Landlock), and tries what is forbidden.
 * With an argument it does so first, and becomes itself without one. Status 77 without Landlock. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void say(const char *what, int failed)
{
    printf("%s: %s\n", what, failed < 0 ? strerror(errno) : "done");
}

static void allow(int rules, const char *path)
{
    struct landlock_path_beneath_attr below = {.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE};
    below.parent_fd = open(path, O_PATH | O_CLOEXEC);
    syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &below, 0);
    close(below.parent_fd);
}

static int restrict_self(void)
{
    struct landlock_ruleset_attr all = {
        .handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE |
                             LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE,
    };
    int rules = syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0);
    if (rules < 0) return -1;
    const char *allowed[] = {"/usr", "/lib", "/lib64", "/proc", "/dev", "/etc/ld.so.cache"};
    for (unsigned i = 0; i < sizeof allowed / sizeof *allowed; i++) allow(rules, allowed[i]);
    allow(rules, "/proc/self/exe");
    if (getenv("LD_PRELOAD")) allow(rules, getenv("LD_PRELOAD"));
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) return -1;
    return syscall(SYS_landlock_restrict_self, rules, 0);
}

static void try(void)
{
    struct stat found;
    say("read", open("secret", O_RDONLY));
    say("make", open("made", O_WRONLY | O_CREAT, 0644));
    say("remove", unlink("secret"));
    say("look", stat("secret", &found));
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "confined") == 0) {
        try();
        return 0;
    }
    int open_before = open("before", O_WRONLY | O_CREAT, 0644);
    close(open("secret", O_WRONLY | O_CREAT, 0644));
    write(open_before, "written before, ", 16);
    if (restrict_self() != 0) {
        perror("landlock");
        return 77;
    }
    say("write", write(open_before, "and after", 9));
    try();
    fflush(stdout);
    if (argc > 1) execl("/proc/self/exe", argv[0], "confined", NULL);
    return argc > 1;
}
