//! `kakehi manual`: manual pages and shell completions, from the definitions that the help has.

mod sections;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap_complete::Shell;

use crate::failure::{Code, Failure};

/// Where a shell looks for completions below the share folder of an installation.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/site-functions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];

/// Stands at the foot of every page.
const SOURCE: &str = concat!("Kakehi ", env!("CARGO_PKG_VERSION"));

/// Writes manual pages and shell completions, as 'make install' does
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The share folder of an installation, like ~/.local/share.
    folder: PathBuf,
}

pub(crate) fn manual(args: &Args, command: clap::Command) -> Result<(), Failure> {
    write(&args.folder, command).map_err(|why| {
        let advice = "name a folder that you may write";
        Failure::new(Code::Failure, args.folder.display(), why, advice)
    })
}

fn write(folder: &Path, command: clap::Command) -> io::Result<()> {
    // 'kakehi help' and its like have nothing to tell that the pages have not.
    let mut command = command
        .disable_help_subcommand(true)
        .mut_subcommands(|below| below.disable_help_subcommand(true));
    for (shell, place) in COMPLETIONS {
        let place = folder.join(place);
        fs::create_dir_all(&place)?;
        clap_complete::generate_to(shell, &mut command, "kakehi", place)?;
    }
    command.build();
    let (man1, man3, man5) =
        (folder.join("man/man1"), folder.join("man/man3"), folder.join("man/man5"));
    [&man1, &man3, &man5].into_iter().try_for_each(fs::create_dir_all)?;
    fs::write(man3.join("kakehi.3"), LIBRARY.replace("@SOURCE@", SOURCE))?;
    fs::write(man5.join("kakehi.toml.5"), sections::settings(SOURCE))?;
    write_pages(command, &man1)
}

/// The page of libkakehi.
const LIBRARY: &str = include_str!("manual/kakehi.3");

/// Writes the pages of a command and of those below it.
fn write_pages(mut command: clap::Command, folder: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below.clone(), folder)?;
    }
    // As the help has it: the generator's own names options without their values.
    let usage = command.render_usage().to_string().replace("Usage: ", "");
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    // A blank: without a date the source would stand where one is looked for.
    let page = clap_mangen::Man::new(command.override_usage(usage));
    let page = page.date(" ").source(SOURCE).manual("Kakehi manual");
    let mut text = Vec::new();
    page.render(&mut text)?;
    text.extend(sections::of(&name).into_bytes());
    fs::write(folder.join(format!("{name}.1")), text)
}
