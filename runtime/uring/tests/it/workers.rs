//! A user who may have no more threads: neither the kernel's workers nor ours can be started.

use std::thread;

use rustix::{
    process::{Resource, Rlimit, Uid, geteuid, getrlimit, setrlimit},
    thread::set_thread_res_uid,
};

use crate::support::{Core, dirs, open};

/// Of a user with no process but this thread.
const NOBODY: u32 = 65_432;

#[test]
fn what_the_kernel_has_no_worker_for_is_done_all_the_same() {
    // Only root can become somebody else, and is itself above this limit.
    if !geteuid().is_root() {
        return;
    }
    let dirs = dirs();
    let file = open(dirs.first().expect("disk"), "data").expect("created");
    let limit = getrlimit(Resource::Nproc);
    let tight = Rlimit { current: Some(0), maximum: limit.maximum };
    let test = thread::spawn(move || {
        let Some(mut core) = Core::with_ring() else { return };
        let engines = core.engines.clone();
        setrlimit(Resource::Nproc, tight).expect("lower");
        let nobody = Uid::from_raw(NOBODY);
        set_thread_res_uid(nobody, nobody, nobody).expect("root may");

        core.run(engines.sync(&file, false)).expect("synced");

        assert_eq!((engines.counters().ring, engines.counters().threads), (1, 1));
    });
    let outcome = test.join();
    setrlimit(Resource::Nproc, limit).expect("as it was");
    outcome.expect("no panic");
}
