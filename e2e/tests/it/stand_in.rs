//! `kakehi run` where it must not make a difference: signals of any kind, closed descriptors, a
//! node or a limit that withholds what it needs, and programs that outlive the first one of their
//! job.

use std::{process::Command, time::Duration};

use crate::{
    harness::{Folder, SOON, kakehi_run, pause, python, succeed},
    jobs::ready,
};

/// Schedulers warn of an end by any signal, and send it to one process or to all of a group.
#[test]
fn signal_of_any_kind_reaches_the_program_and_does_not_end_the_run() {
    let folder = Folder::new();
    for signal in ["XCPU", "ALRM", "IO", "PWR", "VTALRM", "RTMIN", "RTMAX"] {
        for whom in ["", "-"] {
            let script = format!(
                "trap 'n=$((n + 1))' {signal}; echo ready; \
                 while [ -z \"$n\" ]; do sleep 0.05; done; sleep 0.3; exit $((n + 8))"
            );
            let mut running = ready(kakehi_run(&folder, &[]).args(["bash", "-c", &script]));
            pause(Duration::from_millis(300)); // Until real-time signals are caught.
            let kill = format!("kill -{signal} -- {whom}{}", running.child.id());
            succeed(Command::new("bash").args(["-c", &kill]), SOON);
            assert_eq!(running.wait(SOON).code(), Some(9), "{signal} to {whom}");
        }
    }
}

/// The kernel takes a name whose full path it would not.
#[test]
fn relative_name_is_opened_whose_full_path_is_as_long_as_the_kernel_does_not_take() {
    let folder = Folder::new();
    let Some([python, _]) = python("long paths", "signals") else { return };
    let script = "import os, sys\n\
        os.chdir(sys.argv[1])\n\
        while len(os.getcwd()) < 3980:\n\
        \x20   part = 'x' * min(200, 3979 - len(os.getcwd()))\n\
        \x20   os.mkdir(part); os.chdir(part)\n\
        for full in 4094, 4095, 4096, 4097:\n\
        \x20   name = 'y' * (full - 3981)\n\
        \x20   with open(name, 'w') as file: file.write('z' * 100000)\n\
        \x20   assert os.stat(name).st_size == 100000\n";
    let mut command = kakehi_run(&folder, &["--rule", "/**=delegate"]);
    succeed(command.arg(python).args(["-c", script]).arg(folder.path()), SOON);
}
