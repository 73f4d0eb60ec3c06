//! `kakehi top`: the jobs of this user on this node, as they go.

mod screen;

use std::{
    collections::{HashMap, VecDeque},
    io::{self, IsTerminal as _},
    mem::{self, ManuallyDrop},
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool, atomic::Ordering},
    time::{Duration, Instant},
};

use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{self, Event, KeyCode, KeyModifiers},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use signal_hook::{
    consts::{SIGHUP, SIGTERM},
    flag,
};

use crate::{
    config::Environment,
    failure::{Code, Failure},
    job::{Job, Served},
    output,
    span::{Span, pause},
    status::Rates,
};

/// Rates of the past that are drawn.
const PAST_MAX: usize = 200;
/// Rows of a frame that is printed.
const ROWS: u16 = 24;

/// Shows the jobs of this user on this node as they go
///
/// Rates, what waits to be drained and for how long, sessions, servers, and how busy the daemons
/// are.
///
/// Up and down choose the job whose rates are drawn, q ends.
///
/// Exit status: 0; 1 without a terminal, unless --once is given.
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Time between two looks.
    #[arg(long, value_name = "TIME", default_value = "1s")]
    every: Span,
    /// Prints one picture as text, after two looks.
    #[arg(long)]
    once: bool,
    /// Columns of that picture.
    #[arg(long, value_name = "N", default_value_t = 80, requires = "once")]
    #[arg(value_parser = clap::value_parser!(u16).range(40..=500))]
    columns: u16,
}

pub(crate) fn top(args: &Args, environment: &Environment) -> Result<(), Failure> {
    let mut view = View::default();
    view.look(environment)?;
    if args.once {
        pause(args.every.0);
        view.look(environment)?;
        return output::print(&picture(&view, args.columns).map_err(|why| no_terminal(&why))?);
    }
    if !io::stdout().is_terminal() {
        return Err(no_terminal(&"standard output is not one"));
    }
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        flag::register(signal, Arc::clone(&ended)).map_err(|why| no_terminal(&why))?;
    }
    let terminal = ratatui::try_init().map_err(|why| no_terminal(&why))?;
    // It may be gone in the end; dropped, this would say so there.
    let mut terminal = ManuallyDrop::new(terminal);
    let mut next = Instant::now() + args.every.0;
    let shown = loop {
        if let Err(why) = terminal.draw(|frame| screen::draw(&view, frame)) {
            break Err(no_terminal(&why));
        }
        match key(next.saturating_duration_since(Instant::now())) {
            Ok(Some(Key::End)) => break Ok(()),
            Ok(Some(Key::Up)) => view.select(-1),
            Ok(Some(Key::Down)) => view.select(1),
            Ok(None) => {}
            Err(why) => break Err(no_terminal(&why)),
        }
        if ended.load(Ordering::Relaxed) {
            break Ok(());
        }
        if Instant::now() >= next {
            next = Instant::now() + args.every.0;
            if let Err(why) = view.look(environment) {
                break Err(why);
            }
        }
    };
    terminal.show_cursor().and(ratatui::try_restore()).ok();
    shown
}

fn no_terminal(why: &dyn std::fmt::Display) -> Failure {
    let advice = "use a terminal, or print a picture by 'kakehi top --once'";
    Failure::new(Code::Failure, "the terminal", why, advice)
}

/// Command of a key.
enum Key {
    End,
    Up,
    Down,
}

fn key(time: Duration) -> io::Result<Option<Key>> {
    let stdin = io::stdin();
    let mut wait = time;
    if stdin.is_terminal() {
        // `event` would look for a key for ever once the terminal is gone.
        let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut polled, Timespec::try_from(time).ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(why) => return Err(why.into()),
        }
        if polled.iter().any(|fd| fd.revents().intersects(PollFlags::HUP | PollFlags::ERR)) {
            return Ok(Some(Key::End));
        }
        wait = Duration::ZERO;
    }
    if !event::poll(wait)? {
        return Ok(None);
    }
    let Event::Key(key) = event::read()? else { return Ok(None) };
    Ok(match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::End),
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::End),
        KeyCode::Up | KeyCode::Char('k') => Some(Key::Up),
        KeyCode::Down | KeyCode::Char('j') => Some(Key::Down),
        _ => None,
    })
}

/// One picture as lines of text.
fn picture(view: &View, columns: u16) -> io::Result<String> {
    let mut terminal = Terminal::new(TestBackend::new(columns, ROWS)).map_err(io::Error::other)?;
    terminal.draw(|frame| screen::draw(view, frame)).map_err(io::Error::other)?;
    let cells = terminal.backend().buffer().content();
    let line = |cells: &[ratatui::buffer::Cell]| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned() + "\n"
    };
    let text: String = cells.chunks(usize::from(columns)).map(line).collect();
    Ok(text.trim_end().to_owned() + "\n")
}

/// The jobs as they were last seen.
#[derive(Debug, Default)]
struct View {
    rows: Vec<Row>,
    selected: usize,
    looked_at: Option<Instant>,
    past: HashMap<PathBuf, VecDeque<u64>>,
}

/// A job, and its rates since the last look.
#[derive(Debug)]
struct Row {
    served: Served,
    rates: Option<Rates>,
}

impl View {
    fn look(&mut self, environment: &Environment) -> Result<(), Failure> {
        let (found, now) = (Job::all(environment)?, Instant::now());
        let time = self.looked_at.replace(now).map(|before| now.duration_since(before));
        let before = mem::take(&mut self.rows);
        for served in found {
            let is_it = |row: &&Row| row.served.job == served.job;
            let rates = before
                .iter()
                .find(is_it)
                .zip(time)
                .map(|(row, time)| Rates::between(&row.served.status, &served.status, time));
            if let Some(rates) = rates {
                let past = self.past.entry(served.job.folder.clone()).or_default();
                past.push_back(rates.written);
                if past.len() > PAST_MAX {
                    past.pop_front();
                }
            }
            self.rows.push(Row { served, rates });
        }
        let rows = &self.rows;
        self.past.retain(|folder, _| rows.iter().any(|row| row.served.job.folder == *folder));
        self.select(0);
        Ok(())
    }

    fn select(&mut self, by: isize) {
        let last = self.rows.len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(by).min(last);
    }

    fn selected(&self) -> Option<(&Row, Vec<u64>)> {
        let row = self.rows.get(self.selected)?;
        let past = self.past.get(&row.served.job.folder);
        Some((row, past.map(|past| past.iter().copied().collect()).unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view() -> View {
        let status = |command: &str| {
            json!({
                "pid": 1, "command": command, "age_seconds": 61, "sessions": 4, "files": 3,
                "staged_bytes": 8 << 20,
                "summary": {"bytes_written": 1_u64 << 30, "bytes_staged": 1 << 20},
                "cores": [{"core": 0, "working": 0.5, "polling": 0.25, "parked": 0.25}],
            })
        };
        let row = |name: &str, command: &str| Row {
            served: Served {
                job: Job { name: name.to_owned(), folder: name.into() },
                status: status(command),
            },
            rates: Some(Rates { written: 12 << 20, read: 0, drained: 4 << 20 }),
        };
        let past = [("one".into(), VecDeque::from([1, 5, 9]))].into();
        let rows = vec![row("one", "lmp -in in.lj"), row("two", "python3 train.py")];
        View { rows, selected: 0, looked_at: None, past }
    }

    #[test]
    fn a_picture_shows_rates_and_drain_lag_at_80_and_200_columns() {
        for columns in [80, 200] {
            let shown = picture(&view(), columns).expect("drawn");
            assert!(shown.lines().all(|line| line.chars().count() <= usize::from(columns)));
            for part in ["2 jobs", "one", "two", "12MiB/s", "4MiB/s", "8MiB", "2.0 s", "lmp"] {
                assert!(shown.contains(part), "{part} is not in\n{shown}");
            }
        }
    }

    #[test]
    fn wide_picture_shows_names_of_array_elements_in_full() {
        let mut view = view();
        view.rows[1].served.job.name = "1234567_12_.pbs-server.cluster".to_owned();
        assert!(picture(&view, 200).expect("drawn").contains("\n1234567_12_.pbs-server.cluster "));
        assert!(picture(&view, 80).expect("drawn").contains("\n1234567_12 "));
    }

    #[test]
    fn selection_stays_on_a_row_that_is_there() {
        let mut view = view();
        view.select(5);
        assert_eq!(view.selected, 1);
        view.rows.truncate(1);
        view.select(0);
        assert_eq!(view.selected, 0);
        assert!(picture(&View::default(), 80).expect("drawn").contains("no job"));
    }
}
