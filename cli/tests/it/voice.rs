//! How commands speak: quietly or not, as JSON, folded and coloured on a terminal, and with what
//! may have been meant.

use std::{fs, path::Path, process::Command};

use serde_json::Value;
use tempfile::tempdir;

use crate::{fails, kakehi, output};

/// Returns the output of `arguments` on a terminal of so many columns.
pub(crate) fn shown(
    folder: &Path,
    arguments: &str,
    columns: u16,
    variables: &[(&str, &str)],
) -> String {
    let line = format!("stty cols {columns}; exec \"$KAKEHI\" {arguments}");
    let mut terminal = Command::new("script");
    terminal.args(["-qc", &line, "/dev/null"]).current_dir(folder);
    terminal.env("KAKEHI", env!("CARGO_BIN_EXE_kakehi")).env("TERM", "xterm");
    terminal.env_remove("NO_COLOR").envs(variables.iter().copied());
    let output = terminal.stdin(std::process::Stdio::null()).output().expect("script starts");
    String::from_utf8(output.stdout).expect("UTF-8").replace('\r', "")
}

/// The same text without the marks of colours.
fn plain(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.split_once('m').map_or(part, |(_, rest)| rest));
    first + &rest.collect::<String>()
}

#[test]
fn lines_fold_between_words_at_the_width_of_the_terminal() {
    let folder = tempdir().expect("temporary folder");
    let (_, whole, _) = output(kakehi(folder.path()).args(["check", "/bin/sh", "-c", "true"]));
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for columns in [80, 200] {
        let shown = plain(&shown(folder.path(), "check /bin/sh -c true", columns, &[]));
        let fits = |line: &str| line.chars().count() <= usize::from(columns);
        assert!(shown.lines().all(fits), "{shown}");
        assert_eq!(words(&shown), words(&whole));
    }
    let runtime = folder.path().to_str().expect("UTF-8");
    let variables = [("XDG_RUNTIME_DIR", runtime), ("KAKEHI_JOB", "folded"), ("HOME", runtime)];
    // What is free differs from one moment to the next.
    let fixed = |text: &str| {
        let mut words = words(text);
        words.retain(|word| !word.contains(|letter: char| letter.is_ascii_digit()));
        words
    };
    for command in ["doctor", "config", "config --show-origin", "status", "drain", "jobs", "check"]
    {
        let mut whole = kakehi(folder.path());
        let whole = whole.args(command.split(' ')).envs(variables).env("TERM", "xterm");
        let (_, stdout, stderr) = output(whole);
        let shown = plain(&shown(folder.path(), command, 80, &variables));
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{command}: {shown}");
        assert!(shown.lines().count() > 1 || command == "jobs", "{command}: {shown}");
        // A path is broken behind a slash.
        let joined = |words: Vec<String>| words.concat();
        assert_eq!(joined(fixed(&shown)), joined(fixed(&(stdout + &stderr))), "{command}");
    }
}

#[test]
fn colour_is_for_terminals_that_want_it() {
    let folder = tempdir().expect("temporary folder");
    assert!(shown(folder.path(), "check /bin/sh", 80, &[]).contains("\x1b[32mok\x1b[0m"));
    for variable in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let shown = shown(folder.path(), "check /bin/sh", 80, &[variable]);
        assert!(!shown.contains('\x1b') && shown.contains("ok "), "{shown}");
    }
    let (_, text, _) = output(kakehi(folder.path()).args(["check", "/bin/sh"]));
    assert!(!text.contains('\x1b'));
}

#[test]
fn quiet_commands_say_only_what_is_not_well() {
    let folder = tempdir().expect("temporary folder");
    let (code, text, _) = output(kakehi(folder.path()).args(["-q", "doctor"]));
    assert!(!text.lines().any(|line| line.starts_with("ok ")), "{text}");
    assert_eq!(code, output(kakehi(folder.path()).arg("doctor")).0);
}

#[test]
fn errors_are_json_where_json_was_asked_for() {
    let folder = tempdir().expect("temporary folder");
    for (words, code) in [
        (&["status", "--json", "--socket", "job"][..], 3),
        (&["check", "./none", "--json"], 1),
        (&["status", "--json", "--frobnicate"], 2),
        (&["multifile", "ls", "--json", "none"], 1),
    ] {
        let (found, stdout, stderr) = output(kakehi(folder.path()).args(words));
        assert_eq!((found, stdout.as_str()), (code, ""), "{stderr}");
        let error: Value = serde_json::from_str(&stderr).expect("one document");
        assert_eq!(error["error"]["exit_status"], code, "{error}");
        for part in ["object", "reason", "advice"] {
            assert!(error["error"][part].as_str().is_some_and(|text| !text.is_empty()), "{error}");
        }
    }
    let (_, _, stderr) = output(kakehi(folder.path()).args(["run", "./none", "--json"]));
    assert!(stderr.starts_with("kakehi: "), "{stderr}");
}

/// The commands that a help lists, without those of the parser and the benches'.
fn commands(help: &str) -> Vec<String> {
    let (_, list) = help.split_once("Commands:\n").expect("a list");
    let list = list.lines().take_while(|line| !line.is_empty());
    let names = list.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next().map(str::to_owned));
    names.filter(|name| name != "help" && name != "bench").collect()
}

#[test]
fn every_command_with_json_tells_mistakes_as_json() {
    let folder = tempdir().expect("temporary folder");
    let help = |words: &[&str]| {
        let (code, text, errors) = output(kakehi(folder.path()).args(words).arg("--help"));
        assert_eq!(code, 0, "{errors}");
        text
    };
    let all = commands(&help(&[])).into_iter().map(|name| vec![name]);
    let below = commands(&help(&["multifile"])).into_iter();
    let all = all.chain(below.map(|name| vec!["multifile".to_owned(), name]));
    let mut tried = 0;
    for path in all {
        let path: Vec<_> = path.iter().map(String::as_str).collect();
        if path == ["multifile"] || !help(&path).contains("--json") {
            continue;
        }
        let mut command = kakehi(folder.path());
        let (code, stdout, stderr) = output(command.args(&path).args(["--json", "--frobnicate"]));
        assert_eq!((code, &*stdout), (2, ""), "{path:?}");
        let error: Value =
            serde_json::from_str(&stderr).unwrap_or_else(|why| panic!("{path:?}: {why}: {stderr}"));
        for part in ["object", "reason", "advice"] {
            assert!(error["error"][part].is_string(), "{path:?}: {error}");
        }
        tried += 1;
    }
    assert!(tried > 10, "{tried}");
}

#[test]
fn commands_without_their_argument_say_which_is_missing() {
    let folder = tempdir().expect("temporary folder");
    fails(kakehi(folder.path()).arg("check"), 2, &["<PROGRAM>", "'kakehi check --help'"]);
    let not_mounted = "it is not mounted; name the folder";
    fails(kakehi(folder.path()).args(["umount", "nothing"]), 1, &[not_mounted]);
}

#[test]
fn what_may_have_been_meant_is_said() {
    let folder = tempdir().expect("temporary folder");
    let fails_with =
        |words: &[&str], part: &str| fails(kakehi(folder.path()).args(words), 2, &[part]);
    fails_with(&["config", "--idle", "prak"], "did you mean 'park'?");
    fails_with(&["statsu"], "'status'");
    fails_with(&["./app"], "'kakehi run -- ./app'");
    fs::write(folder.path().join("kakehi.toml"), "stagin = \"1MiB\"\n").expect("a file");
    fails_with(&["config"], "did you mean 'staging'?");
    fs::remove_file(folder.path().join("kakehi.toml")).expect("there");
    let mut command = kakehi(folder.path());
    fails(command.arg("config").env("KAKEHI_IDEL", "park"), 2, &["did you mean KAKEHI_IDLE?"]);
}

#[test]
fn completions_offer_the_values_of_flags() {
    let folder = tempdir().expect("temporary folder");
    assert_eq!(output(kakehi(folder.path()).args(["manual", "share"])).0, 0);
    let bash = folder.path().join("share/bash-completion/completions/kakehi.bash");
    let script = "source \"$0\"; COMP_WORDS=(kakehi run --idle ''); COMP_CWORD=3; \
                  _kakehi kakehi '' --idle; echo \"${COMPREPLY[@]}\"";
    let (code, offered, errors) = output(Command::new("bash").args(["-c", script]).arg(&bash));
    assert_eq!(code, 0, "{errors}");
    assert_eq!(offered.trim(), "interrupt park spin poll-idle");
}

#[test]
fn manual_pages_have_the_sections_of_a_page() {
    let folder = tempdir().expect("temporary folder");
    assert_eq!(output(kakehi(folder.path()).args(["manual", "share"])).0, 0);
    let page = |name: &str| {
        fs::read_to_string(folder.path().join("share/man").join(name)).expect("a page")
    };
    let run = page("man1/kakehi-run.1");
    for part in ["EXAMPLES", "ENVIRONMENT", "FILES", "\"SEE ALSO\""] {
        assert!(run.contains(&format!(".SH {part}\n")), "{part}");
    }
    let settings = page("man5/kakehi.toml.5");
    let (_, listed, _) = output(kakehi(folder.path()).arg("config"));
    for name in listed.lines().filter_map(|line| line.split(' ').next()) {
        assert!(settings.contains(&format!(".B {name}\n")), "{name}");
    }
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../client/capi/include/kakehi.h");
    let (header, library) = (fs::read_to_string(header).expect("readable"), page("man3/kakehi.3"));
    let prototypes =
        header.lines().filter(|line| line.contains('(') && !line.starts_with([' ', '/']));
    let names = prototypes.filter_map(|line| {
        let before = line.split('(').next()?;
        before.rsplit([' ', '*']).next().filter(|name| name.starts_with("kakehi_"))
    });
    let names: Vec<_> = names.collect();
    assert_eq!(names.len(), 10, "{names:?}");
    names.iter().for_each(|name| assert!(library.contains(&format!("{name}(")), "{name}"));
    // Where there is a formatter it has nothing to complain of.
    let Ok(man) = Command::new("man")
        .args(["--warnings", "-l"])
        .arg(folder.path().join("share/man/man5/kakehi.toml.5"))
        .env("MANWIDTH", "80")
        .output()
    else {
        return println!("1 SKIPPED: no man");
    };
    if man.status.success() {
        assert_eq!(String::from_utf8_lossy(&man.stderr), "");
    }
}

/// A relative path, and what `extract` makes of it.
#[test]
fn join_keeps_names_and_extract_brings_them_back() {
    let folder = tempdir().expect("temporary folder");
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("ckpt/sub")).expect("folders");
    fs::write(at("ckpt/rank.0"), "zero").expect("a file");
    fs::write(at("ckpt/sub/rank.1"), "one").expect("a file");
    let multifile = |words: &[&str]| {
        let (code, _, errors) = output(kakehi(folder.path()).arg("multifile").args(words));
        assert_eq!((code, errors.as_str()), (0, ""), "{words:?}");
    };
    let files = ["ckpt/rank.0", "./ckpt/../ckpt/sub/rank.1"];
    multifile(&["join", "kept.sion", "--names=ckpt", files[0], files[1]]);
    multifile(&["extract", "kept.sion", "again"]);
    multifile(&["verify", "kept.sion"]);
    let same = Command::new("diff").args(["-r", "ckpt", "again"]).current_dir(&folder).status();
    assert!(same.expect("diff starts").success());
    let outside = ["multifile", "join", "x", "--names=ckpt/sub", files[0]];
    fails(kakehi(folder.path()).args(outside), 2, &["it is not below ckpt/sub"]);
    let twice = ["multifile", "join", "x", "--names=ckpt", files[0], files[0]];
    fails(kakehi(folder.path()).args(twice), 2, &["named twice"]);
}
