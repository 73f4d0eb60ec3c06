/* Maps memory and a file once libc's mmap has been patched: see patch.c. Status 77 where it cannot
 * be. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int patch(void);
int mapped_count(void);

int main(void)
{
    int file = open("file", O_RDWR | O_CREAT, 0644);
    write(file, "mapped", 6);
    if (patch() != 0) {
        puts("libc's code cannot be patched");
        return 77;
    }
    int before = mapped_count();
    char *map = mmap(NULL, 6, PROT_READ, MAP_PRIVATE, file, 0);
    mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("%d\n", mapped_count() - before);
    printf("%.6s\n", map);
    return close(file);
}
