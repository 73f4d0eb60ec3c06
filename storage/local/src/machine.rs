//! The files of this machine, by its engines.

use std::{
    cell::Cell,
    io,
    os::fd::OwnedFd,
    rc::Rc,
    time::{Duration, Instant},
};

use rustix::{fs::OFlags, io::Errno};
use shm::CallKind;
use uring::{Buffers, Engines, ForeignFd};
use wire::{FoundLock, Status};

use crate::{
    Learned, Locking, Storage,
    lock_call::LockCall,
    names::{self, Answer, FileCall, Identity, NameCall, OpenCall},
    scope::Scope,
    verdict::errno,
};

/// One transfer in so many is timed.
const TIMED: u32 = 16;

/// The files of this machine.
#[derive(Clone, Debug)]
pub struct Machine {
    engines: Rc<Engines>,
    scope: Scope,
    learned: Learned,
    /// Counts transfers.
    transfers: Rc<Cell<u32>>,
}

impl Machine {
    /// The whole machine.
    pub fn new(engines: Engines) -> Self {
        let (engines, transfers) = (Rc::new(engines), Rc::default());
        Self { engines, scope: Scope::Machine, learned: Learned::default(), transfers }
    }

    /// The same machine, which learns what calls cost, and executes those in place that are quick.
    pub fn learning(self, learned: Learned) -> Self {
        Self { learned, ..self }
    }

    /// The same machine, with its names looked up in `scope`.
    pub fn at(&self, scope: Scope) -> Self {
        Self { scope, ..self.clone() }
    }

    /// Where its names are looked up.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Writes what many files share: see [`Engines::write_whole`].
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn write_whole(
        &self,
        file: &uring::File,
        at: u64,
        from: Buffers,
    ) -> io::Result<usize> {
        self.engines.write_whole(file, at, from).await
    }

    /// Takes care of descriptors that somebody else has opened.
    pub fn all_foreign(&self, fds: Vec<OwnedFd>) -> Vec<ForeignFd> {
        fds.into_iter().map(|fd| ForeignFd::new(&self.engines, fd)).collect()
    }

    /// Device and inode of a file that a client handed over; `None`: it is no regular one.
    pub fn identify(file: &uring::File) -> Option<Identity> {
        file.is_regular().then(|| (file.device(), file.inode()))
    }

    /// Brings `len` bytes at `at` into the page cache; returns how many are there.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub async fn fetch(&self, file: &uring::File, at: u64, len: usize) -> io::Result<usize> {
        file.leave_direct();
        self.engines.fetch(file, at, len).await
    }

    /// How I/O is executed, for people.
    pub fn describe(&self) -> String {
        self.engines.describe()
    }

    /// Runs a blocking function on an engine thread, and again while it is interrupted: no signal
    /// of the program's has done that.
    ///
    /// # Errors
    ///
    /// The function's.
    pub async fn call<T: Send + 'static>(
        &self,
        call: impl Fn() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let slot = names::Shared::default();
        self.engines.call(filling(&slot, call)).await?;
        slot.take()
    }

    /// The same, for a function that may wait for the device of `file`.
    async fn call_on<T: Send + 'static>(
        &self,
        file: &uring::File,
        call: impl Fn(&uring::File) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (slot, held) = (names::Shared::default(), file.clone());
        self.engines.call_on(file, filling(&slot, move || call(&held))).await?;
        slot.take()
    }

    /// The scope in which calls of a kind are executed in place, if they are.
    fn in_place(&self, kind: CallKind) -> Option<Scope> {
        let (within, device) = self.scope.within()?;
        self.learned.is_quick(device, kind)?.then_some(within)
    }

    /// True if the next transfer is timed.
    fn is_timed(&self) -> bool {
        let count = self.transfers.get().wrapping_add(1);
        self.transfers.set(count);
        count % TIMED == 0
    }

    /// Waits for a transfer, and learns from some.
    async fn timed(
        &self,
        file: &uring::File,
        kind: CallKind,
        transfer: impl Future<Output = io::Result<usize>>,
    ) -> io::Result<usize> {
        let began = self.is_timed().then(Instant::now);
        let moved = transfer.await;
        if let (Some(began), Ok(len)) = (began, &moved) {
            self.learned.learn_transfer(file.device(), kind, *len, began.elapsed());
        }
        moved
    }
}

/// Returns a closure that fills `slot` with the result of `call`, on any thread.
fn filling<T: Send + 'static>(
    slot: &names::Shared<T>,
    call: impl Fn() -> io::Result<T> + Send + 'static,
) -> impl FnOnce() -> io::Result<u64> + Send + 'static {
    let slot = slot.clone();
    move || loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return slot.fill(done?),
        }
    }
}

impl Storage for Machine {
    type File = uring::File;

    async fn on(&self, file: &uring::File, call: FileCall) -> io::Result<Answer> {
        match call {
            FileCall::Sync { data_only } => {
                let began = Instant::now();
                self.engines.sync(file, data_only).await?;
                self.learned.learn(file.device(), CallKind::Sync, began.elapsed());
                Ok(Answer::default())
            }
            FileCall::CloseDuplicate => {
                self.engines.close_duplicate(file).await?;
                Ok(Answer::default())
            }
            FileCall::Status if file.is_local() => names::execute_on(file, call),
            _ => self.call_on(file, move |file| names::execute_on(file, call)).await,
        }
    }

    async fn read(&self, file: &uring::File, at: u64, into: Buffers) -> io::Result<usize> {
        file.leave_direct();
        self.timed(file, CallKind::Read, self.engines.read(file, at, into)).await
    }

    async fn write(&self, file: &uring::File, at: u64, from: Buffers) -> io::Result<usize> {
        self.timed(file, CallKind::Write, self.engines.write_long(file, at, from)).await
    }

    async fn open(&self, call: OpenCall) -> io::Result<(uring::File, Status)> {
        // To make a name, or to cut a file, may take much longer than it does mostly.
        let changes = OFlags::from_bits_retain(call.flags)
            .intersects(OFlags::CREATE | OFlags::TRUNC | OFlags::TMPFILE);
        if let Some(within) = self.in_place(CallKind::Open).filter(|_| !changes) {
            match names::open(&within, &call, &self.learned) {
                Err(why) if waits_elsewhere(&why) => {}
                opened => return opened,
            }
        }
        let (scope, asked, learned) = (self.scope.clone(), call.clone(), self.learned.clone());
        match self.call(move || names::open(&scope, &asked, &learned)).await {
            Err(why) if call.waits() && errno(&why) == Errno::AGAIN => {
                let (slot, scope) = (names::Shared::default(), self.scope.clone());
                let learned = self.learned.clone();
                let open = move || names::open_leased(&scope, &call, &learned);
                self.engines.call_apart(filling(&slot, open)).await?;
                slot.take()
            }
            opened => opened,
        }
    }

    async fn close(&self, file: uring::File) -> io::Result<()> {
        let device = file.device();
        let is_quick = self.learned.is_quick(device, CallKind::Close).unwrap_or(true);
        let took = self.engines.close(file, is_quick).await?;
        if took > Duration::ZERO {
            self.learned.learn(device, CallKind::Close, took);
        }
        Ok(())
    }

    async fn name(&self, call: NameCall) -> io::Result<Answer> {
        if let NameCall::Stat { .. } = call {
            if let Some(within) = self.in_place(CallKind::Stat) {
                match names::execute(&within, &call, &self.learned) {
                    Err(why) if waits_elsewhere(&why) => {}
                    done => return done,
                }
            }
        }
        let (scope, learned) = (self.scope.clone(), self.learned.clone());
        self.call(move || names::execute(&scope, &call, &learned)).await
    }
}

/// True if a call that was to be made in place needs a thread: it leads to another file system,
/// would wait, or cannot be asked not to.
fn waits_elsewhere(why: &io::Error) -> bool {
    matches!(errno(why), Errno::XDEV | Errno::AGAIN | Errno::INTR | Errno::INVAL)
}

impl Locking for Machine {
    async fn lock(&self, file: &uring::File, call: LockCall) -> io::Result<()> {
        self.call_on(file, move |file| call.set(file)).await
    }

    async fn find_lock(&self, file: &uring::File, call: LockCall) -> io::Result<Option<FoundLock>> {
        self.call_on(file, move |file| call.obstacle(file)).await
    }

    async fn another(&self, file: &uring::File) -> io::Result<uring::File> {
        self.call_on(file, |file| uring::File::new(names::reopen(file.fd())?)).await
    }
}

#[cfg(test)]
mod tests {
    use std::{
        ffi::CString,
        fs,
        os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
        sync::Arc,
    };

    use executor::{Config, Executor};
    use shm::{Costs, Sample};
    use tempfile::TempDir;
    use uring::{Choice, Events, SystemClock};

    use super::*;

    #[derive(Default)]
    struct Table(Costs);

    impl AsRef<Costs> for Table {
        fn as_ref(&self) -> &Costs {
            &self.0
        }
    }

    struct World {
        executor: Executor,
        engines: Engines,
        table: Arc<Table>,
        folder: TempDir,
    }

    impl World {
        fn new() -> Self {
            let events = Events::new().expect("epoll");
            let park = Box::new(events.parker());
            let executor = Executor::new(Rc::new(SystemClock), park, Config::default());
            let engines = Engines::new(&executor.handle(), Choice::Auto, 1, &events);
            let folder = TempDir::new().expect("folder");
            fs::write(folder.path().join("file"), "12345").expect("file");
            Self { executor, engines, table: Arc::default(), folder }
        }

        fn machine(&self, scope: Scope) -> Machine {
            let learned = Learned::by(Arc::clone(&self.table) as _);
            Machine::new(self.engines.clone()).learning(learned).at(scope)
        }

        fn device(&self) -> u64 {
            fs::metadata(self.folder.path()).expect("there").dev()
        }

        /// Has calls of a kind take so long, as if many had.
        fn takes(&self, kind: CallKind, ns: u64) {
            let sample = Sample { kind, len: 0, ns, calls: 1 };
            (0..200).for_each(|_| self.table.0.learn_call(self.device(), sample));
        }

        /// Operations on engine threads that opening, asking about, and closing a file takes.
        fn on_threads(&mut self, machine: &Machine, path: &str) -> [u64; 3] {
            let path = CString::new(path).expect("no NUL");
            let flags = OFlags::RDONLY.bits();
            let call = OpenCall { path: path.clone().into(), flags, mode: 0, inode: 0 };
            let count = || self.engines.counters().threads;
            self.executor.run_until(async {
                let first = count();
                let (file, status) = machine.open(call).await.expect("opened");
                assert_eq!(status.size, 5);
                let opened = count();
                let about = NameCall::Stat { path: path.into(), follow: true };
                let answer = machine.name(about).await.expect("there");
                assert_eq!(Status::decode(&answer.bytes).expect("a status").size, 5);
                let asked = count();
                machine.close(file).await.expect("closed");
                [opened - first, asked - opened, count() - asked]
            })
        }
    }

    #[test]
    fn calls_are_made_in_place_where_they_take_less_than_their_hand_over() {
        let mut world = World::new();
        let scope = Scope::below(world.folder.path()).expect("openat2");
        if scope.within().is_none() {
            return; // This folder is not on a device of this machine.
        }
        let machine = world.machine(scope);
        assert_eq!(world.on_threads(&machine, "/file"), [1, 1, 0], "nothing is known");
        for kind in [CallKind::Open, CallKind::Stat, CallKind::Close] {
            world.takes(kind, 2_000);
        }
        assert_eq!(world.on_threads(&machine, "/file"), [0; 3]);
        world.takes(CallKind::Open, 90_000);
        assert_eq!(world.on_threads(&machine, "/file"), [1, 0, 0]);
        world.takes(CallKind::Stat, 90_000);
        world.takes(CallKind::Close, 90_000);
        assert_eq!(world.on_threads(&machine, "/file"), [1, 1, 1]);
    }

    #[test]
    fn names_on_the_whole_machine_are_left_to_threads() {
        let mut world = World::new();
        for kind in [CallKind::Open, CallKind::Stat] {
            world.takes(kind, 1_000);
        }
        let machine = world.machine(Scope::Machine);
        let path = world.folder.path().join("file");
        let path = String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned();
        assert_eq!(world.on_threads(&machine, &path)[..2], [1, 1]);
    }

    #[test]
    fn what_is_executed_is_learned() {
        let mut world = World::new();
        let scope = Scope::below(world.folder.path()).expect("openat2");
        let machine = world.machine(scope);
        for _ in 0..4 {
            world.on_threads(&machine, "/file");
        }
        let costs = world.table.0.of(world.device()).expect("samples");
        for kind in [CallKind::Open, CallKind::Stat, CallKind::Close] {
            assert!(costs.of(kind).is_some_and(|ns| ns > 0), "{kind:?}");
        }
    }
}
