/* Asynchronous requests of POSIX, whose ends are asked for, waited for, and told by a signal. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t told;

static void handler(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    told += info->si_code == SI_ASYNCIO ? info->si_value.sival_int : 1000;
}

static void finish(const char *what, struct aiocb *request)
{
    const struct aiocb *list[] = {request};
    while (aio_error(request) == EINPROGRESS) aio_suspend(list, 1, NULL);
    int error = aio_error(request);
    printf("%s: %s, %zd\n", what, strerror(error), aio_return(request));
}

int main(void)
{
    char text[32] = "";
    int file = open("file", O_RDWR | O_CREAT, 0644), reader = open("file", O_RDONLY);
    struct aiocb first = {.aio_fildes = file, .aio_buf = "asynchronous", .aio_nbytes = 12};
    struct aiocb second = {.aio_fildes = file, .aio_buf = "!", .aio_nbytes = 1, .aio_offset = 12};
    struct aiocb back = {.aio_fildes = reader, .aio_buf = text, .aio_nbytes = sizeof text};
    struct aiocb all = {.aio_fildes = file}, wrong = {.aio_fildes = reader};
    sigaction(SIGUSR1, &(struct sigaction){.sa_sigaction = handler, .sa_flags = SA_SIGINFO}, NULL);
    second.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
    second.aio_sigevent.sigev_signo = SIGUSR1;
    second.aio_sigevent.sigev_value.sival_int = 7;
    first.aio_sigevent.sigev_notify = back.aio_sigevent.sigev_notify = SIGEV_NONE;
    all.aio_sigevent.sigev_notify = wrong.aio_sigevent.sigev_notify = SIGEV_NONE;

    printf("%d\n", aio_write(&first));
    finish("write", &first);
    printf("%d\n", aio_write(&second));
    finish("write", &second);
    for (int i = 0; i < 1000 && !told; i++) usleep(10000);
    printf("told %d\n", told);
    printf("%d\n", aio_fsync(O_DSYNC, &all));
    finish("fsync", &all);
    printf("%d\n", aio_read(&back));
    finish("read", &back);
    puts(text);
    wrong.aio_buf = "x", wrong.aio_nbytes = 1;
    if (aio_write(&wrong) == 0) finish("to a reader", &wrong);

    first.aio_lio_opcode = second.aio_lio_opcode = LIO_WRITE;
    first.aio_buf = "ASYNC", first.aio_nbytes = 5;
    second.aio_sigevent.sigev_notify = SIGEV_NONE;
    struct aiocb *list[] = {&first, NULL, &second};
    printf("%d\n", lio_listio(LIO_WAIT, list, 3, NULL));
    finish("first", &first), finish("second", &second);
    memset(text, 0, sizeof text);
    pread(file, text, sizeof text, 0);
    puts(text);
    close(reader);
    return close(file);
}
