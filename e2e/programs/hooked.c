/* Opens folders, in a process that may have hook.c preloaded. */
#include <dirent.h>
#include <stdio.h>

int main(void)
{
    for (int i = 0; i < 3; i++) {
        DIR *folder = opendir(".");
        printf("%s\n", folder && readdir(folder) ? "opened" : "failed");
        closedir(folder);
    }
    return 0;
}
