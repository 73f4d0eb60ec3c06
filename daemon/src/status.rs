//! A daemon's status: the answer to every question.

use std::{
    collections::BTreeMap,
    path::Path,
    process,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use coalesce::Coalesce;
use executor::{Handle, lock};
use remote::Traffic;
use serde::Serialize;

use crate::{
    Config,
    config::{CORES_MAX, Remote},
    file_systems::FileSystem,
    mounts::Mount,
    node::{CoreReport, Mail, Node},
    remote_status::{Listening, RemoteStatus},
    samples::Samples,
    statistics::{Loss, Sample, Summary, Totals, peak_rss},
};

#[derive(Debug, Serialize)]
struct Status<'a> {
    pid: u32,
    version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'a str>,
    age_seconds: u64,
    sessions: usize,
    files: usize,
    cores: Vec<CoreReport>,
    staged_bytes: u64,
    peak_rss_bytes: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    file_systems: Vec<FileSystem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote: Option<&'a RemoteStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    serving: Option<ServingStatus<'a>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    multifiles: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    settings: &'a BTreeMap<String, String>,
    summary: Summary,
}

impl From<&Remote> for RemoteStatus {
    fn from(remote: &Remote) -> Self {
        let texts = |it: &Mount| (it.local.display().to_string(), it.remote.display().to_string());
        Self { servers: remote.name.clone(), maps: remote.mounts.iter().map(texts).collect() }
    }
}

#[derive(Debug, Serialize)]
struct ServingStatus<'a> {
    address: &'a str,
    connections: usize,
    requests: u64,
    bytes_read: u64,
    bytes_written: u64,
}

impl<'a> From<&'a Listening> for ServingStatus<'a> {
    fn from(listening: &'a Listening) -> Self {
        let connections = listening.traffic.strong_count().saturating_sub(1);
        let traffic = listening.traffic.upgrade();
        let count = |of: fn(&Traffic) -> &AtomicU64| {
            traffic.as_deref().map_or(0, |traffic| of(traffic).load(Ordering::Relaxed))
        };
        Self {
            address: &listening.address,
            connections,
            requests: count(|traffic| &traffic.requests),
            bytes_read: count(|traffic| &traffic.bytes_read),
            bytes_written: count(|traffic| &traffic.bytes_written),
        }
    }
}

/// The multifiles of a daemon by the folders whose files they hold, as programs of its node name
/// these, or, of a server, those of its own.
pub(crate) fn multifiles(config: &Config) -> BTreeMap<String, String> {
    let Some(serving) = &config.serving else { return BTreeMap::new() };
    let text = |path: &Path| path.display().to_string();
    match config.own() {
        Some(own) => RemoteStatus::from(own).maps,
        None => {
            let pairs = serving.coalesced.iter().map(|Coalesce { folder, multifile, .. }| {
                let below = folder.strip_prefix("/").unwrap_or(folder);
                (text(&serving.root.join(below)), text(multifile))
            });
            pairs.collect()
        }
    }
}

/// The state of the daemon as a JSON document, with the multifiles that could not be closed.
pub(crate) async fn document(node: &Node, loss: Loss) -> Vec<u8> {
    let reports = node.ask_all(Mail::Report).await;
    let totals = totals(node, reports.iter().map(|report| &report.totals));
    let status = Status {
        pid: process::id(),
        version: env!("CARGO_PKG_VERSION"),
        command: node.command.as_deref(),
        age_seconds: node.started_at.elapsed().as_secs(),
        sessions: node.session_count(),
        files: lock(&node.registry).count(),
        staged_bytes: reports.iter().map(|report| report.staged_bytes).sum(),
        peak_rss_bytes: peak_rss(),
        file_systems: FileSystem::all(&node.shared().costs),
        remote: node.remote.as_ref(),
        serving: node.listening.get().map(ServingStatus::from),
        multifiles: &node.multifiles,
        settings: &node.settings,
        summary: loss.told_in(totals.summary()),
        cores: reports.into_iter().map(|report| report.core).collect(),
    };
    serde_json::to_vec(&status).unwrap_or_default()
}

/// Everything counted, with the samples of it.
pub(crate) fn summary(node: &Node) -> Summary {
    let ended: Vec<_> = (0..CORES_MAX).map(|core| node.ended(core)).collect();
    let samples = lock(&node.samples).as_ref().map_or_else(Vec::new, Samples::taken);
    let traced = node.trace.as_ref().map_or_else(Vec::new, |trace| trace.kept());
    let file_systems = FileSystem::all(&node.shared().costs);
    Summary { samples, traced, file_systems, ..totals(node, ended.iter()).summary() }
}

/// Takes samples of the counters until the daemon stops, if there is a report.
pub(crate) async fn take_samples(node: Arc<Node>, handle: Handle) {
    while !node.is_stopping() {
        take_sample(&node).await;
        let Some(period) = lock(&node.samples).as_ref().map(Samples::period) else { return };
        handle.sleep(period).await;
    }
}

/// Takes one sample, if there is a report.
pub(crate) async fn take_sample(node: &Node) {
    if lock(&node.samples).is_none() {
        return;
    }
    let reports = node.ask_all(Mail::Report).await;
    let totals = totals(node, reports.iter().map(|report| &report.totals)).summary();
    let pending = reports.iter().map(|report| report.staged_bytes).sum();
    let at_ms = u64::try_from(node.started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
    let mut samples = lock(&node.samples);
    let Some(samples) = samples.as_mut() else { return };
    let busy = samples.busy(reports.iter().map(|report| report.working).collect());
    samples.push(Sample {
        at_ms,
        written: totals.bytes_written,
        read: totals.bytes_read,
        staged: totals.bytes_staged,
        pending,
        busy,
    });
}

/// Everything counted so far: by the sessions of every executor, by processes without one.
pub(crate) fn totals<'a>(node: &Node, of_executors: impl Iterator<Item = &'a Totals>) -> Totals {
    let mut totals = Totals::default();
    of_executors.for_each(|sessions| totals.add(sessions));
    totals.add_counters(node.shared().counters.iter().map(|word| word.load(Ordering::Relaxed)));
    totals
}
