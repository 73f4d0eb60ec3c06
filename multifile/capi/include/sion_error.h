/*
 * Why the last call failed. SIONlib could only print it; this library tells the program, and prints
 * nothing unless the environment variable SION_COMPAT is set to 1.
 */
#ifndef SION_ERROR_H
#define SION_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    SION_ERR_NONE = 0,
    SION_ERR_HANDLE = 1,       /* no such handle, or not one for this call */
    SION_ERR_ARGUMENT = 2,     /* an argument that cannot be; the text says which */
    SION_ERR_MODE = 3,         /* the mode string, or a call the mode does not allow */
    SION_ERR_POSITION = 4,     /* no such task, block, position, key, or record */
    SION_ERR_CHUNK = 5,        /* more contiguous bytes than a chunk holds */
    SION_ERR_IO = 6,           /* the operating system refused; see sion_last_errno */
    SION_ERR_DAMAGED = 7,      /* the file contradicts the format or itself */
    SION_ERR_UNCLOSED = 8,     /* the file was never closed; it can be repaired */
    SION_ERR_GROUP = 9,        /* communication between ranks failed, or they disagree */
    SION_ERR_POISONED = 10,    /* an earlier write of this handle failed */
    SION_ERR_INTERNAL = 11     /* a fault of this library */
} sion_error_t;

/* All per thread, and only meaningful after a call of this thread that failed. */
sion_error_t sion_last_error(void);
/* Never NULL; valid until the next failing call of this thread. */
const char *sion_last_error_text(void);
/* The error number of the operating system, 0 if it gave none. */
int sion_last_errno(void);
/* The lowest rank that failed when all ranks failed together, else -1. */
int sion_last_error_rank(void);

#ifdef __cplusplus
}
#endif

#endif
