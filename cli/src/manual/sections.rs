//! Sections of a manual page beyond the help: examples, variables, files, and further reading; and
//! the page of the settings.

use std::{fmt::Write as _, iter};

use crate::settings::SETTINGS;

/// Commands that take settings, from files and variables.
const WITH_SETTINGS: [&str; 6] =
    ["kakehi", "kakehi-run", "kakehi-serve", "kakehi-env", "kakehi-config", "kakehi-doctor"];
/// Commands that look for the daemon of a job.
const OF_JOBS: [&str; 4] = ["kakehi-status", "kakehi-drain", "kakehi-jobs", "kakehi-top"];

/// Blocks of lines: the name of a page, and then each command line before what it is good for.
const EXAMPLES: &str = include_str!("examples");

/// Files of every command that takes settings.
const FILES: [(&str, &str); 4] = [
    ("/etc/kakehi/config.toml", "Settings of the site; see kakehi.toml(5)."),
    ("$XDG_CONFIG_HOME/kakehi/config.toml", "Settings of the user."),
    ("./kakehi.toml", "Settings of the folder that a command is started in."),
    (
        "$XDG_RUNTIME_DIR/kakehi/, /tmp/kakehi-UID/",
        "A folder for each job, with the socket of its \
      daemon; it goes with the daemon.",
    ),
];

/// The sections of the page of a command, called as its page is.
pub(super) fn of(name: &str) -> String {
    let mut text = String::new();
    if let Some((_, examples)) = examples().find(|(page, _)| *page == name) {
        text += ".SH EXAMPLES\n";
        for (line, meaning) in examples {
            let (line, meaning) = (roff(line), roff(meaning));
            // Infallible, as everywhere below.
            write!(text, ".TP\n.B {line}\n{meaning}\n").ok();
        }
    }
    if WITH_SETTINGS.contains(&name) || OF_JOBS.contains(&name) {
        text += &environment(WITH_SETTINGS.contains(&name));
        text += ".SH FILES\n";
        for (file, meaning) in FILES {
            write!(text, ".TP\n.I {}\n{}\n", roff(file), roff(meaning)).ok();
        }
    }
    text + &see_also(name)
}

/// Each page that has any, with its command lines and what each is good for.
fn examples() -> impl Iterator<Item = (&'static str, Vec<(&'static str, &'static str)>)> {
    EXAMPLES.split("\n\n").map(|block| {
        let mut lines = block.lines();
        let page = lines.next().unwrap_or_default();
        (page, iter::from_fn(|| lines.next().zip(lines.next())).collect())
    })
}

fn environment(has_settings: bool) -> String {
    let mut text = ".SH ENVIRONMENT\n".to_owned();
    let mut variable = |name: &str, meaning: &str| {
        write!(text, ".TP\n.B {}\n{}\n", roff(name), roff(meaning)).ok();
    };
    if has_settings {
        variable("KAKEHI_CONFIG", "A file with settings that outranks all other files.");
    }
    let shown =
        SETTINGS.iter().filter(|(name, _)| has_settings || ["socket", "job"].contains(name));
    for (name, meaning) in shown {
        variable(&format!("KAKEHI_{}", name.to_uppercase()), meaning);
    }
    variable("NO_COLOR", "Nothing is shown in colour, whatever its value.");
    variable(
        "SLURM_JOB_ID, PBS_JOBID, FLUX_JOB_ID, LSB_JOBID, PJM_JOBID, PMIX_NAMESPACE",
        "Where KAKEHI_JOB is not set, the first of them that is names the job.",
    );
    text
}

fn see_also(name: &str) -> String {
    let below = name.strip_prefix("kakehi-").unwrap_or_default();
    let mut pages = vec!["kakehi(1)"];
    pages.extend(match below.split('-').next().unwrap_or_default() {
        "" => &["kakehi-run(1)", "kakehi-doctor(1)", "kakehi-status(1)", "kakehi-multifile(1)"][..],
        "run" => &["kakehi-check(1)", "kakehi-status(1)", "kakehi-multifile(1)"],
        "serve" => &["kakehi-run(1)", "kakehi-env(1)", "kakehi-status(1)"],
        "status" | "jobs" | "top" => &["kakehi-jobs(1)", "kakehi-status(1)", "kakehi-top(1)"],
        "multifile" => &["kakehi-multifile(1)", "kakehi-run(1)"],
        _ => &["kakehi-run(1)", "kakehi-doctor(1)"],
    });
    pages.extend(["kakehi.toml(5)", "kakehi(3)"]);
    let own = format!("{name}(1)");
    pages.retain(|page| *page != own);
    format!(".SH \"SEE ALSO\"\n{}\n", pages.join(", "))
}

/// The page kakehi.toml(5).
pub(super) fn settings(source: &str) -> String {
    let mut text = format!(
        ".TH kakehi.toml 5 \" \" \"{source}\" \"Kakehi manual\"\n\
         .SH NAME\nkakehi.toml \\- settings of kakehi\n\
         .SH SYNOPSIS\n.nf\n/etc/kakehi/config.toml\n$XDG_CONFIG_HOME/kakehi/config.toml\n\
         \\&./kakehi.toml\n.fi\n\
         .SH DESCRIPTION\nA TOML file with one line for each setting. A later layer replaces the \
         value of an earlier one: defaults, the files above in this order, the file that \
         KAKEHI_CONFIG names, the variables KAKEHI_*, flags. A name that is not below is an error. \
         The settings preload, socket, and key are refused in ./kakehi.toml, which may have come \
         with the folder; and that file counts only where nobody else could have placed it.\n\
         .PP\nSizes have units of 1024 (4KiB, 32MiB, 1GiB), times one of ns, us, ms, s, min, h. A \
         list is a TOML list, or one text with semicolons.\n.SH SETTINGS\n"
    );
    for (name, meaning) in SETTINGS {
        let variable = format!("KAKEHI_{}", name.to_uppercase());
        write!(text, ".TP\n.B {name}\n{} ({variable})\n", roff(meaning)).ok();
    }
    text += ".SH EXAMPLES\n.nf\nidle = \"park\"\ncores = \"0\"\nstaging = \"32MiB\"\n\
             rules = [\"log/**=pass\", \"/scratch/**=hybrid\"]\n.fi\n";
    text + ".SH \"SEE ALSO\"\nkakehi(1), kakehi-run(1), kakehi-config(1)\n"
}

/// A text as roff takes it: what would be its own is escaped.
fn roff(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    if escaped.starts_with(['.', '\'']) { format!("\\&{escaped}") } else { escaped }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::whole;

    /// The pages there are, by the names of their files.
    fn pages() -> Vec<String> {
        fn below(command: &clap::Command, name: &str, pages: &mut Vec<String>) {
            pages.push(name.to_owned());
            for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
                below(inner, &format!("{name}-{}", inner.get_name()), pages);
            }
        }
        let mut pages = Vec::new();
        below(&whole(), "kakehi", &mut pages);
        pages
    }

    #[test]
    fn examples_are_of_commands_that_exist_and_parse() {
        let pages = pages();
        assert!(examples().count() > 10);
        for (page, examples) in examples() {
            assert!(pages.contains(&page.to_owned()) && !examples.is_empty(), "{page}");
            for (line, _) in examples.iter().filter(|(line, _)| line.starts_with("kakehi ")) {
                let words: Vec<_> = line.split(' ').map(|word| word.trim_matches('\'')).collect();
                let parsed = whole().try_get_matches_from(words);
                parsed.unwrap_or_else(|why| panic!("{line}: {why}"));
            }
        }
    }

    #[test]
    fn see_also_names_pages_that_exist() {
        let pages = pages();
        for page in &pages {
            let text = see_also(page);
            let named = text.lines().last().expect("a line").split(", ");
            for named in named.filter_map(|named| named.strip_suffix("(1)")) {
                assert!(pages.contains(&named.to_owned()) && named != page, "{page}: {named}");
            }
        }
    }

    #[test]
    fn roff_does_not_take_text_for_its_own() {
        assert_eq!(roff(".x -- \\n"), "\\&.x \\-\\- \\en");
    }
}
