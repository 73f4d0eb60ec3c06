/* Random programs over multifiles, and a model of what SIONlib's writers make of them. */
#ifndef RANDOM_H
#define RANDOM_H

#include "check.h"

enum { PROCS_MAX = 8, TASKS_MAX = 24, OPS_MAX = 8, NAME_LEN = 64 };

/* Who opens. */
enum kind { SERIAL, RANKS, MAPPED, LOCAL, TEAM, HYBRID, KINDS };
/* How the data of tasks is brought together. */
enum packing { ALIGNED, PACKED, MERGED, COPIED };

typedef struct {
    unsigned long seed;
    enum kind kind;
    enum packing packing;
    int keyed;
    int procs;    /* processes that take part */
    int threads;  /* of each */
    int tasks;
    int files;    /* asked for; 0: one for each communicator */
    int groups;   /* communicators */
    int by_turns; /* neighbours are in different ones */
    int fsblk;
    int collsize;
    int ops;
    sion_int64 chunk[TASKS_MAX]; /* asked for */
    int len[TASKS_MAX][OPS_MAX];
    int key[TASKS_MAX][OPS_MAX];
} plan;

static inline long below(unsigned long *state, long bound) {
    *state = *state * 6364136223846793005ul + 1442695040888963407ul;
    return (long)((*state >> 33) % (unsigned long)bound);
}

static inline void draw_packing(plan *p, unsigned long *state) {
    static const enum packing ways[] = {ALIGNED, ALIGNED, PACKED, MERGED, COPIED};
    p->packing = ways[below(state, p->kind == RANKS || p->kind == LOCAL ? 5 : 4)];
    if (p->kind == SERIAL || p->kind == MAPPED)
        p->packing = ALIGNED;
    p->keyed = p->packing == ALIGNED && p->kind != MAPPED && below(state, 3) == 0;
    p->collsize = below(state, 2) ? -1 : 1 + (int)below(state, 5);
    p->groups = 1 + (int)below(state, p->procs);
    p->by_turns = (int)below(state, 2);
    p->files = below(state, 2) ? 0 : 1 + (int)below(state, p->procs);
    if (p->kind == SERIAL || p->kind == TEAM)
        p->files = p->groups = 1;
    if (p->kind == LOCAL || p->packing == COPIED)
        p->files = 0;
    if (p->kind == MAPPED)
        p->files = 1 + (int)below(state, 2);
}

static inline void draw(plan *p, unsigned long seed) {
    unsigned long state = seed * 2654435761ul + 1;
    memset(p, 0, sizeof *p);
    below(&state, 2);
    p->seed = seed;
    p->kind = (enum kind)below(&state, KINDS);
    p->procs = p->kind == SERIAL || p->kind == TEAM ? 1 : 1 + (int)below(&state, PROCS_MAX);
    p->threads = 1;
    if (p->kind == TEAM || p->kind == HYBRID || (p->kind == LOCAL && below(&state, 2)))
        p->threads = 1 + (int)below(&state, 3);
    if (p->threads > 1 && p->kind != TEAM)
        p->procs = 1 + (p->procs - 1) % 4;
    draw_packing(p, &state);
    p->tasks = p->procs * p->threads;
    if (p->kind == SERIAL || p->kind == MAPPED)
        p->tasks = (p->procs > 2 ? p->procs : 2) + (int)below(&state, 8);
    p->fsblk = below(&state, 2) ? 512 : 1 + (int)below(&state, 700);
    p->ops = 1 + (int)below(&state, OPS_MAX);
    for (int task = 0; task < p->tasks; task++) {
        p->chunk[task] = 1 + below(&state, 2000);
        for (int op = 0; op < p->ops; op++) {
            p->len[task][op] = (int)below(&state, (long)p->chunk[task] + 1);
            p->key[task][op] = (int)below(&state, 4);
            if (p->keyed)
                p->len[task][op] = 1 + (int)below(&state, 5000);
        }
    }
}

static inline void mode_of(const plan *p, char *mode, int writes) {
    static const char *names[] = {"", ",collective", ",cmerge", ",buddy"};
    int len = sprintf(mode, "%s%s", writes ? "bw" : "br", names[p->packing]);
    if (p->keyed)
        sprintf(mode + len, ",keyval=inline");
    else if (p->packing == PACKED || p->packing == MERGED)
        sprintf(mode + len, ",collsize=%d", p->collsize);
}

/* The communicator of a process; they are numbered in the order of their first ones. */
static inline int color(const plan *p, int process) {
    return p->by_turns ? process % p->groups : process * p->groups / p->procs;
}

/* The file of a task, where processes have tasks of their own. */
static inline int file_of(const plan *p, int task) {
    int process = task / p->threads;
    if (p->files <= 0)
        return color(p, process);
    int file = process / (p->procs / p->files);
    return file < p->files ? file : p->files - 1;
}

/* Bytes that a task writes before an operation. */
static inline long offset(const plan *p, int task, int ops) {
    long sum = 0;
    for (int op = 0; op < ops; op++)
        sum += p->len[task][op];
    return sum;
}

static inline long up(long len, long unit) {
    return (len + unit - 1) / unit * unit;
}

/* The collector group of a task: its members in order, and how many; *sum is what they ask for. */
static inline int group_of(const plan *p, int task, int *members, long *sum) {
    int n = 0, count = 0, in_file[TASKS_MAX];
    long total = 0, bytes = 0;
    for (int other = 0; other < p->tasks; other++)
        if (file_of(p, other) == file_of(p, task)) {
            in_file[n++] = other;
            total += p->chunk[other];
        }
    long wished = p->collsize > 0 ? (n + p->collsize - 1) / p->collsize : n < 16 ? n : 4;
    long blocks = up(total, p->fsblk) / p->fsblk;
    long groups = wished < blocks ? wished : blocks;
    long average = up(total / (groups > 0 ? groups : 1), p->fsblk);
    for (int i = 0, found = 0; i < n; i++) {
        long own = p->chunk[in_file[i]];
        /* Only the first thread of a process collects. */
        int joins = i > 0 && (i % p->threads > 0 || bytes + own <= average);
        if (!joins && found)
            break;
        count = joins ? count : 0;
        bytes = joins ? bytes + own : own;
        members[count++] = in_file[i];
        found |= in_file[i] == task;
    }
    *sum = bytes;
    return count;
}

/* Bytes reserved for a task in each block. */
static inline long room(const plan *p, int task) {
    int members[TASKS_MAX];
    long sum, own = (long)p->chunk[task];
    if (p->packing != PACKED)
        return up(own, p->fsblk);
    int count = group_of(p, task, members, &sum);
    return members[count - 1] == task ? own + up(sum, p->fsblk) - sum : own;
}

/* Blocks of a task after some operations, and what they hold: what does not fit the rest of one
 * goes to the next. */
static inline int blocks_of(const plan *p, int task, int ops, int *lens) {
    int blocks = 1;
    lens[0] = 0;
    for (int op = 0; op < ops; op++) {
        if (lens[blocks - 1] + p->len[task][op] > room(p, task))
            lens[blocks++] = 0;
        lens[blocks - 1] += p->len[task][op];
    }
    return blocks;
}

/* What is read of a task, to be freed: merged, a collector has what each call brought, in the order
 * of its group. */
static inline long stream_of(const plan *p, int task, unsigned char **stream) {
    int members[TASKS_MAX] = {task}, count = 1;
    long sum, len = 0;
    if (p->packing == MERGED)
        count = group_of(p, task, members, &sum);
    *stream = malloc((size_t)TASKS_MAX * OPS_MAX * 2001 + 1);
    for (int op = 0; op < p->ops && members[0] == task; op++)
        for (int i = 0; i < count; i++) {
            long at = offset(p, members[i], op);
            for (long byte = 0; byte < p->len[members[i]][op]; byte++)
                (*stream)[len++] = pattern(members[i], at + byte);
        }
    return len;
}

#endif
