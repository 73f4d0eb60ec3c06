// Names without links, of a folder: by `realpath` and what is like it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *folder;

// What is below the folder is told from there.
static void tell(const char *name, char *found) {
    size_t len = strlen(folder);
    if (!found) printf("%s: %s\n", name, strerror(errno));
    else printf("%s: %s\n", name, strncmp(found, folder, len) ? found : found + len);
}

static void real(const char *name) {
    char room[PATH_MAX];
    tell(name, realpath(name, room));
    char *made = canonicalize_file_name(name);
    tell(name, made);
    free(made);
}

static void make_links(void) {
    char outside[PATH_MAX], inside[PATH_MAX];
    snprintf(outside, sizeof outside, "%s.back", folder);
    snprintf(inside, sizeof inside, "%s/c", folder);
    const char *links[][2] = {
        {"c", "s"}, {"s", "s2"}, {"d/e", "de"}, {"../x", "d/e/up"}, {"nothing", "nowhere"},
        {"loop", "loop"}, {"c/", "slash"}, {"d/", "folder"}, {inside, "absolute"},
        {"/dev/null", "away"}, {outside, "back"}, {"/", "root"}, {".", "here"},
    };
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) symlink(links[i][0], links[i][1]);
    symlink(inside, outside);
}

// Forty links are followed, and no more.
static void chain(void) {
    char name[32], last[32] = "c";
    for (int i = 1; i <= 41; i++) {
        snprintf(name, sizeof name, "link%d", i);
        symlink(last, name);
        strcpy(last, name);
    }
    real("link40");
    real("link41");
}

// What a link leads to is longer than any path.
static void long_names(void) {
    char deep[3000] = "";
    while (strlen(deep) < 2500) strcat(deep, "d/../");
    strcat(deep, "c");
    symlink(deep, "far");
    real("far");
    memset(deep, 'n', 300);
    deep[300] = 0;
    real(deep);
}

int main(int argc, char **argv) {
    if (argc != 2 || chdir(argv[1]) < 0) return 1;
    folder = getcwd(NULL, 0);
    close(open("c", O_RDWR | O_CREAT, 0644));
    mkdir("d", 0755);
    mkdir("d/e", 0755);
    close(open("d/x", O_RDWR | O_CREAT, 0644));
    make_links();
    const char *names[] = {
        "s", "s2", "de", "de/..", "de/../x", "de/up", "nowhere", "loop", "c/", "c/x", "c/.", "c/..",
        "c/../d", "no", "no/..", "d//./e/../x", "", ".", "..", "s/.", "s/", "slash", "folder",
        "folder/x", "absolute", "away", "back", "root", "root/dev/null", "here/here/c", "d/no/x",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) real(names[i]);
    chain();
    long_names();
    if (chdir("de") < 0) return 1;
    real("up");
    real("..");
    real("../../s");
    real("../x");
    return 0;
}
