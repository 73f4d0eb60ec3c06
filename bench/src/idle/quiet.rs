//! The CPU time of a daemon that nobody has asked for anything in the quiet time.

use std::time::Duration;

use rustix::event::{PollFd, Timespec, poll};

use super::Effort;
use crate::{kakehi::Daemon, report::Report, spread::Spread};

const ROW: &str = "idle_cpu/quiet";
/// The default quiet time, and some.
const UNTIL_QUIET: Duration = Duration::from_millis(1500);

/// Reports the share of one core that a quiet daemon takes.
pub(super) fn measure(report: &mut Report, effort: &Effort) {
    let share = watch(effort.watch).map_err(|why| format!("{why:#}"));
    let share = share.map(|share| Spread { median: share, min: share, max: share });
    report.row(ROW, "%", share);
}

/// Reports that this could not be measured.
pub(super) fn skip(report: &mut Report, why: &str) {
    report.row(ROW, "%", Err(why.to_owned()));
}

fn watch(time: Duration) -> anyhow::Result<f64> {
    let daemon = Daemon::start("poll-idle", None)?;
    pause(UNTIL_QUIET)?;
    let before = daemon.cpu_time()?;
    pause(time)?;
    let used = daemon.cpu_time()?.saturating_sub(before);
    Ok(100.0 * used.as_secs_f64() / time.as_secs_f64())
}

fn pause(time: Duration) -> anyhow::Result<()> {
    poll(&mut [] as &mut [PollFd<'_>; 0], Some(&Timespec::try_from(time)?))?;
    Ok(())
}
