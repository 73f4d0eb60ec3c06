//! What a daemon says of itself: the answer to every question.

use std::{process, sync::atomic::Ordering};

use serde::Serialize;

use crate::{
    core::Core,
    mail::lock,
    node::{CoreReport, Mail, Node},
    remote::{Mount, Mounts},
    statistics::{Summary, Totals, peak_rss},
};

#[derive(Debug, Serialize)]
struct Status {
    pid: u32,
    version: &'static str,
    sessions: usize,
    files: usize,
    /// `LOCAL=REMOTE` of every folder that is a server's.
    maps: Vec<String>,
    cores: Vec<CoreReport>,
    staged_bytes: u64,
    peak_rss_bytes: u64,
    summary: Summary,
}

/// The state of the daemon as a JSON document.
pub(crate) async fn document(core: &Core<Mounts>) -> Vec<u8> {
    let node = &core.node;
    let map = |Mount { local, remote }: &Mount| format!("{}={}", local.display(), remote.display());
    let reports = node.ask_all(Mail::Report).await;
    let status = Status {
        pid: process::id(),
        version: env!("CARGO_PKG_VERSION"),
        sessions: node.session_count(),
        files: lock(&node.registry).count(),
        maps: core.storage.mounts().iter().map(map).collect(),
        staged_bytes: reports.iter().map(|report| report.staged_bytes).sum(),
        peak_rss_bytes: peak_rss(),
        summary: totals(node, reports.iter().map(|report| &report.totals)).summary(),
        cores: reports.into_iter().map(|report| report.core).collect(),
    };
    serde_json::to_vec(&status).unwrap_or_default()
}

/// Everything counted so far: by the sessions of every executor, and by processes without one.
pub(crate) fn totals<'a>(node: &Node, of_executors: impl Iterator<Item = &'a Totals>) -> Totals {
    let mut totals = Totals::default();
    of_executors.for_each(|sessions| totals.add(sessions));
    totals.add_counters(node.shared().counters.iter().map(|word| word.load(Ordering::Relaxed)));
    totals
}
