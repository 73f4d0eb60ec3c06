//! `kakehi config`: layers, origins, and every kind of bad setting.

use std::{
    ffi::OsStr,
    fs,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt as _, fs::PermissionsExt as _, net::UnixStream},
    },
    path::Path,
    process::Command,
};

use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::{fails, json, kakehi, output};

struct Home(TempDir);

impl Home {
    fn new() -> Self {
        let home = Self(tempdir().expect("temporary folder"));
        fs::create_dir_all(home.0.path().join(".config/kakehi")).expect("folder");
        home
    }

    fn write(&self, name: &str, text: &str) -> &Self {
        let path = self.0.path().join(name);
        fs::write(&path, text).expect("file");
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).expect("mode");
        self
    }

    fn config(&self) -> Command {
        let mut command = kakehi(self.0.path());
        command.arg("config");
        command
    }
}

#[track_caller]
fn setting(document: &Value, name: &str) -> (String, String) {
    let list = document["settings"].as_array().expect("a list");
    let row = list.iter().find(|row| row["name"] == name).expect("the setting");
    let text = |key| row[key].as_str().unwrap_or("(unset)").to_owned();
    (text("value"), text("origin"))
}

#[test]
fn later_layers_replace_earlier_ones_and_say_so() {
    let home = Home::new();
    home.write(".config/kakehi/config.toml", "idle = 'spin'\nengine = 'threads'\ncores = '1'\n")
        .write("kakehi.toml", "engine = 'uring'\ncores = 2\nfence_timeout = '5s'\n")
        .write("named.toml", "cores = '3'\nstaging = 65536\nsync = true\n");
    let mut command = home.config();
    command.args(["--json", "--cores", "4,6-7"]);
    command.env("KAKEHI_CONFIG", "named.toml").env("KAKEHI_STAGING", "1M");
    let found = json(&mut command);

    let path = |name: &str| format!("file {}", home.0.path().join(name).display());
    let expect = |value: &str, origin: String| (value.to_owned(), origin);
    assert_eq!(setting(&found, "idle"), expect("spin", path(".config/kakehi/config.toml")));
    assert_eq!(setting(&found, "engine"), expect("uring", path("kakehi.toml")));
    assert_eq!(setting(&found, "fence_timeout"), expect("5s", path("kakehi.toml")));
    assert_eq!(setting(&found, "sync"), expect("1", "file named.toml".into()));
    assert_eq!(setting(&found, "staging"), expect("1MiB", "variable KAKEHI_STAGING".into()));
    assert_eq!(setting(&found, "cores"), expect("4,6-7", "flag --cores".into()));
    assert_eq!(setting(&found, "disable"), expect("0", "default".into()));
    assert_eq!(setting(&found, "job"), expect("(unset)", "default".into()));
}

#[test]
fn rules_that_folders_bring_come_from_where_those_do() {
    let home = Home::new();
    let flag = json(home.config().args(["--json", "--coalesce", "a=b.sion"]));
    assert_eq!(setting(&flag, "rules").1, "flag --coalesce");
    let variable = json(home.config().arg("--json").env("KAKEHI_MAP", "a=/b"));
    assert_eq!(setting(&variable, "rules").1, "variable KAKEHI_MAP");
    let own = json(home.config().args(["--json", "--coalesce", "a=b.sion", "--rule", "c=pass"]));
    assert_eq!(setting(&own, "rules").1, "flag --rule");
}

#[test]
fn text_form_names_variable_and_origin_of_every_setting() {
    let home = Home::new();
    let (code, shown, _) = output(home.config().arg("--show-origin").env("KAKEHI_LOG", "debug"));
    assert_eq!(code, 0);
    let settings = json(home.config().arg("--json"));
    assert_eq!(shown.lines().count(), settings["settings"].as_array().expect("a list").len());
    let line = shown.lines().find(|line| line.starts_with("log ")).expect("the log setting");
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words, ["log", "debug", "KAKEHI_LOG", "variable", "KAKEHI_LOG"]);
}

/// The words that stand in backquotes in a row of a table.
fn quoted(row: &str) -> Vec<&str> {
    row.split('`').skip(1).step_by(2).collect()
}

#[test]
fn settings_are_listed_as_in_the_reference() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/settings.md");
    let document = fs::read_to_string(document).expect("the settings");
    let rows = document.lines().filter(|line| line.starts_with("| `KAKEHI_"));
    let told: Vec<_> = rows
        .map(|row| {
            let default = row.split('|').nth(3).expect("a column").trim().trim_matches('`');
            vec![quoted(row)[0], quoted(row)[1], default]
        })
        .collect();

    let found = json(Home::new().config().arg("--json"));
    let settings = found["settings"].as_array().expect("a list").iter();
    let text = |row: &'_ Value, key| row[key].as_str().expect("a text").to_owned();
    let listed: Vec<_> = settings
        .zip(&told)
        .map(|(row, told)| {
            let default = match row["value"].as_str() {
                Some(value) if row["name"] != "memory" => value.to_owned(),
                // What it is then follows from the machine or the job, and is told in words.
                _ => told[2].to_owned(),
            };
            vec![text(row, "variable"), text(row, "name"), default]
        })
        .collect();
    assert_eq!(listed, told);
}

#[test]
fn a_list_of_rules_is_replaced_as_a_whole_and_made_absolute() {
    let home = Home::new();
    home.write("kakehi.toml", "rules = ['/scratch/**=delegate', 'tmp/*=pass']\n");
    let folder = home.0.path().display().to_string();
    let found = json(home.config().arg("--json"));
    let listed = format!("/scratch/**=delegate;{folder}/tmp/*=pass");
    assert_eq!(setting(&found, "rules").0, listed);

    let found = json(home.config().args(["--json", "--rule", "a=hybrid", "--rule", "/b=pass"]));
    assert_eq!(setting(&found, "rules").0, format!("{folder}/a=hybrid;/b=pass"));
}

#[test]
fn memory_defaults_to_a_quarter_of_what_the_job_may_use() {
    let found = json(Home::new().config().arg("--json"));
    let (value, origin) = setting(&found, "memory");
    assert!(value.ends_with("iB"), "{value}");
    assert_eq!(origin, "default");
}

#[test]
fn bad_values_name_the_setting_its_origin_and_what_is_wanted() {
    let home = Home::new();
    for (variable, value, wanted) in [
        ("KAKEHI_STAGING", "lots", "not a size like"),
        ("KAKEHI_STAGING", "255KiB", "less than 256KiB"),
        ("KAKEHI_MEMORY", "0", "less than 256KiB"),
        ("KAKEHI_FENCE_TIMEOUT", "30", "not a duration like"),
        ("KAKEHI_IDLE", "sleep", "interrupt, park, spin, poll-idle"),
        ("KAKEHI_ENGINE", "turbo", "auto, uring, threads"),
        ("KAKEHI_CORES", "2-1", "not a list of cores"),
        ("KAKEHI_RULES", "/a=fast", "pass, hybrid, delegate"),
        ("KAKEHI_RULES", "/a", "not GLOB=POLICY"),
        ("KAKEHI_SYNC", "maybe", "1, 0, true, false"),
        ("KAKEHI_LOG", "loud", "error, warn, info"),
    ] {
        fails(home.config().env(variable, value), 2, &[variable, value, wanted]);
    }
    let rules = "/a=pass;".repeat(513);
    fails(home.config().env("KAKEHI_RULES", rules), 2, &["KAKEHI_RULES", "at most 4096 bytes"]);
    let place = format!("unix:///{}", "x".repeat(107));
    fails(home.config().args(["--remote", &place]), 2, &["--remote", "at most 107 bytes"]);
    fails(home.config().args(["--socket", ""]), 2, &["--socket", "empty"]);
    fails(home.config().args(["--engine", "x"]), 2, &["--engine", "'x'"]);
    fails(home.config().args(["--rule", "x=remote"]), 2, &["rules", "'remote'", "--map"]);
    home.write("kakehi.toml", "memory = '12 parsec'\n");
    fails(home.config().env_remove("X"), 2, &["memory", "kakehi.toml", "12 parsec"]);
}

/// A map that reaches neither daemon nor programs as it is would leave files on this node.
#[test]
fn a_relative_path_is_refused_where_the_current_folder_cannot_be_written_down() {
    let home = Home::new();
    let (bytes, wild) = (OsStr::from_bytes(b"\xff"), OsStr::new("T=300K"));
    for (name, setting, wanted) in [
        (bytes, ["--map", "out=/run"], "not UTF-8"),
        (bytes, ["--key", "key"], "not UTF-8"),
        (bytes, ["--rule", "out/**=pass"], "not UTF-8"),
        (wild, ["--map", "out=/run"], "* ? ; ="),
    ] {
        let folder = home.0.path().join(name);
        fs::create_dir_all(&folder).expect("folder");
        fails(home.config().current_dir(folder).args(setting), 2, &[setting[0], wanted]);
    }
}

#[test]
fn unknown_names_are_refused_wherever_they_stand() {
    let home = Home::new();
    fails(home.config().env("KAKEHI_SNYC", "1"), 2, &["KAKEHI_SNYC", "sync"]);
    fails(home.config().env("KAKEHI_sync", "1"), 2, &["KAKEHI_sync", "unset"]);
    home.write("kakehi.toml", "stagin = '1MiB'\n");
    fails(&mut home.config(), 2, &["kakehi.toml", "unknown setting 'stagin'", "staging"]);
    home.write("kakehi.toml", "[idle]\nx = 1\n");
    fails(&mut home.config(), 2, &["kakehi.toml", "'idle'"]);
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_unless_it_is_optional() {
    let home = Home::new();
    fails(home.config().env("KAKEHI_CONFIG", "/nowhere.toml"), 2, &["/nowhere.toml", "No such"]);
    home.write("kakehi.toml", "idle = 'park'\nidle = \n");
    fails(&mut home.config(), 2, &["kakehi.toml:2", "TOML"]);
}

#[test]
fn a_local_file_that_others_can_write_is_refused() {
    let home = Home::new();
    home.write("kakehi.toml", "idle = 'park'\n");
    let path = home.0.path().join("kakehi.toml");
    let chmod = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode");
    };
    chmod(&path, 0o666);
    fails(&mut home.config(), 2, &["kakehi.toml", "another user can have written", "chmod go-w"]);
    chmod(&path, 0o644);
    chmod(home.0.path(), 0o770);
    fails(&mut home.config(), 2, &["kakehi.toml", "into this folder", "chmod go-w"]);
    chmod(home.0.path(), 0o755);
    assert_eq!(setting(&json(home.config().arg("--json")), "idle").0, "park");
}

#[test]
fn a_local_file_cannot_name_code_or_whom_to_trust() {
    let home = Home::new();
    for setting in ["preload", "socket", "key"] {
        home.write("kakehi.toml", &format!("{setting} = 'x'\n"));
        let variable = format!("KAKEHI_{}", setting.to_uppercase());
        fails(&mut home.config(), 2, &["kakehi.toml", setting, "current folder", &variable]);
        // Who names the file means it.
        let mut named = kakehi(Path::new("/"));
        named.env("KAKEHI_CONFIG", home.0.path().join("kakehi.toml"));
        assert_eq!(output(named.arg("config")).0, 0, "{setting}");
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let home = Home::new();
    let (reader, writer) = UnixStream::pair().expect("a pair");
    drop(reader);
    let ended = home.config().stdout(OwnedFd::from(writer)).output().expect("kakehi starts");
    assert!(ended.status.success());
    assert!(ended.stderr.is_empty());
}

#[test]
fn a_full_disk_under_standard_output_is_reported() {
    let full = fs::File::create("/dev/full").expect("/dev/full");
    let ended = Home::new().config().stdout(full).output().expect("kakehi starts");
    assert_eq!(ended.status.code(), Some(1));
    let line = String::from_utf8(ended.stderr).expect("UTF-8");
    assert!(line.starts_with("kakehi: standard output: No space left"), "{line}");
}

#[test]
fn what_module_systems_set_is_no_setting() {
    let home = Home::new();
    let mut command = home.config();
    command.env("KAKEHI_ROOT", "/opt/kakehi").env("KAKEHI_VERSION", "1");
    let (code, _, stderr) = output(&mut command);
    assert_eq!((code, stderr), (0, String::new()));
}
