//! Costs of file systems, in words.

use daemon::FileSystem;

use crate::size::Size;

/// Opens and closes that take less together are of a file system that has no need of fewer files.
const DEAR_NS: u64 = 100_000;
/// Time of all of them together from which on it is worth a word.
const MUCH_NS: u64 = 1_000_000_000;

/// Opens of files that took a job long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opens<'a> {
    /// Where the file system is mounted, or its device.
    pub(crate) place: &'a str,
    /// True if they were opened with `O_CREAT`.
    pub(crate) creates: bool,
    pub(crate) files: u64,
    /// Time of an open and a close.
    pub(crate) each_ns: u64,
}

impl<'a> Opens<'a> {
    /// Those that took longest, if that is much.
    pub(crate) fn dear(systems: &'a [FileSystem]) -> Option<Self> {
        let all = systems.iter().flat_map(|system| {
            [("open", false), ("create", true)].map(|(kind, creates)| {
                let of = |name: &str| system.costs.get(name).copied();
                let files = of(&format!("{kind}_calls"))?;
                let close_ns = of("close_call_ns").unwrap_or(0);
                let each_ns = of(&format!("{kind}_call_ns"))?.saturating_add(close_ns);
                Some(Self { place: place(system), creates, files, each_ns })
            })
        });
        let dear = all.flatten().filter(|it| it.each_ns >= DEAR_NS && it.all_ns() >= MUCH_NS);
        dear.max_by_key(Self::all_ns)
    }

    fn all_ns(&self) -> u64 {
        self.files.saturating_mul(self.each_ns)
    }

    /// A flag or command that spares them.
    pub(crate) const fn advice(&self) -> &'static str {
        if self.creates {
            "'--coalesce DIR=FILE' keeps DIR in one file"
        } else {
            "'kakehi multifile join' makes them one file"
        }
    }

    /// A sentence without its end.
    pub(crate) fn told(&self) -> String {
        let (files, doing) = (about(self.files), if self.creates { "making" } else { "opening" });
        let (all, each) = (time(self.all_ns()), time(self.each_ns));
        format!("{doing} {files} on {} took {all}, {each} each", self.place)
    }
}

/// The costs of a file system, on a line.
pub(crate) fn line(system: &FileSystem) -> String {
    let of = |name: &str| system.costs.get(name).copied();
    let known = FileSystem::kinds().filter_map(|kind| {
        let call = of(&format!("{kind}_call_ns")).map(time);
        let rate = of(&format!("{kind}_bytes_per_s"));
        let rate = rate.map(|len| format!("{}/s", Size(len).approximate()));
        let both: Vec<_> = [call, rate].into_iter().flatten().collect();
        (!both.is_empty()).then(|| format!("{kind} {}", both.join(" or ")))
    });
    let known: Vec<_> = known.collect();
    match known.is_empty() {
        true => String::new(),
        false => format!("costs     on {}: {}\n", place(system), known.join(", ")),
    }
}

fn place(system: &FileSystem) -> &str {
    system.mount.as_deref().unwrap_or(&system.device)
}

/// Many files, of which not all were counted: the number's first two digits.
fn about(files: u64) -> String {
    let unit = 10_u64.saturating_pow(files.checked_ilog10().unwrap_or(0).saturating_sub(1));
    format!("{} files", files / unit * unit)
}

/// A time, in the unit that suits it.
fn time(ns: u64) -> String {
    let (unit, name) = match ns {
        0..1_000_000 => (1_000, "us"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    match ns / unit {
        whole @ 100.. => format!("{whole} {name}"),
        whole => format!("{whole}.{} {name}", ns % unit * 10 / unit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(mount: Option<&str>, costs: &[(&str, u64)]) -> FileSystem {
        let costs = costs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        FileSystem { device: "0:52".to_owned(), mount: mount.map(str::to_owned), costs }
    }

    #[test]
    fn file_system_is_a_line_with_what_is_known() {
        let known =
            [("write_call_ns", 81_340), ("write_bytes_per_s", 2 << 30), ("sync_call_ns", 9)];
        let expected = "costs     on /lustre: write 81.3 us or 2GiB/s, sync 0.0 us\n";
        assert_eq!(line(&system(Some("/lustre"), &known)), expected);
        let known = [("create_call_ns", 1_430_000)];
        assert_eq!(line(&system(None, &known)), "costs     on 0:52: create 1.4 ms\n");
        assert_eq!(line(&system(None, &[])), "");
    }

    #[test]
    fn times_have_the_unit_that_suits_them() {
        let times = [700, 99_990, 430_000, 1_250_000, 3_000_000_000].map(time);
        assert_eq!(times, ["0.7 us", "99.9 us", "430 us", "1.2 ms", "3.0 s"]);
    }

    #[test]
    fn opens_that_took_long_are_told_and_others_are_not() {
        let costs = |each_ns, files| {
            let made = [("create_call_ns", each_ns), ("create_calls", files)];
            let more = [("close_call_ns", 200_000), ("open_call_ns", 1), ("open_calls", 9)];
            vec![system(Some("/lustre"), &[&made[..], &more[..]].concat())]
        };
        let systems = costs(230_000, 10_240);
        let dear = Opens::dear(&systems).expect("4.4 s");
        assert_eq!(dear.told(), "making 10000 files on /lustre took 4.4 s, 430 us each");
        assert_eq!(Opens::dear(&costs(230_000, 1_000)), None, "not much");
        let mut cheap = costs(20_000, 1_000_000);
        cheap[0].costs.insert("close_call_ns".to_owned(), 5_000);
        assert_eq!(Opens::dear(&cheap), None, "not dear");
        assert_eq!(Opens::dear(&costs(u64::MAX, u64::MAX)).map(|it| it.files), Some(u64::MAX));
    }
}
