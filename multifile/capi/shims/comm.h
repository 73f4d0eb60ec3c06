/*
 * A communicator as a context of sion_group.h, and which physical file each of its processes gets.
 *
 * The communicator is the program's own, not a duplicate: only collective operations are called on
 * it, from inside collective calls, and those cannot be mistaken for the program's. Duplicating it
 * would cost one more collective call for each open. So the program keeps it until it has closed
 * the file, and its error handler decides what becomes of MPI's own errors.
 */
#ifndef COMM_H
#define COMM_H

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "sion_group.h"

/* No file: the open refuses it on all ranks, even if only one has it. */
static const sion_group_place NO_PLACE = {-1, 0, -1, 0};

/* What the processes of a communicator tell each other before some of them share a file. */
typedef struct {
    int leader;  /* lowest rank of the process's local communicator; -1 if there is none */
    int threads; /* that take part in this process */
} comm_card;

/* Whether the mode string asks to write: as in the core, "w" wins over "r". */
static inline int mode_writes(const char *mode) {
    while (mode != NULL) {
        size_t len = strcspn(mode, ",=");
        if ((len == 1 && *mode == 'w') ||
            (len == 2 && (strncmp(mode, "wb", len) == 0 || strncmp(mode, "bw", len) == 0)))
            return 1;
        mode = strchr(mode, ',');
        mode = mode == NULL ? NULL : mode + 1;
    }
    return 0;
}

/* Whether the mode string has this key, with a value or without. */
static inline int mode_has(const char *mode, const char *key) {
    while (mode != NULL) {
        size_t len = strcspn(mode, ",=");
        if (len == strlen(key) && strncmp(mode, key, len) == 0)
            return 1;
        mode = strchr(mode, ',');
        mode = mode == NULL ? NULL : mode + 1;
    }
    return 0;
}

/* The lowest rank in `global` of the processes of `*local`, without communication. */
static inline int comm_leader(MPI_Comm global, const MPI_Comm *local) {
    if (local == NULL || *local == MPI_COMM_NULL)
        return -1;
    int size, leader = -1;
    MPI_Group ours, all;
    MPI_Comm_size(*local, &size);
    MPI_Comm_group(*local, &ours);
    MPI_Comm_group(global, &all);
    for (int i = 0; i < size; i++) {
        int rank;
        MPI_Group_translate_ranks(ours, 1, &i, all, &rank);
        if (rank != MPI_UNDEFINED && (leader < 0 || rank < leader))
            leader = rank;
    }
    MPI_Group_free(&ours);
    MPI_Group_free(&all);
    return leader;
}

/* The cards of all processes in the order of their ranks, for the caller to free. Collective. */
static inline comm_card *comm_cards(MPI_Comm comm, comm_card mine, int size) {
    comm_card *cards = malloc((size_t)size * sizeof *cards);
    /* A process without eight bytes for each other one can neither take part nor say so. */
    if (cards == NULL || MPI_Allgather(&mine, 2, MPI_INT, cards, 2, MPI_INT, comm) != MPI_SUCCESS)
        MPI_Abort(comm, 1);
    return cards;
}

/* One file for each local communicator, numbered in the order of their leaders. */
static inline sion_group_place comm_place(const comm_card *cards, int rank, int size,
                                          const MPI_Comm *local) {
    sion_group_place place = {0, 0, 0, 0};
    for (int i = 0; i < size; i++) {
        if (cards[i].leader < 0)
            return NO_PLACE;
        place.numfiles += cards[i].leader == i;
        place.filenumber += cards[i].leader == i && i < cards[rank].leader;
    }
    MPI_Comm_rank(*local, &place.lrank);
    MPI_Comm_size(*local, &place.lsize);
    return place;
}

#endif
