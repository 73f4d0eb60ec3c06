//! Numbers of the code and the documents, with bounds that may only get tighter. Run with
//! `--nocapture` to see them.
//!
//! Sources are read as text: the formatter puts the end of a function at the indent of its start.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
};

use crate::tidy::{root, visit};

/// Lines of the longest function of 99 in 100.
const FUNCTION_P99_MAX: usize = 45;
/// Parameters that are tuples.
const TUPLES_MAX: usize = 2;
/// Doc comments that begin with What, Who, Whoever, Whose, or Whether.
const RIDDLES_MAX: usize = 20;
/// Words of all Markdown that have a letter.
const WORDS_MAX: usize = 28_000;
/// Assertions in 1,000 functions outside of tests, at least.
const ASSERTED_MIN: [(&str, usize); 5] =
    [("client", 50), ("daemon", 80), ("storage", 50), ("multifile", 60), ("transport/shm", 60)];
/// Modules of a crate that are in cycles with others. Crates that are not listed have none.
const CYCLES_MAX: [(&str, usize); 4] =
    [("bench", 2), ("client/preload", 4), ("runtime/ucx", 4), ("python", 6)];

#[test]
fn functions_stay_short_and_take_few_tuples() {
    let mut lengths = Vec::new();
    let mut tuples = 0;
    for (_, text) in sources() {
        for function in functions(&text) {
            lengths.push(function.len);
            tuples += function.tuples;
        }
    }
    lengths.sort_unstable();
    let p99 = lengths[lengths.len() * 99 / 100];
    println!("functions: {}, lines at p99: {p99}, tuple parameters: {tuples}", lengths.len());
    assert!(p99 <= FUNCTION_P99_MAX, "{p99} lines, limit {FUNCTION_P99_MAX}");
    assert!(tuples <= TUPLES_MAX, "{tuples} tuple parameters, limit {TUPLES_MAX}");
}

#[test]
fn code_asserts_its_invariants() {
    let mut counts = BTreeMap::<&str, (usize, usize)>::new();
    for (path, text) in sources() {
        let Some((part, _)) = ASSERTED_MIN.iter().find(|(part, _)| is_in(&path, part)) else {
            continue;
        };
        let count = counts.entry(part).or_default();
        let starts = ["assert!(", "assert_eq!(", "assert_ne!(", "invariant!("];
        count.0 += starts.iter().map(|start| text.matches(start).count()).sum::<usize>();
        count.1 += functions(&text).len();
    }
    for (part, least) in ASSERTED_MIN {
        let (assertions, functions) = counts[part];
        let found = assertions * 1000 / functions;
        println!("{part}: {assertions} assertions, {found} in 1,000 functions");
        assert!(found >= least, "{part}: {found} in 1,000 functions, at least {least}");
    }
}

#[test]
fn doc_comments_begin_with_what_they_describe() {
    let mut riddles = Vec::new();
    visit(&root(), "rs", &mut |path, text| {
        let mut before = "";
        for (index, line) in text.lines().map(str::trim_start).enumerate() {
            let (mark, said) = line.split_at_checked(3).unwrap_or((line, ""));
            let is_first = matches!(mark, "///" | "//!") && !before.starts_with(mark);
            let word = said.trim_start().split(' ').next().unwrap_or_default();
            if is_first && ["What", "Who", "Whoever", "Whose", "Whether"].contains(&word) {
                riddles.push(format!("{}:{}: {line}", path.display(), index + 1));
            }
            before = line;
        }
    });
    println!("doc comments that begin with a riddle: {}", riddles.len());
    assert!(riddles.len() <= RIDDLES_MAX, "limit {RIDDLES_MAX}:\n{}", riddles.join("\n"));
}

#[test]
fn documents_stay_short() {
    let mut words = 0;
    visit(&root(), "md", &mut |_, text| {
        words += text.split_whitespace().filter(|word| word.contains(char::is_alphabetic)).count();
    });
    println!("words of Markdown: {words}");
    assert!(words <= WORDS_MAX, "{words} words, limit {WORDS_MAX}");
}

#[test]
fn cycles_between_modules_do_not_grow() {
    let mut crates = BTreeMap::<String, BTreeMap<String, BTreeSet<String>>>::new();
    for (path, text) in sources() {
        let Some((name, rest)) = path.split_once("/src/") else { continue };
        let module = rest.split('/').next().unwrap_or_default().trim_end_matches(".rs");
        if !["lib", "main", "bin"].contains(&module) {
            let modules = crates.entry(name.to_owned()).or_default();
            modules.entry(module.to_owned()).or_default().extend(used(&text));
        }
    }
    let mut grown = String::new();
    for (name, uses) in &crates {
        let cyclic: Vec<_> = uses.keys().filter(|module| reaches(uses, module)).collect();
        let most = CYCLES_MAX.iter().find(|(listed, _)| listed == name).map_or(0, |entry| entry.1);
        if !cyclic.is_empty() {
            println!("{name}: {} modules in cycles", cyclic.len());
        }
        if cyclic.len() > most {
            writeln!(grown, "{name}: {} modules, limit {most}: {cyclic:?}", cyclic.len())
                .expect("room");
        }
    }
    assert!(grown.is_empty(), "modules that use each other in cycles:\n{grown}");
}

struct Function {
    len: usize,
    tuples: usize,
}

/// The functions with a body, as far as the text tells.
fn functions(text: &str) -> Vec<Function> {
    let lines: Vec<_> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate().filter(|(_, line)| is_function(line)) {
        let ends = |line: &&str| line.ends_with(['{', ';', '}']);
        let Some(head) = lines[start..].iter().position(ends) else { continue };
        let signature = lines[start..=start + head].join(" ");
        if signature.ends_with(';') {
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        let end = format!("{indent}}}");
        let body = lines[start..].iter().position(|line| *line == end).unwrap_or(head);
        let parameters = signature.split("->").next().unwrap_or_default();
        let tuples = [": (", ": &(", ": &mut ("].iter().map(|is| parameters.matches(is).count());
        found.push(Function { len: body + 1, tuples: tuples.sum() });
    }
    found
}

fn is_function(line: &str) -> bool {
    let Some((before, after)) = line.split_once("fn ") else { return false };
    let words = ["pub", "const", "async", "unsafe", "extern", "\"C\"", "default"];
    let is_modifier = |word: &str| words.contains(&word) || word.starts_with("pub(");
    before.split_whitespace().all(|word| is_modifier(word) || word.ends_with(')'))
        && after.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Modules of the crate that a file names: `crate::a::B`, `use crate::{a::B, c}`.
fn used(text: &str) -> BTreeSet<String> {
    let mut modules = BTreeSet::new();
    for after in text.split("crate::").skip(1) {
        let Some(group) = after.strip_prefix('{') else {
            modules.insert(word(after));
            continue;
        };
        let mut depth = 0;
        let mut is_start = true;
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => is_start = true,
                c if is_start && !c.is_whitespace() => {
                    modules.insert(word(&group[at..]));
                    is_start = false;
                }
                _ => {}
            }
        }
    }
    modules
}

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// True if `from` uses itself by way of another module.
fn reaches(uses: &BTreeMap<String, BTreeSet<String>>, from: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut next: Vec<_> = uses[from].iter().filter(|module| *module != from).collect();
    while let Some(module) = next.pop() {
        if module == from {
            return true;
        }
        if let (Some(further), true) = (uses.get(module), seen.insert(module)) {
            next.extend(further.iter().filter(|to| *to != module));
        }
    }
    false
}

/// The sources outside of tests by their path in the repository, without their test modules.
fn sources() -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    visit(&root, "rs", &mut |path, text| {
        let path = relative(&root, path);
        if !is_test(&path) {
            let tests = ["\nmod tests {", "\nmod loom_tests {"];
            let end = tests.iter().filter_map(|start| text.find(start)).min();
            found.push((path, text[..end.unwrap_or(text.len())].to_owned()));
        }
    });
    found
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).expect("below the root").display().to_string()
}

fn is_test(path: &str) -> bool {
    let is_part = |part: &str| {
        let name = part.trim_end_matches(".rs");
        name.ends_with("tests") || name == "simulation"
    };
    ["e2e", "fuzz"].iter().any(|folder| is_in(path, folder)) || path.split('/').any(is_part)
}

fn is_in(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}
