//! Rules about the documents that no reader should have to check: their width, where their links
//! lead, and that the files and tests that they name are there.

use std::{collections::BTreeMap, fs, path::Path};

use crate::tidy::{COLUMNS_MAX, root, visit};

/// Folders of the repository. What stands in backquotes, begins with one, and ends like a folder or
/// a file, is a name.
const FOLDERS: [&str; 13] = [
    "client/",
    "transport/",
    "daemon/",
    "storage/",
    "runtime/",
    "multifile/",
    "cli/",
    "bench/",
    "e2e/",
    "fuzz/",
    "docs/",
    "packaging/",
    "python/",
];

#[test]
fn prose_is_not_wider_than_a_page() {
    let mut untidy = Vec::new();
    visit(&root(), "md", &mut |path, text| {
        for (number, line) in prose(text) {
            let width = line.chars().count();
            let is_row_or_code = line.starts_with('|') || line.starts_with("    ");
            if width > COLUMNS_MAX && !is_row_or_code {
                untidy.push(format!("{}:{number}: {width} columns", path.display()));
            }
        }
    });
    assert!(untidy.is_empty(), "limit {COLUMNS_MAX}:\n{}", untidy.join("\n"));
}

#[test]
fn relative_links_and_anchors_are_there() {
    let mut broken = Vec::new();
    visit(&root(), "md", &mut |path, text| {
        for (number, line) in prose(text) {
            for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                if !link.contains("://") && !leads_somewhere(path, link) {
                    broken.push(format!("{}:{number}: {link}", path.display()));
                }
            }
        }
    });
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn files_that_documents_name_are_there() {
    let root = root();
    let mut missing = Vec::new();
    visit(&root, "md", &mut |path, text| {
        for (number, line) in prose(text) {
            let quoted = line.split('`').skip(1).step_by(2);
            let names = quoted.filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)));
            for name in names.filter(|name| is_name(name)) {
                if !root.join(name).exists() {
                    missing.push(format!("{}:{number}: {name}", path.display()));
                }
            }
        }
    });
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn functions_that_documents_name_are_in_their_files() {
    let root = root();
    let mut missing = Vec::new();
    visit(&root, "md", &mut |path, text| {
        for (number, line) in prose(text) {
            for (file, name) in line.split('`').skip(1).step_by(2).filter_map(function) {
                let source = fs::read_to_string(root.join(file)).unwrap_or_default();
                let is_there =
                    ["(", "<"].iter().any(|end| source.contains(&format!("fn {name}{end}")));
                if !is_there {
                    missing.push(format!("{}:{number}: {file}::{name}", path.display()));
                }
            }
        }
    });
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// The file and the function of a name like `cli/src/run.rs::run`.
fn function(word: &str) -> Option<(&str, &str)> {
    word.split_once(".rs::").map(|(file, name)| (&word[..file.len() + 3], name))
}

#[test]
fn paths_in_the_architecture_have_at_most_eight_steps() {
    let document = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the document");
    let paths: Vec<_> = document.split("\n## The path of ").skip(1).collect();
    assert_eq!(paths.len(), 5, "a write, a read, a remote request, a coalesced create and read");
    for path in paths {
        let path = path.split("\n## ").next().expect("a section");
        let steps = path.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
        assert!((1..=8).contains(&steps.count()), "{path}");
    }
}

/// `a/{b,c}.rs` names several, `a/…` and `a/*` any, and `write/4KiB` a row of a bench.
fn is_name(word: &str) -> bool {
    !word.contains(['…', '*', '{', ' '])
        && !word.contains("::")
        && (word.contains('.') || word.ends_with('/'))
}

/// Names in `(test: …)` and `(tests: …)` are functions or modules; `…` ends a part of a name.
#[test]
fn rules_of_the_protocol_count_up_and_their_tests_are_there() {
    let document =
        fs::read_to_string(root().join("docs/reference/protocol.md")).expect("the protocol");
    let rules: Vec<usize> = document
        .split("\nRule ")
        .skip(1)
        .map(|rest| rest.split('.').next().expect("a number").parse().expect("a number"))
        .collect();
    assert_eq!(rules, (1..=rules.len()).collect::<Vec<_>>());

    let mut sources = String::new();
    visit(&root(), "rs", &mut |_, text| sources += text);
    let cited = document.split("(test").skip(1).filter_map(|rest| rest.split(')').next());
    let missing: Vec<_> = cited
        .flat_map(|names| names.split('`').skip(1).step_by(2))
        .map(|name| name.split('…').next().expect("a beginning"))
        .filter(|name| !["fn", "mod"].iter().any(|k| sources.contains(&format!("{k} {name}"))))
        .collect();
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// The lines outside of fenced code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    lines.filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// True if there is what a relative `link` of the document `from` names.
fn leads_somewhere(from: &Path, link: &str) -> bool {
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, a)| (file, Some(a)));
    let folder = from.parent().expect("a folder");
    let path = if file.is_empty() { from.to_owned() } else { folder.join(file) };
    let Some(anchor) = anchor else { return path.exists() };
    fs::read_to_string(path).is_ok_and(|text| anchors(&text).contains(&anchor.to_owned()))
}

/// The anchors that a document's headings get where it is shown.
fn anchors(text: &str) -> Vec<String> {
    let mut seen = BTreeMap::<String, usize>::new();
    let headings = prose(text).filter_map(|(_, line)| line.strip_prefix('#'));
    headings
        .map(|heading| {
            let title = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
            let times = seen.entry(anchor.clone()).or_default();
            *times += 1;
            if *times == 1 { anchor } else { format!("{anchor}-{}", *times - 1) }
        })
        .collect()
}
