//! `kakehi run` where it must not make a difference: signals of any kind, closed descriptors, a
//! node or a limit that withholds what it needs, and programs that outlive the first one of their
//! job.

use crate::harness::{Folder, SOON, kakehi_run, python, succeed};

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
