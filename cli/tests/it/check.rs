//! `kakehi check` on programs compiled here, one for each thing that stands in delegation's way.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::{fails, json, kakehi, output};

const WRITER: &str = "#include <unistd.h>\nint main(void) { return write(1, \"\", 0); }";

/// A folder with a preload library that covers `open`, `write`, and `fopen`.
struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        let bench = Self(tempdir().expect("temporary folder"));
        let source = "int open(void) { return 0; }\nint fopen(void) { return 0; }\n\
            long write(void) { return 0; }\n\
            int opendir(void) { return 0; }\nint __register_atfork(void) { return 0; }";
        let options = ["-w", "-fno-builtin", "-shared", "-fPIC"];
        bench.compile("libkakehi_preload.so", source, &options);
        bench
    }

    /// Compiles `source` with the linker every Rust tool chain needs anyway.
    fn compile(&self, name: &str, source: &str, options: &[&str]) -> PathBuf {
        let (input, output) = (self.path(&format!("{name}.c")), self.path(name));
        fs::write(&input, source).expect("source");
        let mut compiler = Command::new("cc");
        compiler.arg(&input).arg("-o").arg(&output).args(options).current_dir(self.0.path());
        assert!(compiler.status().expect("cc starts").success(), "cc compiles {name}");
        output
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn check(&self, program: &Path) -> Command {
        let mut command = kakehi(self.0.path());
        command.arg("check").arg(program);
        command.env("KAKEHI_PRELOAD", self.path("libkakehi_preload.so"));
        command
    }

    /// The document about `program`, whose verdict has to be `delegated`.
    #[track_caller]
    fn verdict(&self, program: &Path, delegated: bool) -> Value {
        let found = json(self.check(program).arg("--json"));
        assert_eq!(found.get("delegated"), Some(&delegated.into()), "{found:#}");
        let (code, _, line) = output(&mut self.check(program));
        assert_eq!(code, i32::from(!delegated), "{line}");
        assert_eq!(line.lines().count(), usize::from(!delegated), "{line}");
        found
    }
}

#[track_caller]
fn finding<'a>(document: &'a Value, name: &str, part: &str) -> &'a Value {
    let list = document["findings"].as_array().expect("a list");
    let has = |row: &&Value| row["name"] == name && row.to_string().contains(part);
    list.iter().find(has).unwrap_or_else(|| panic!("no {name} with {part}: {document:#}"))
}

#[test]
fn calls_are_judged_by_what_the_preload_library_defines() {
    let bench = Bench::new();
    let source = "#include <stdio.h>\n#include <unistd.h>\n#include <sys/stat.h>\n\
        int main(int n, char **a) { struct stat s; write(1, a, 0); fopen(*a, \"r\"); \
        fdatasync(0); return stat(*a, &s) + lseek(0, 0, 0); }";
    let found = bench.verdict(&bench.compile("app", source, &["-w"]), true);
    let covered = found["calls"]["covered"].as_array().expect("a list");
    assert!(covered.contains(&"write".into()) && covered.contains(&"fopen".into()));
    let uncovered = found["calls"]["uncovered"].as_array().expect("a list");
    let row = |symbol: &str| uncovered.iter().find(|row| row["symbol"] == symbol);
    for symbol in ["lseek", "fdatasync", "stat"] {
        let row = row(symbol).unwrap_or_else(|| panic!("{symbol} is listed: {found:#}"));
        assert_eq!(row["objects"][0], bench.path("app").display().to_string());
        assert!(row["effect"].as_str().expect("text").contains("10 ms"), "{row}");
    }
    assert!(row("write").is_none() && row("fwrite").is_none());
    finding(&found, "linkage", "dynamic");
}

/// A call that needs no wrapper is no reason for a note.
#[test]
fn calls_on_an_opened_folder_and_forks_are_covered_with_their_first() {
    let bench = Bench::new();
    let source = "#include <dirent.h>\n#include <unistd.h>\n\
        int main(void) { DIR *d = opendir(\".\"); return readdir(d) && fork(); }";
    let app = bench.compile("app", source, &["-w"]);
    let found = bench.verdict(&app, true);
    assert_eq!(found["calls"]["uncovered"], Value::Array(Vec::new()), "{found:#}");
    let (_, text, _) = output(&mut bench.check(&app));
    let verdict = text.lines().last().expect("a verdict");
    assert!(verdict.starts_with("Kakehi works for ") && verdict.ends_with("app'."), "{verdict}");
}

#[test]
fn calls_of_needed_libraries_count_and_are_found_by_runpath() {
    let bench = Bench::new();
    fs::create_dir(bench.path("deep")).expect("folder");
    let source = "#include <unistd.h>\nint save(void) { return fsync(0); }";
    bench.compile("deep/libsave.so", source, &["-shared", "-fPIC"]);
    let source = "int save(void); int main(void) { return save(); }";
    let link = ["-Ldeep", "-lsave", "-Wl,-rpath,$ORIGIN/deep", "-Wl,--enable-new-dtags"];
    let found = bench.verdict(&bench.compile("app", source, &link), true);
    let path = bench.path("deep/libsave.so").display().to_string();
    let list = found["libraries"].as_array().expect("a list");
    let library = list.iter().find(|row| row["name"] == "libsave.so").expect("libsave.so");
    let resolved = fs::canonicalize(library["path"].as_str().expect("a path")).expect("real");
    assert_eq!(resolved, fs::canonicalize(path).expect("real"));
    let call = &found["calls"]["uncovered"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|row| row["symbol"] == "fsync")
        .expect("fsync")["objects"];
    assert_eq!(call, &Value::from(vec!["libsave.so"]));

    fs::rename(bench.path("deep"), bench.path("gone")).expect("renamed");
    let found = bench.verdict(&bench.path("app"), true);
    finding(&found, "libraries", "libsave.so");
    let mut elsewhere = bench.check(&bench.path("app"));
    let found = json(elsewhere.arg("--json").env("LD_LIBRARY_PATH", bench.path("gone")));
    finding(&found, "libraries", "all found");
}

#[test]
fn static_programs_cannot_be_delegated() {
    let bench = Bench::new();
    for options in [["-static"], ["-static-pie"]] {
        let found = bench.verdict(&bench.compile("app", WRITER, &options), false);
        assert_eq!(finding(&found, "linkage", "static")["state"], "problem");
    }
}

#[test]
fn programs_of_the_thread_sanitizer_cannot_be_delegated() {
    let bench = Bench::new();
    let source = "void __tsan_init(void) {} int main(void) { return 0; }";
    let found = bench.verdict(&bench.compile("app", source, &["-rdynamic"]), false);
    finding(&found, "sanitizer", "-fsanitize=thread");
}

#[test]
fn programs_of_another_c_library_cannot_be_delegated() {
    let bench = Bench::new();
    let loader = ["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"];
    let found = bench.verdict(&bench.compile("app", WRITER, &loader), false);
    finding(&found, "linkage", "ld-musl");
}

#[test]
fn set_user_id_programs_cannot_be_delegated() {
    let bench = Bench::new();
    let program = bench.compile("app", WRITER, &[]);
    bench.verdict(&program, true);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("mode");
    let found = bench.verdict(&program, false);
    assert_eq!(finding(&found, "privileges", "LD_PRELOAD")["state"], "problem");
}

#[test]
fn programs_for_another_machine_cannot_be_delegated() {
    let bench = Bench::new();
    let program = bench.compile("app", WRITER, &[]);
    for (at, value) in [(4, 1_u8), (5, 2), (18, 0xf3)] {
        let mut bytes = fs::read(&program).expect("readable");
        bytes[at] = value;
        let foreign = bench.path("foreign");
        fs::write(&foreign, bytes).expect("written");
        finding(&bench.verdict(&foreign, false), "machine", "another machine");
    }
}

#[test]
fn a_script_is_followed_to_its_interpreter() {
    let bench = Bench::new();
    bench.compile("interpreter", WRITER, &["-static"]);
    let script = |name: &str, text: &str| {
        fs::write(bench.path(name), text).expect("file");
        bench.path(name)
    };
    let direct = script("direct", &format!("#!{} -x\n", bench.path("interpreter").display()));
    finding(&bench.verdict(&direct, false), "script", "interpreter");
    let by_env = script("by_env", "#!/usr/bin/env -S sh -e\n");
    let found = bench.verdict(&by_env, true);
    assert!(found["path"].as_str().expect("a path").ends_with("/sh"), "{found:#}");
    let cycle = script("cycle", &format!("#!{}\n", bench.path("cycle").display()));
    fails(&mut bench.check(&cycle), 1, &["scripts name each other"]);
    let dangling = script("dangling", "#!/nowhere/sh\n");
    fails(&mut bench.check(&dangling), 1, &["/nowhere/sh", "no such program"]);
}

#[test]
fn system_calls_by_instruction_and_go_are_noted() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let bench = Bench::new();
    let source = "__asm__(\".section .note.go.buildid,\\\"a\\\"\\n.long 1\\n.text\\n\
        mov $1, %eax\\nmov $1, %edi\\nsyscall\\n\"); int main(void) { return 0; }";
    let found = bench.verdict(&bench.compile("app", source, &[]), true);
    assert_eq!(found["system_calls"][0]["calls"]["write"], 1, "{found:#}");
    finding(&found, "system calls", "heuristic");
    finding(&found, "language", "Go");
    let found = bench.verdict(&bench.compile("plain", WRITER, &[]), true);
    assert_eq!(found["system_calls"], Value::Array(Vec::new()));
}

#[test]
fn a_programs_own_definition_of_a_call_is_noted() {
    let bench = Bench::new();
    let source = "long write(int a, void *b, long c) { return 0; } int main(void) { return 0; }";
    let program = bench.compile("app", source, &["-w", "-rdynamic"]);
    finding(&bench.verdict(&program, true), "calls", "defined by the program: write");
}

#[test]
fn without_a_preload_library_coverage_is_unknown_and_the_rest_is_told() {
    let bench = Bench::new();
    let program = bench.compile("app", WRITER, &[]);
    let mut command = bench.check(&program);
    let found = json(command.arg("--json").env("KAKEHI_PRELOAD", "/nowhere.so"));
    assert_eq!((&found["calls"], &found["delegated"]), (&Value::Null, &true.into()));
    finding(&found, "preload", "/nowhere.so");
}

#[test]
fn what_is_no_program_is_one_line() {
    let bench = Bench::new();
    fs::write(bench.path("text"), "hello").expect("file");
    fs::write(bench.path("half"), b"\x7fELF\x02\x01\x01").expect("file");
    fails(&mut bench.check(&bench.path("text")), 1, &["neither an ELF program nor a script"]);
    fails(&mut bench.check(Path::new("nosuchprogram")), 1, &["nosuchprogram", "PATH"]);
    fails(&mut bench.check(Path::new("/nowhere/app")), 1, &["/nowhere/app", "no such program"]);
    fails(&mut bench.check(bench.0.path()), 1, &["it is a folder"]);
    fails(&mut bench.check(Path::new("/dev/null")), 1, &["/dev/null", "it is no file"]);
    let mut damaged = fs::read(bench.compile("app", WRITER, &[])).expect("readable");
    damaged.truncate(200);
    fs::write(bench.path("half"), damaged).expect("file");
    fails(&mut bench.check(&bench.path("half")), 1, &["half", "name a program you can read"]);
}
