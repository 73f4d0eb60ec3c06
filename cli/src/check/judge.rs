//! Meaning of a program's contents for delegation.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use serde::Serialize;

use super::{
    calls::{self, GROUPS},
    closure::Object,
};
use crate::{finding::Finding, image::Image};

const SET_ID: u32 = 0o6000;
/// The most names one line lists.
const NAMES_SHOWN: usize = 12;

/// The calls of a program and its libraries, against those the preload library has.
#[derive(Debug, Default, Serialize)]
pub(super) struct Calls {
    pub(super) covered: BTreeSet<String>,
    pub(super) uncovered: Vec<Uncovered>,
}

/// A call that is not interposed.
#[derive(Debug, Serialize)]
pub(super) struct Uncovered {
    symbol: String,
    effect: &'static str,
    /// Objects that make the call.
    objects: Vec<String>,
}

impl Calls {
    pub(super) fn of(objects: &[Object], interposed: &BTreeSet<String>) -> Self {
        let mut users: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for object in objects {
            for symbol in &object.image.imports {
                users.entry(symbol).or_default().push(object.name.clone());
            }
        }
        let mut found = Self::default();
        for (symbol, objects) in users {
            let Some(group) = calls::group(symbol) else {
                continue;
            };
            let by = calls::served_by(symbol).unwrap_or(symbol);
            if interposed.contains(by) && group.effect != calls::WALKS {
                found.covered.insert(symbol.to_owned());
            } else {
                let (symbol, effect) = (symbol.to_owned(), group.effect);
                found.uncovered.push(Uncovered { symbol, effect, objects });
            }
        }
        found
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let count = self.covered.len();
        // Those that move bytes come before those on names.
        let names = names(calls::all().filter(|name| self.covered.contains(*name)));
        let found = format!("{count} covered{names}");
        let mut findings = match count {
            0 => vec![Finding::note("calls", "none covered", "no file call goes through Kakehi")],
            _ => vec![Finding::ok("calls", found, "these file calls go through Kakehi")],
        };
        for group in &GROUPS {
            let of_group = self.uncovered.iter().filter(|call| call.effect == group.effect);
            let symbols: Vec<_> = of_group.map(|call| call.symbol.as_str()).collect();
            if !symbols.is_empty() {
                let found = format!("{} not covered{}", symbols.len(), self::names(symbols));
                findings.push(Finding::note("calls", found, group.effect));
            }
        }
        findings
    }
}

/// Findings about the loader: does it load the preload library into this program at all?
pub(super) fn loading(path: &Path, image: &Image) -> Vec<Finding> {
    let mut findings = vec![linkage(image)];
    if image.go {
        findings.push(
            Finding::note("language", "Go", "Go's own packages call the kernel, undelegated")
                .advise("only its C parts (cgo) are delegated"),
        );
    }
    let set_id = fs::metadata(path).is_ok_and(|file| file.mode() & SET_ID != 0);
    if set_id {
        findings.push(privileged("set-user-id or set-group-id"));
    }
    let capabilities = rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64]);
    if capabilities.is_ok() {
        findings.push(privileged("file capabilities"));
    }
    findings
}

fn linkage(image: &Image) -> Finding {
    const NAME: &str = "linkage";
    const ADVICE: &str = "link it dynamically, against the GNU C library";
    match &image.interpreter {
        None if !image.program => {
            Finding::note(NAME, "a shared library", "checked as a part of a program")
        }
        None => Finding::problem(NAME, "static", "no loader runs, so nothing can be interposed")
            .advise(ADVICE),
        Some(loader) if is_glibc_loader(loader) => Finding::ok(
            NAME,
            format_args!("dynamic, {loader}"),
            "the loader loads the preload library",
        ),
        Some(loader) => Finding::problem(
            NAME,
            format_args!("another C library ({loader})"),
            "the preload library is built for the GNU C library",
        )
        .advise(ADVICE),
    }
}

fn is_glibc_loader(loader: &str) -> bool {
    let name = Path::new(loader).file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("ld-linux"))
}

fn privileged(found: &str) -> Finding {
    Finding::problem("privileges", found, "the loader ignores LD_PRELOAD for such a program")
        .advise("use a copy without them")
}

pub(super) fn libraries(objects: &[Object]) -> Finding {
    const NAME: &str = "libraries";
    const MEANING: &str = "their calls are checked, too; libraries loaded at run time are not";
    let missing = objects.iter().filter(|object| object.path.is_none());
    let missing: Vec<_> = missing.map(|object| object.name.as_str()).collect();
    let count = objects.len().saturating_sub(1);
    if missing.is_empty() {
        return Finding::ok(NAME, format_args!("{count}, all found"), MEANING);
    }
    let found = format!("{} of {count} not found{}", missing.len(), names(missing));
    Finding::note(NAME, found, MEANING).advise("set LD_LIBRARY_PATH as the program needs it")
}

/// A program's own definition comes before the preload library's.
pub(super) fn own_definitions(program: &Image, interposed: &BTreeSet<String>) -> Option<Finding> {
    let own = program.exports.intersection(interposed).map(String::as_str);
    let own: Vec<_> = own.filter(|name| calls::group(name).is_some()).collect();
    let found = format!("{} defined by the program{}", own.len(), names(own.iter().copied()));
    let meaning = "these calls bypass Kakehi; a sanitizer or an I/O library may be linked in";
    (!own.is_empty()).then(|| Finding::note("calls", found, meaning))
}

/// A sanitizer that watches each access to memory takes the library's for the program's.
pub(super) fn sanitizer(objects: &[Object]) -> Option<Finding> {
    let kinds = [("__tsan_init", "-fsanitize=thread"), ("__msan_init", "-fsanitize=memory")];
    let is_in = |name: &str| objects.iter().any(|object| object.image.exports.contains(name));
    let (_, flag) = kinds.into_iter().find(|(name, _)| is_in(name))?;
    let meaning = "it would report the library's accesses to memory";
    Some(Finding::problem("sanitizer", flag, meaning).advise("build it without that flag"))
}

/// Calls by instruction, a line for each file that has them.
pub(super) fn raw_calls(objects: &[Object]) -> Vec<Finding> {
    let with = objects.iter().filter(|object| !object.image.sites.0.is_empty());
    let finding = |object: &Object| {
        let sites = object.image.sites.0.iter().map(|(name, count)| format!("{name} x{count}"));
        let sites: Vec<_> = sites.collect();
        let found = format!("{} makes {} itself", object.name, sites.join(", "));
        let meaning = "these calls bypass Kakehi: correct on a real descriptor, undelegated \
            (found by a heuristic)";
        Finding::note("system calls", found, meaning)
    };
    with.map(finding).collect()
}

/// `: a, b, c and 4 more`, or nothing.
fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let all: Vec<_> = names.into_iter().collect();
    let shown = all.get(..NAMES_SHOWN).unwrap_or(&all);
    match all.len() - shown.len() {
        _ if all.is_empty() => String::new(),
        0 => format!(": {}", shown.join(", ")),
        more => format!(": {} and {more} more", shown.join(", ")),
    }
}
