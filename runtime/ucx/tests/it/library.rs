//! A library that is absent, or of the wrong version, is said by name.

use std::{fs, path::PathBuf, process::Command};

use executor::Executor;
use ucx::{Config, Error, Worker};
use uring::{Events, SystemClock};

fn open(library: &str) -> Error {
    let parker = Box::new(Events::new().expect("epoll").parker());
    let executor =
        Executor::new(std::rc::Rc::new(SystemClock), parker, executor::Config::default());
    let config = Config { library: library.into(), ..Config::default() };
    Worker::new(&executor.handle(), &config).map(drop).expect_err("does not serve")
}

/// A library that says it is UCX of `version` and can do nothing.
fn fake(dir: &tempfile::TempDir, version: &str) -> Option<PathBuf> {
    let (source, library) = (dir.path().join("fake.c"), dir.path().join("libfake.so"));
    let code = format!(
        "void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release) {{\n\
             const unsigned version[] = {{{version}}};\n\
             *major = version[0], *minor = version[1], *release = version[2];\n\
         }}\n"
    );
    fs::write(&source, code).expect("temporary file");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    compiler.status().ok()?.success().then_some(library)
}

#[test]
fn a_library_that_is_not_there_is_named() {
    let error = open("libucp-of-nobody.so.0");
    assert!(
        matches!(&error, Error::Missing { library, .. } if library == "libucp-of-nobody.so.0"),
        "{error:?}"
    );
    assert!(error.to_string().contains("libucx0"), "{error}");
}

#[test]
fn a_library_that_is_too_old_is_refused_with_its_version() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let library = fake(&dir, "1, 11, 2").expect("a C compiler, as for linking this test");
    let error = open(library.to_str().expect("text"));
    assert!(matches!(error, Error::Version { found: (1, 11, 2), .. }), "{error:?}");
    assert!(error.to_string().contains("1.11.2, needed is 1.12"), "{error}");
}

#[test]
fn a_library_that_lacks_a_function_is_refused_by_its_name() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let library = fake(&dir, "1, 12, 0").expect("a C compiler, as for linking this test");
    let error = open(library.to_str().expect("text"));
    assert!(matches!(error, Error::Function { name: "ucp_config_read", .. }), "{error:?}");
}
