// Writes 16 MiB by 4 KiB from 200 KiB on, behind a hole.
//   skipped FILE
#include <fcntl.h>
#include <unistd.h>

int main(int argc, char **argv) {
    static char bytes[4096];
    int fd = argc == 2 ? open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;
    if (fd < 0 || lseek(fd, 200 << 10, SEEK_SET) < 0) return 2;
    for (int i = 0; i < 4096; i++)
        if (write(fd, bytes, sizeof bytes) != sizeof bytes) return 2;
    return close(fd) != 0;
}
