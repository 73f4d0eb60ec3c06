//! The figures and tables of the sources, and the cases that each is drawn from.

use super::Name;

/// A published system, and what of it is measured here.
pub(super) struct Publication {
    pub(super) title: &'static str,
    pub(super) figures: &'static [Figure],
}

/// A figure or table.
pub(super) struct Figure {
    pub(super) title: &'static str,
    /// The result that the source reported.
    pub(super) reported: &'static str,
    pub(super) bench: Name,
    pub(super) kind: Kind,
}

/// How it is drawn.
pub(super) enum Kind {
    /// A line for each series of these patterns over x, up to the source's largest x.
    Lines {
        patterns: &'static [&'static str],
        x: &'static str,
        /// The unit of its points.
        y: &'static str,
        until: &'static str,
    },
    /// A grid of each series: `X` to the right, `Y` down.
    Grids { patterns: &'static [&'static str], x: &'static str, y: &'static str },
    /// A row for each case of these patterns.
    Table { patterns: &'static [&'static str] },
}

use Kind::{Grids, Lines, Table};

/// All sources.
pub(super) const PUBLICATIONS: [Publication; 4] = [
    Publication {
        title: "Maeda, thesis, 2024: file I/O and communication on one thread",
        figures: &THESIS,
    },
    Publication { title: "Fukazawa et al., 2012: delegation of file I/O", figures: &DELEGATION },
    Publication {
        title: "Frings et al., SIONlib, SC'09: one multifile for many tasks",
        figures: &SIONLIB,
    },
    Publication { title: "Tanabe et al., Fujitsu: polling in the idle loop", figures: &IDLE },
];

const BANDWIDTH: Kind = Grids {
    patterns: &[
        "write/Y/sequential/qdX/S",
        "write/Y/random/qdX/S",
        "read/Y/sequential/qdX/S",
        "read/Y/random/qdX/S",
    ],
    x: "calls in flight",
    y: "size of a call",
};

const THESIS: [Figure; 4] = [
    Figure {
        title: "Chapter 2: bandwidth by size and depth, MB/s",
        reported: "io_uring is the fastest engine at any depth above 1.",
        bench: Name::File,
        kind: BANDWIDTH,
    },
    Figure {
        title: "Chapter 2: bandwidth per CPU, MB for each CPU second",
        reported: "io_uring moves most bytes for the CPU time it takes.",
        bench: Name::File,
        kind: Grids {
            patterns: &[
                "write/Y/sequential/qdX/S/cpu",
                "write/Y/random/qdX/S/cpu",
                "read/Y/sequential/qdX/S/cpu",
                "read/Y/random/qdX/S/cpu",
            ],
            x: "calls in flight",
            y: "size of a call",
        },
    },
    Figure {
        title: "Chapter 3: packets received and written by one thread, MB/s, disk",
        reported: "Up to 16 KiB the integrated server was 60 to 70 % slower than fio.",
        bench: Name::Rpc,
        kind: Lines {
            patterns: &["S/X/tcp", "S/X"],
            x: "size of a packet",
            y: "MB/s",
            until: "1MiB",
        },
    },
    Figure {
        title: "Chapter 3: the same in memory",
        reported: "Up to 16 KiB the integrated server was 60 to 70 % slower than fio.",
        bench: Name::Rpc,
        kind: Lines {
            patterns: &["S/X/tcp/tmpfs", "S/X/tmpfs"],
            x: "size of a packet",
            y: "MB/s",
            until: "1MiB",
        },
    },
];

const DELEGATION: [Figure; 3] = [
    Figure {
        title: "Table 4: where the time of a delegated request goes, ns",
        reported: "4.88 us a request in all.",
        bench: Name::Delegate,
        kind: Table { patterns: &["overhead/S", "overhead/total/S"] },
    },
    Figure {
        title: "Fig. 4: writes by size, MB/s",
        reported: "Delegated writes of 4 KiB were 2.5x slower, those of 16 MB 1.2x slower.",
        bench: Name::Delegate,
        kind: Lines {
            patterns: &["write/X/native/S/spin", "write/X/delegate/S", "write/X/hybrid/S"],
            x: "size of a call",
            y: "MB/s",
            until: "256MiB",
        },
    },
    Figure {
        title: "Fig. 4: reads by size, MB/s",
        reported: "Delegated reads of 4 KiB were 2.5x slower, those of 16 MB as fast.",
        bench: Name::Delegate,
        kind: Lines {
            patterns: &["read/X/native/S/spin", "read/X/delegate/S", "read/X/hybrid/S"],
            x: "size of a call",
            y: "MB/s",
            until: "256MiB",
        },
    },
];

const SIONLIB: [Figure; 5] = [
    Figure {
        title: "Fig. 3: creating files, ms",
        reported: "65,536 tasks create theirs 9.8x faster.",
        bench: Name::Tasks,
        kind: Lines { patterns: &["create/X/S/S"], x: "tasks", y: "ms", until: "65536" },
    },
    Figure {
        title: "Fig. 4: several physical files, and a single one, MiB/s",
        reported: "One physical file for several tasks reaches the bandwidth of one for each.",
        bench: Name::Tasks,
        kind: Table { patterns: &["write/S/files/S", "write/S/files/one/S"] },
    },
    Figure {
        title: "Fig. 5: bandwidth against task-local files, MiB/s",
        reported: "0.97 of the bandwidth of task-local files.",
        bench: Name::Tasks,
        kind: Table {
            patterns: &[
                "write/S/plain/S",
                "write/S/stdio/S",
                "write/S/plain/S/S",
                "write/S/stdio/S/S",
            ],
        },
    },
    Figure {
        title: "Fig. 6: a simulation's particles, MiB/s",
        reported: "Faster than through rank 0 from a few million particles on.",
        bench: Name::Tasks,
        kind: Lines {
            patterns: &["particles/X/write/S", "particles/X/read/S"],
            x: "particles",
            y: "MiB/s",
            until: "4000000",
        },
    },
    Figure {
        title: "Table 1: start and writes of a tracing tool",
        reported: "Activation of 65,536 tasks: 253.5 s with task-local files, 25.9 s with one \
                   multifile, at 3589 and 3476 MB/s.",
        bench: Name::Tasks,
        kind: Table { patterns: &["trace/16ranks/S/S", "trace/16ranks/S/S/S"] },
    },
];

const IDLE: [Figure; 3] = [
    Figure {
        title: "Fig. 5 to 10: mean latency of a write of 8 KiB, ns",
        reported: "47 % lower than interrupt-driven in the best cell.",
        bench: Name::Idle,
        kind: Grids {
            patterns: &["write/8KiB/Yjobs/qdX/S/mean"],
            x: "writes in flight",
            y: "jobs",
        },
    },
    Figure {
        title: "Fig. 5 to 10: writes a second",
        reported: "1.77x in the best cell; the peak 1.41x, 1.42 M.",
        bench: Name::Idle,
        kind: Grids {
            patterns: &["write/8KiB/Yjobs/qdX/S/iops"],
            x: "writes in flight",
            y: "jobs",
        },
    },
    Figure {
        title: "Fig. 5 to 10: poll-idle by the other policies",
        reported: "Better in all 49 cells; more than 1 is better here, of cells below fewer.",
        bench: Name::Idle,
        kind: Table {
            patterns: &["iops/S", "iops/S/S", "latency_cut/S", "latency_cut/S/S", "cells/below/S"],
        },
    },
];
