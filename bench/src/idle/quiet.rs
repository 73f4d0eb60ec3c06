//! The CPU time of the daemons that nobody has asked for anything in the quiet time.

use std::{path::Path, time::Duration};

use super::{Effort, Target, daemons::Daemons, fleet::Disk};
use crate::{process::pause, report::Report, spread::Spread};

const ROW: &str = "idle_cpu/quiet";
/// For how long the daemons were watched.
const WATCHED: &str = "idle_cpu/watched";
/// The default quiet time, and some.
const UNTIL_QUIET: Duration = Duration::from_millis(1500);

/// True if it is to be measured.
pub(super) fn is_wanted(effort: &Effort) -> bool {
    effort.only.wants([ROW, WATCHED])
}

/// Reports the share of one core that quiet daemons take.
pub(super) fn measure(report: &mut Report, effort: &Effort, target: Target, dir: &Path) {
    let share = watch(effort.watch, target, dir).map_err(|why| format!("{why:#}"));
    let one = |value| Spread { median: value, min: value, max: value };
    report.row(
        WATCHED,
        "s",
        share.as_ref().map(|_| one(effort.watch.as_secs_f64())).map_err(String::clone),
    );
    report.row(ROW, "%", share.map(one));
}

/// Reports that this could not be measured.
pub(super) fn skip(report: &mut Report, effort: &Effort, why: &str) {
    for (row, unit) in [(WATCHED, "s"), (ROW, "%")].into_iter().filter(|_| is_wanted(effort)) {
        report.row(row, unit, Err(why.to_owned()));
    }
}

fn watch(time: Duration, target: Target, dir: &Path) -> anyhow::Result<f64> {
    let disk = Disk::create(dir, 0)?;
    let daemons = Daemons::start("poll-idle", target, &disk, &[])?;
    pause(UNTIL_QUIET)?;
    let before = daemons.cpu_time()?;
    pause(time)?;
    let used = daemons.cpu_time()?.saturating_sub(before);
    Ok(100.0 * used.as_secs_f64() / time.as_secs_f64())
}
