/* Writes a file and aborts. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int main(void)
{
    int fd = open("file", O_WRONLY | O_CREAT, 0644);
    for (int i = 0; i < 100; i++)
        if (write(fd, "sixteen bytes ..", 16) != 16) return 1;
    abort();
}
