/*
 * What the Fortran 77 procedures share: they are C functions named in lower case with an underscore
 * behind, all arguments are addresses, and the lengths of strings follow the arguments (as size_t,
 * which gfortran, flang, and ifx pass). What C returns is the last argument.
 */
#ifndef FORTRAN_H
#define FORTRAN_H

#include <stdlib.h>
#include <string.h>

#include "sion.h"

/* Both flavours of a procedure: SUBROUTINE(void, fsion_close, (int *sid, int *ierr)) { ... } */
#define SUBROUTINE(type, name, arguments)                                                          \
    type name##_ arguments;                                                                        \
    extern __typeof__(name##_) l##name##_ __attribute__((alias(#name "_")));                       \
    type name##_ arguments

/* Another name of a procedure, in both flavours. */
#define ALSO(name, other)                                                                          \
    extern __typeof__(name##_) other##_ __attribute__((alias(#name "_")));                         \
    extern __typeof__(name##_) l##other##_ __attribute__((alias(#name "_")))

/* The names for data of one type that compilers without generic procedures were given. */
#define ALSO_TYPED(name, other)                                                                    \
    ALSO(name, other##_integer);                                                                   \
    ALSO(name, other##_character);                                                                 \
    ALSO(name, other##_real);                                                                      \
    ALSO(name, other##_double);                                                                    \
    ALSO(name, other##_complex);                                                                   \
    ALSO(name, other##_logical)

/* A C string without the blanks that fill Fortran's up, for the caller to free; NULL without
 * memory, which every open refuses together with the other ranks. */
static inline char *c_string(const char *text, size_t len) {
    while (len > 0 && text[len - 1] == ' ')
        len--;
    char *string = malloc(len + 1);
    if (string != NULL) {
        memcpy(string, text, len);
        string[len] = '\0';
    }
    return string;
}

/* Fills a Fortran string with a C string, which is freed, and blanks. */
static inline void fortran_string(char *text, size_t len, char *string) {
    size_t given = string == NULL ? 0 : strlen(string);
    given = given < len ? given : len;
    memset(text + given, ' ', len - given);
    if (given > 0)
        memcpy(text, string, given);
    free(string);
}

#endif
