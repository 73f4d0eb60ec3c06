//! `kakehi run --trace FILE.json`: sampled requests with the time of each step, as Perfetto and
//! `chrome://tracing` read them, and a table of the mean of each step.
//!
//! A request over a lane and a staged write have the same steps. The client records *accepted* and
//! *rung* ([`Call`]), whoever does the I/O *taken*, *issued*, and *completed* ([`Traced`]): the
//! daemon, or for its own staging log the client. Both sides sample, and what only one of them kept
//! is left out.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    path::Path,
};

use daemon::{Summary, Traced, TracedWork};
use serde_json::{Value, json};

use super::Target;
use crate::{failure::Failure, report, voice};

/// The times of a request, in their order.
const BOXES: [&str; 5] = ["accepted", "rung", "taken", "issued", "completed"];
/// The time between one box and the next.
const STEPS: [&str; 4] = ["accept", "wait", "prepare", "perform"];
/// The time from the last box to the answer, of a request.
const ANSWER: &str = "answer";

/// A trace to be written. Its file is opened before the program runs.
#[derive(Debug)]
pub(crate) struct Trace(Target);

/// A call as its client recorded it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Call {
    pid: u32,
    name: String,
    /// Bytes, of a staged write.
    len: Option<u64>,
    key: CallKey,
    accepted_ns: u64,
    rung_ns: u64,
    /// When the client had the answer, of a request.
    answered_ns: Option<u64>,
}

/// Names a call to both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum CallKey {
    Request {
        session: u32,
        lane: usize,
        seq: u32,
    },
    /// In the log of a slot, up to a position.
    Staged {
        session: u32,
        slot: u32,
        head: u64,
    },
}

/// A call with all its times.
#[derive(Clone, Debug)]
struct Whole {
    call: Call,
    boxes: [u64; BOXES.len()],
}

impl Trace {
    /// Begins the trace that will be at `path`.
    pub(crate) fn begin(path: &Path) -> Result<Self, Failure> {
        Target::begin(path, "--trace").map(Self)
    }

    /// For a run that joins a job, whose first run writes the trace.
    pub(crate) fn leave(self) {
        self.0.leave("the trace");
    }

    /// Writes the trace, and says what each step took.
    pub(crate) fn end(self, records: &[u8], summary: &Summary) -> Result<(), Failure> {
        let calls = whole(&String::from_utf8_lossy(records), &summary.traced);
        self.0.write(&document(&calls))?;
        voice::say(&said(&calls));
        voice::step(format_args!("the trace is in {}", self.0.path.display()));
        Ok(())
    }
}

/// The calls that both sides kept, by time.
fn whole(text: &str, traced: &[Traced]) -> Vec<Whole> {
    let (mut calls, mut requests, mut drains) = (Vec::new(), HashMap::new(), HashMap::new());
    let own = text.lines().filter_map(drain_of);
    for done in own.chain(traced.iter().copied()) {
        match done.work {
            TracedWork::Request { lane, seq } => {
                requests.entry((done.session, lane, seq)).or_insert_with(Vec::new).push(done);
            }
            TracedWork::Drain { slot, from, to } => {
                let of_slot = drains.entry((done.session, slot)).or_insert_with(Vec::new);
                of_slot.push((from, to, done));
            }
        }
    }
    for call in text.lines().filter_map(call_of) {
        let done: Vec<Traced> = match call.key {
            CallKey::Request { session, lane, seq } => {
                requests.get(&(session, lane, seq)).cloned().unwrap_or_default()
            }
            CallKey::Staged { session, slot, head } => {
                let of_slot = drains.get(&(session, slot)).map_or(&[][..], Vec::as_slice);
                let holds = of_slot.iter().filter(|(from, to, _)| *from < head && head <= *to);
                holds.map(|(.., done)| *done).collect()
            }
        };
        calls.extend(joined(call, &done));
    }
    calls.sort_by_key(|whole| whole.boxes);
    calls
}

/// A call with the first work that followed it: numbers of sessions and slots are used again.
fn joined(call: Call, done: &[Traced]) -> Option<Whole> {
    let since = done.iter().filter(|done| done.completed_ns >= call.accepted_ns);
    let done = since.min_by_key(|done| done.completed_ns)?;
    let times = [call.accepted_ns, call.rung_ns, done.taken_ns, done.issued_ns, done.completed_ns];
    let is_late = call.answered_ns.is_some_and(|answered| answered < done.completed_ns);
    // A daemon that polls may take a request before its client has looked at the clock.
    let mut next = done.completed_ns;
    let mut boxes = times;
    for time in boxes.iter_mut().rev() {
        next = next.min(*time);
        *time = next;
    }
    let is_one = next == call.accepted_ns && !is_late;
    is_one.then_some(Whole { call, boxes })
}

fn call_of(line: &str) -> Option<Call> {
    let fields: Vec<_> = line.split('\t').collect();
    let number = |text: &str| text.parse::<u64>().ok();
    let small = |text: &str| text.parse::<u32>().ok();
    let (name, len, key, pid, times) = match *fields {
        ["T", pid, session, lane, seq, name, ref times @ ..] => {
            let (session, lane, seq) = (small(session)?, lane.parse().ok()?, small(seq)?);
            (name, None, CallKey::Request { session, lane, seq }, pid, times)
        }
        ["W", pid, session, slot, head, len, ref times @ ..] => {
            let (session, slot, head) = (small(session)?, small(slot)?, number(head)?);
            let key = CallKey::Staged { session, slot, head };
            ("staged write", Some(number(len)?), key, pid, times)
        }
        _ => return None,
    };
    let (accepted, rung) = (times.first()?, times.get(1)?);
    Some(Call {
        pid: small(pid)?,
        name: name.to_owned(),
        len,
        key,
        accepted_ns: number(accepted)?,
        rung_ns: number(rung)?,
        answered_ns: times.get(2).and_then(|text| number(text)),
    })
}

fn drain_of(line: &str) -> Option<Traced> {
    let numbers = line.strip_prefix("D\t")?.split('\t').map(str::parse::<u64>);
    let numbers: Vec<_> = numbers.collect::<Result<_, _>>().ok()?;
    let [session, slot, from, to, taken_ns, issued_ns, completed_ns] = *numbers else {
        return None;
    };
    let (session, slot) = (session.try_into().ok()?, slot.try_into().ok()?);
    let work = TracedWork::Drain { slot, from, to };
    Some(Traced { session, work, taken_ns, issued_ns, completed_ns })
}

/// Mean times, ns, of the calls of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Means {
    count: usize,
    steps: [u64; STEPS.len()],
    /// `None` of staged writes, for whose end nobody waits.
    answer: Option<u64>,
}

impl Means {
    fn of(calls: &[Whole], name: &str) -> Self {
        let of_name = || calls.iter().filter(|whole| whole.call.name == name);
        let steps = std::array::from_fn(|step| {
            let time = |whole: &Whole| {
                Some(whole.boxes.get(step + 1)?.saturating_sub(*whole.boxes.get(step)?))
            };
            mean(of_name().filter_map(time)).unwrap_or(0)
        });
        let answer = |whole: &Whole| {
            let [.., completed] = whole.boxes;
            Some(whole.call.answered_ns?.saturating_sub(completed))
        };
        Self { count: of_name().count(), steps, answer: mean(of_name().filter_map(answer)) }
    }

    fn total(&self) -> u64 {
        self.steps.iter().sum::<u64>() + self.answer.unwrap_or(0)
    }
}

fn mean(times: impl Iterator<Item = u64>) -> Option<u64> {
    let (sum, count) = times.fold((0_u64, 0), |(sum, count), time| (sum + time, count + 1));
    sum.checked_div(count)
}

fn names(calls: &[Whole]) -> Vec<&str> {
    let mut number = BTreeMap::new();
    calls.iter().for_each(|it| *number.entry(it.call.name.as_str()).or_insert(0_usize) += 1);
    let mut names: Vec<_> = number.into_iter().collect();
    names.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
    names.into_iter().map(|(name, _)| name).collect()
}

/// Most kinds of calls that are told of.
const SAID: usize = 8;

/// The means, as a table for people.
fn said(calls: &[Whole]) -> String {
    if calls.is_empty() {
        return "kakehi: trace: no request was sampled\n".to_owned();
    }
    let heads = STEPS.into_iter().chain([ANSWER, "total"]);
    let heads: String = heads.map(|head| format!("{head:>8}")).collect();
    let sampled = report::count(calls.len() as u64, "sampled call", "s");
    let mut text = format!(
        "kakehi: trace: mean time of each step of {sampled}, us\n\
         kakehi: {:<16}{:>6}{heads}\n",
        "call", "calls"
    );
    for name in names(calls).into_iter().take(SAID) {
        let means = Means::of(calls, name);
        let times = means.steps.into_iter().map(Some).chain([means.answer, Some(means.total())]);
        let times: String = times.map(|ns| format!("{:>8}", ns.map_or("-".into(), us))).collect();
        let name = name.replace('_', " ");
        writeln!(text, "kakehi: {name:<16}{:>6}{times}", means.count).ok(); // Infallible.
    }
    text
}

/// A time in microseconds, in at most seven letters up to 9 s.
fn us(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{}.{:02}", ns / 1000, ns % 1000 / 10),
        _ => (ns / 1000).to_string(),
    }
}

/// The document: <https://ui.perfetto.dev> calls it the JSON trace format. Its events are written
/// as text: a tree of values first takes as long as a short job.
fn document(calls: &[Whole]) -> String {
    let mut text = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[".to_owned();
    let mut rows: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    let began = calls.first().map_or(0, |whole| whole.boxes[0]);
    for whole in calls {
        let [from, .., to] = whole.boxes;
        let pid = whole.call.pid;
        let ends = rows.entry(pid).or_insert_with(|| {
            let args = json!({"name": "process"});
            let named =
                json!({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": args});
            // Infallible, as all that follow.
            writeln!(text, "{named},").ok();
            Vec::new()
        });
        // In the first row where nothing else is under way.
        let row = ends.iter().position(|end| *end <= from).unwrap_or(ends.len());
        match ends.get_mut(row) {
            Some(end) => *end = to,
            None => ends.push(to),
        }
        slices(&mut text, whole, row, began);
    }
    // The last one's comma.
    text.truncate(text.trim_end_matches(",\n").len());
    let means = names(calls).into_iter().map(|name| {
        let Means { count, steps, answer } = Means::of(calls, name);
        let times = STEPS.into_iter().zip(steps).chain(answer.map(|ns| (ANSWER, ns)));
        let mut means: serde_json::Map<_, _> =
            times.map(|(step, ns)| (step.to_owned(), ns.into())).collect();
        means.insert("count".to_owned(), count.into());
        (name.to_owned(), Value::Object(means))
    });
    let means: serde_json::Map<_, _> = means.collect();
    let other = json!({"version": env!("CARGO_PKG_VERSION"), "mean_ns": means});
    writeln!(text, "],\"otherData\":{other}}}").ok();
    text
}

/// Writes a call as one slice, with one for each step in it.
fn slices(text: &mut String, whole: &Whole, row: usize, began: u64) {
    let Whole { call, boxes } = whole;
    let (cat, pid) = (json!(call.name).to_string(), call.pid);
    let [accepted, .., completed] = *boxes;
    let micros = |ns: u64| format!("{}.{:03}", ns / 1000, ns % 1000);
    let head = |name: &str, from: u64, to: u64| {
        let (at, time) = (micros(from.saturating_sub(began)), micros(to.saturating_sub(from)));
        format!(
            "{{\"name\":{name},\"cat\":{cat},\"ph\":\"X\",\"pid\":{pid},\"tid\":{row},\
             \"ts\":{at},\"dur\":{time}"
        )
    };
    let times = BOXES.into_iter().zip(boxes.iter().copied());
    let others = [("bytes", call.len), ("answered", call.answered_ns)];
    let others = others.into_iter().filter_map(|(name, number)| Some((name, number?)));
    let args: Vec<_> = times.chain(others).map(|(name, it)| format!("\"{name}\":{it}")).collect();
    let all = head(&cat, accepted, completed);
    writeln!(text, "{all},\"args\":{{{}}}}},", args.join(",")).ok();
    for (name, (from, to)) in STEPS.iter().zip(boxes.iter().zip(boxes.iter().skip(1))) {
        writeln!(text, "{}}},", head(&format!("\"{name}\""), *from, *to)).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(session: u32, completed_ns: u64) -> Traced {
        let work = TracedWork::Request { lane: 2, seq: 9 };
        let (taken_ns, issued_ns) = (completed_ns - 20, completed_ns - 10);
        Traced { session, work, taken_ns, issued_ns, completed_ns }
    }

    #[test]
    fn calls_meet_the_work_of_their_session_that_followed_them() {
        let text = "T\t7\t1\t2\t9\tread\t100\t110\t180\nW\t7\t1\t4\t4096\t512\t200\t210\n\
                    D\t1\t4\t0\t4096\t300\t310\t400\nD\t1\t4\t4096\t9000\t500\t510\t600\nx\n";
        let calls = whole(text, &[request(1, 90), request(2, 150), request(1, 160)]);
        let boxes: Vec<_> = calls.iter().map(|whole| whole.boxes).collect();
        assert_eq!(boxes, [[100, 110, 140, 150, 160], [200, 210, 300, 310, 400]]);
        assert_eq!(calls[1].call.len, Some(512));
        let read = Means { count: 1, steps: [10, 30, 10, 10], answer: Some(20) };
        assert_eq!(Means::of(&calls, "read"), read);
        assert_eq!((read.total(), Means::of(&calls, "staged write").answer), (80, None));
    }

    #[test]
    fn table_of_steps_has_a_row_for_each_call_and_fits_a_terminal() {
        let text = "T\t7\t1\t2\t9\tread\t100\t110\t180\nW\t7\t1\t4\t4096\t512\t200\t210\n\
                    D\t1\t4\t0\t4096\t987654321\t987654321\t9876543210\n";
        let said = said(&whole(text, &[request(1, 160)]));
        assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
        let rows: Vec<Vec<_>> = said.lines().map(|it| it.split_whitespace().collect()).collect();
        assert_eq!(
            rows[1][1..],
            ["call", "calls", "accept", "wait", "prepare", "perform", "answer", "total"]
        );
        assert!(rows[2..].contains(&vec![
            "kakehi:", "read", "1", "0.01", "0.03", "0.01", "0.01", "0.02", "0.08"
        ]));
        let staged = ["0.01", "987654", "0.00", "8888888", "-", "9876543"];
        assert!(rows[2..].iter().any(|row| row.ends_with(&staged)), "{said}");
    }

    #[test]
    fn call_that_only_its_client_kept_is_left_out() {
        let text = "T\t7\t1\t2\t9\tread\t100\t110\t180\n";
        assert!(whole(text, &[request(1, 90), request(1, 190)]).is_empty());
    }

    #[test]
    fn calls_under_way_together_stand_in_rows_of_their_own() {
        let text = "W\t7\t1\t4\t10\t1\t100\t110\nW\t7\t1\t4\t20\t1\t120\t130\n\
                    D\t1\t4\t0\t20\t300\t310\t400\n";
        let document = document(&whole(text, &[]));
        let document: Value = serde_json::from_str(&document).expect("JSON");
        let events = document["traceEvents"].as_array().cloned().unwrap_or_default();
        let rows: Vec<_> =
            events.iter().filter(|it| it["name"] == "staged write").map(|it| &it["tid"]).collect();
        assert_eq!(rows, [0, 1]);
        assert_eq!(events[1]["dur"], 0.3);
        let empty: Value = serde_json::from_str(&super::document(&[])).expect("JSON");
        assert_eq!(empty["traceEvents"].as_array().map(Vec::len), Some(0));
    }
}
