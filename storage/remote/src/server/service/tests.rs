//! Requests that must not happen twice, sent again to a server that was started anew, over a real
//! folder: the kernel refuses what a simulation may not think of.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, symlink},
    path::Path,
};

use executor::{Config, Executor};
use rustix::fs::{FallocateFlags, OFlags};
use storage::{
    Machine,
    scope::{OWN_FOLDER, Scope},
};
use tempfile::TempDir;
use uring::{Choice, Engines, Events, Heap, SystemClock};
use wire::{Entry, Kind, PathPair, Status};

use super::*;
use crate::{
    server::effects,
    server::ledger::{Folder, State},
};

const SESSION: u8 = 3;
/// Handle of a log that every server has open.
const LOG: u32 = 1;
const ID: u64 = 9;
const LINE: &[u8] = b"of a log\n";
/// As programs give it, with the bits of a regular file.
const MODE: u32 = 0o100_640;

/// How far a request had come when its server was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    /// It is written down that the request was begun, and no more has happened.
    Before,
    /// It has happened, and nothing more is written down.
    Behind,
    /// It has happened, and that is written down.
    Answered,
}

/// A request on what lies in a folder, and what it leaves there.
struct Case {
    what: &'static str,
    request: Request,
    payload: &'static [u8],
    data: &'static [u8],
    /// True if what lies there tells that the request has happened.
    tells: bool,
    happened: fn(&Path) -> bool,
}

impl Case {
    fn received(&self) -> Received {
        received(Some(0), self.request, self.payload, self.data)
    }
}

fn received(record: Option<u32>, request: Request, payload: &[u8], data: &[u8]) -> Received {
    let buffer = Heap::buffer(data.len());
    buffer.store(data);
    Received { id: ID, record, request, payload: payload.into(), data: buffer.into() }
}

fn cases() -> Vec<Case> {
    let paths = |from_len, to_len| PathPair { from_len, to_len };
    let case = |what, request, payload, tells, happened: fn(&Path) -> bool| {
        let data: &[u8] = &[];
        Case { what, request, payload, data, tells, happened }
    };
    let open = |flags: OFlags| {
        let flags = (flags | OFlags::CREATE | OFlags::EXCL).bits();
        Request::Open { file: 2, flags, mode: MODE, path_len: 4, inode: 0 }
    };
    let created = |root: &Path| fs::metadata(root.join("new")).is_ok_and(|new| new.is_file());
    let append = Request::Write { file: LOG, at: 0, len: 9, arena_at: 0 };
    vec![
        case("create", open(OFlags::WRONLY), b"/new", false, created),
        case("create to append", open(OFlags::WRONLY | OFlags::APPEND), b"/new", false, created),
        case("create anew", open(OFlags::RDWR | OFlags::TRUNC), b"/new", false, created),
        case("mkdir", Request::MakeDir { path_len: 4, mode: 0o700 }, b"/new", false, |root| {
            root.join("new").is_dir()
        }),
        case("symlink", Request::Symlink { paths: paths(4, 4) }, b"file/new", false, |root| {
            fs::read_link(root.join("new")).is_ok_and(|text| text == Path::new("file"))
        }),
        case("link", Request::Link { paths: paths(5, 4) }, b"/file/new", true, |root| {
            fs::metadata(root.join("file")).expect("there").nlink() == 2
        }),
        case(
            "rename",
            Request::Rename { paths: paths(5, 4), flags: 0 },
            b"/file/new",
            true,
            |root| !root.join("file").exists() && root.join("new").is_file(),
        ),
        case("unlink", Request::Unlink { path_len: 5 }, b"/file", true, |root| {
            !root.join("file").exists()
        }),
        case("unlink a link", Request::Unlink { path_len: 5 }, b"/link", true, |root| {
            fs::symlink_metadata(root.join("link")).is_err()
        }),
        case("rmdir", Request::RemoveDir { path_len: 7 }, b"/folder", true, |root| {
            !root.join("folder").exists()
        }),
        Case {
            data: LINE,
            ..case("append", append, b"", true, |root| {
                fs::read(root.join("log")).expect("there") == [LINE, LINE].concat()
            })
        },
    ]
}

/// Requests that cut the log, or do nothing where it was cut before.
fn cuts() -> Vec<Case> {
    let case = |what, request, payload| {
        let happened = |root: &Path| fs::read(root.join("log")).expect("there").is_empty();
        Case { what, request, payload, data: b"", tells: true, happened }
    };
    let open = |flags: OFlags| {
        let flags = (flags | OFlags::CREATE | OFlags::TRUNC).bits();
        Request::Open { file: 2, flags, mode: MODE, path_len: 4, inode: 0 }
    };
    vec![
        case("open to cut", open(OFlags::WRONLY), b"/log"),
        case("open to cut and append", open(OFlags::RDWR | OFlags::APPEND), b"/log"),
        case("ftruncate", Request::Truncate { file: LOG, path_len: 0, len: 0 }, b""),
        case("truncate", Request::Truncate { file: 0, path_len: 4, len: 0 }, b"/log"),
    ]
}

/// One server after the other over one folder.
struct World {
    executor: Executor,
    machine: Machine,
    engines: Engines,
    folder: TempDir,
}

impl World {
    fn new() -> Self {
        let events = Events::new().expect("epoll");
        let park = Box::new(events.parker());
        let executor = Executor::new(Rc::new(SystemClock), park, Config::default());
        let engines = Engines::new(&executor.handle(), Choice::Threads, 1, &events);
        let folder = TempDir::new().expect("folder");
        let root = folder.path();
        fs::write(root.join("file"), "").expect("file");
        fs::write(root.join("log"), LINE).expect("file");
        symlink("file", root.join("link")).expect("link");
        fs::create_dir(root.join("folder")).expect("folder");
        Self { executor, machine: Machine::new(engines.clone()), engines, folder }
    }

    fn shelf(&self) -> Box<Folder> {
        Box::new(Folder::create(self.folder.path(), true).expect("made"))
    }

    /// Has a new server do something for a session; then that server is gone.
    fn serve<T>(
        &mut self,
        session: u8,
        deed: impl AsyncFnOnce(&Service<Machine>, &Session<Machine>) -> T,
    ) -> T {
        let storage = self.machine.at(Scope::below(self.folder.path()).expect("openat2"));
        let service = Service::new(self.executor.handle(), storage, self.shelf(), u64::MAX);
        let service = service.expect("ledgers");
        self.executor.run_until(async {
            let (visit, _) = service.enter([session; SESSION_LEN]).await.expect("room");
            let flags = (OFlags::WRONLY | OFlags::APPEND).bits();
            let log = Request::Open { file: LOG, flags, mode: 0, path_len: 4, inode: 0 };
            service
                .execute(&visit.session, received(None, log, b"/log", b""))
                .await
                .expect("there");
            deed(&service, &visit.session).await
        })
    }

    fn ask(&mut self, session: u8, case: &Case) -> Result<u64, Errno> {
        self.serve(session, async |service, session| {
            service.execute(session, case.received()).await.map(|answer| answer.value)
        })
    }

    /// Has a request come so far.
    fn come_to(&mut self, death: Death, case: &Case) -> Result<(), Errno> {
        let begun = self.begin(case);
        if death != Death::Before {
            self.ask(SESSION, case)?;
        }
        if death == Death::Behind {
            self.ledger().write(0, &begun).expect("written");
        }
        Ok(())
    }

    /// Writes down that a request was begun.
    fn begin(&mut self, case: &Case) -> Record {
        let before = self.serve(SESSION, async |service, session| {
            let received = case.received();
            let effect = match received.asked().expect("it can be read") {
                Asked::Open(handle, call) => Effect::Open(handle, call),
                Asked::Name(call) => Effect::Name(call),
                _ => session.file(LOG).expect("open").effect(&received).expect("it has one"),
            };
            effects::observe(&service.storage, &effect).await.expect("seen")
        });
        let record = Record { id: ID, state: State::Begun, before };
        self.ledger().write(0, &record).expect("written");
        record
    }

    fn ledger(&self) -> Box<dyn Ledger> {
        self.shelf().open(&[SESSION; SESSION_LEN]).expect("made")
    }

    fn log(&self) -> Vec<u8> {
        fs::read(self.folder.path().join("log")).expect("there")
    }
}

/// Thousands of them may be those of a file server that does not answer.
#[test]
fn files_of_a_session_that_is_over_are_closed_on_threads_where_that_may_take_long() {
    let mut world = World::new();
    let (engines, handle) = (world.engines.clone(), world.executor.handle());
    world.serve(SESSION, async |service, session| {
        let open = |path: &str| uring::File::new(fs::File::open(path).expect("there").into());
        for (handle, path) in [(LOG + 1, "/proc/version"), (LOG + 2, "/proc/uptime")] {
            let file = open(path).expect("a file"); // As little of this machine as a network's.
            let appends = Rc::default();
            let open = Open { file, appends, identity: (1, u64::from(handle)), born: 0 };
            session.files.borrow_mut().insert(handle, open);
        }
        let before = engines.counters().threads;
        let known = service.sessions.borrow().get(session.name()).cloned();
        service.end(&known.expect("it is there"));
        while handle.task_count() > 0 {
            handle.sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(engines.counters().threads - before, 2);
        assert!(session.files.borrow().is_empty());
    });
}

#[test]
fn every_request_that_leaves_its_node_is_served() {
    let mut world = World::new();
    let ends = |kind: &Kind| *kind == Kind::Close;
    let (last, first): (Vec<_>, Vec<_>) = Kind::ALL.into_iter().partition(ends);
    for kind in first.into_iter().chain(last) {
        let words = [u64::from(kind as u8) << 32, LOG.into(), 0, 0, 0, 0, 0, 0];
        let request = Request::decode(&Entry(words)).expect("a kind");
        let answer = world.serve(SESSION, async |service, session| {
            service.execute(session, received(Some(0), request, b"", b"")).await
        });
        assert_eq!(answer.err() != Some(Errno::NOSYS), request.leaves_node(), "{kind:?}");
    }
}

#[test]
fn request_that_is_sent_again_happens_once_whenever_its_server_was_killed() {
    for case in cases().into_iter().chain(cuts()) {
        for death in [Death::Before, Death::Behind, Death::Answered] {
            let mut world = World::new();
            world.come_to(death, &case).expect("it happens");
            let expected = match death {
                Death::Behind if !case.tells => Err(Errno::IO),
                _ => Ok(case.data.len() as u64),
            };
            assert_eq!(world.ask(SESSION, &case), expected, "{} {death:?}", case.what);
            assert!((case.happened)(world.folder.path()), "{} {death:?}", case.what);
        }
    }
}

#[test]
fn request_that_was_refused_is_refused_again_whatever_has_become_possible() {
    for case in cases().iter().filter(|case| case.data.is_empty()) {
        let mut world = World::new();
        let root = world.folder.path().to_owned();
        for entry in fs::read_dir(&root).expect("folder").flatten() {
            let name = entry.file_name();
            if name != "log" && name != OWN_FOLDER {
                fs::rename(entry.path(), root.join(format!("away-{}", name.to_string_lossy())))
                    .unwrap();
            }
        }
        fs::write(root.join("new"), "").expect("file");
        let refused = world.ask(SESSION, case);
        assert!(refused.is_err(), "{}", case.what);
        fs::remove_file(root.join("new")).ok(); // A rename would take its place.
        assert_eq!(world.ask(SESSION, case), refused, "{}", case.what);
        assert!(!root.join("new").exists(), "{}", case.what);
    }
}

/// A client that waited for the file to be empty writes to it before the request is replayed.
#[test]
fn what_others_write_into_a_file_that_was_cut_stays() {
    for case in cuts() {
        for death in [Death::Before, Death::Behind, Death::Answered] {
            let mut world = World::new();
            world.come_to(death, &case).expect("it happens");
            let log = world.folder.path().join("log");
            let changed = || fs::metadata(&log).map(|log| (log.ctime(), log.ctime_nsec())).unwrap();
            let before = changed();
            while changed() == before {
                fs::write(&log, "of others\n").expect("file");
            }
            // Whether they wrote before or behind the cut nobody knows, if it was only begun.
            let expected = if death == Death::Answered { Ok(0) } else { Err(Errno::IO) };
            for _ in 0..2 {
                assert_eq!(world.ask(SESSION, &case), expected, "{} {death:?}", case.what);
                assert_eq!(world.log(), b"of others\n", "{} {death:?}", case.what);
            }
        }
    }
}

#[test]
fn bytes_are_moved_once_where_the_file_system_can() {
    const LEN: usize = 1 << 16;
    let (collapse, insert) = (FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE);
    for (flags, len) in [(collapse, LEN), (insert, 3 * LEN)] {
        let request = Request::Allocate { file: LOG, mode: flags.bits(), at: 0, len: LEN as u64 };
        let happened: fn(&Path) -> bool = |_| true;
        let case = Case { what: "", request, payload: b"", data: b"", tells: true, happened };
        for death in [Death::Before, Death::Behind, Death::Answered] {
            let mut world = World::new();
            let log = world.folder.path().join("log");
            fs::write(&log, vec![7; 2 * LEN]).expect("file");
            if let Err(error) = world.come_to(death, &case) {
                assert_eq!(error, Errno::OPNOTSUPP);
                return eprintln!("1 SKIPPED: moving bytes: not in this file system");
            }
            assert_eq!(world.ask(SESSION, &case), Ok(0), "{flags:?} {death:?}");
            assert_eq!(fs::metadata(&log).expect("there").len(), len as u64, "{flags:?} {death:?}");
        }
    }
}

/// A name that was made is another's by now, or nobody's.
#[test]
fn answer_that_was_lost_is_never_about_another_file() {
    let open = |flags: OFlags| Request::Open {
        file: 2,
        flags: (flags | OFlags::CREATE | OFlags::WRONLY).bits(),
        mode: MODE,
        path_len: 4,
        inode: 0,
    };
    for flags in [OFlags::EXCL, OFlags::TRUNC] {
        for is_replaced in [true, false] {
            let mut world = World::new();
            let request = open(flags);
            let case = Case { what: "", request, payload: b"/new", data: b"", ..cases().remove(0) };
            world.ask(SESSION, &case).expect("made");
            let root = world.folder.path().to_owned();
            if is_replaced {
                fs::rename(root.join("file"), root.join("new")).expect("replaced");
            } else {
                fs::remove_file(root.join("new")).expect("removed");
            }
            let answer = world.ask(SESSION, &case);
            assert_eq!(answer, Err(Errno::STALE), "{flags:?} {is_replaced}");
        }
    }
}

/// An append of `data` to the log, which has one line.
fn append_of(data: &'static [u8]) -> Case {
    let len = u32::try_from(data.len()).expect("short");
    let request = Request::Write { file: LOG, at: 0, len, arena_at: 0 };
    Case { data, request, ..cases().pop().expect("the last is an append") }
}

/// A call that is killed ends at a page.
#[test]
fn append_that_was_cut_goes_on_unless_others_have_appended() {
    const LONG: [u8; 6000] = [7; 6000];
    const CUT: usize = 4096 - LINE.len();
    let append = append_of(&LONG);
    for (others, expected) in [(false, LONG.len()), (true, CUT)] {
        let mut world = World::new();
        world.begin(&append);
        fs::write(world.folder.path().join("log"), [LINE, &LONG[..CUT]].concat()).expect("file");
        let mut content = [LINE, &LONG].concat();
        if others {
            assert_eq!(world.ask(SESSION + 1, &append_of(LINE)), Ok(LINE.len() as u64));
            content = [LINE, &LONG[..CUT], LINE].concat();
        }
        for _ in 0..2 {
            assert_eq!(world.ask(SESSION, &append), Ok(expected as u64), "others: {others}");
            assert_eq!(world.log(), content, "others: {others}");
        }
    }
}

/// Programs of the server's machine append without asking it.
#[test]
fn append_beside_foreign_ones_is_counted_by_whole_records_or_in_doubt() {
    const OWN: &[u8] = b"step 1 of A\n";
    let (done, once) = (Ok(OWN.len() as u64), Err(Errno::IO));
    for (since, expected, content) in [
        // Not of ours: it is appended now.
        (&b"else\n"[..], done, &b"else\nstep 1 of A\n"[..]),
        // Ours is behind another, or before it.
        (b"else\nstep 1 of A\n", done, b"else\nstep 1 of A\n"),
        (b"step 1 of A\nelse\n", done, b"step 1 of A\nelse\n"),
        (b"step 1 of B\nstep 1 of A\n", done, b"step 1 of B\nstep 1 of A\n"),
        // What begins alike may be a part of ours or another's.
        (b"step 1 of B\n", once, b"step 1 of B\n"),
        (b"step", once, b"step"),
    ] {
        let (mut world, append) = (World::new(), append_of(OWN));
        world.begin(&append);
        fs::write(world.folder.path().join("log"), [LINE, since].concat()).expect("file");
        for _ in 0..2 {
            let since = String::from_utf8_lossy(since);
            assert_eq!(world.ask(SESSION, &append), expected, "{since}");
            assert_eq!(world.log(), [LINE, content].concat(), "{since}");
        }
    }
}

/// The request to reopen must not depend on the flags its programs gave.
#[test]
fn open_file_is_opened_again() {
    for more in [
        OFlags::RDONLY,
        OFlags::WRONLY,
        OFlags::RDWR | OFlags::TRUNC,
        OFlags::WRONLY | OFlags::APPEND | OFlags::SYNC,
        OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY,
        OFlags::RDWR | OFlags::NOATIME | OFlags::DSYNC | OFlags::CLOEXEC | OFlags::LARGEFILE,
    ] {
        let mut world = World::new();
        let open = |flags: OFlags, mode| {
            let request =
                Request::Open { file: 2, flags: flags.bits(), mode, path_len: 4, inode: 0 };
            received(Some(0), request, b"/new", b"")
        };
        let first = world.serve(SESSION, async |service, session| {
            service.execute(session, open(more | OFlags::CREATE, MODE)).await
        });
        let again = world.serve(SESSION, async |service, session| {
            service.execute(session, open(more - OFlags::TRUNC, 0)).await
        });
        let identity = |answer: Result<Answer, Errno>| {
            let Answer { bytes, .. } = answer.unwrap_or_else(|error| panic!("{more:?}: {error}"));
            Status::decode(&bytes).expect("a status").identity()
        };
        assert_eq!(identity(first), identity(again), "{more:?}");
    }
}
