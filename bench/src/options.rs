//! What every bench can be told.

/// Options of every bench.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Common {
    /// Ends within a minute: fewer cases and rounds, less data a round.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Prints one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
    /// Also writes the JSON to results/DATE-MACHINE/ below the current folder.
    #[arg(long)]
    pub(crate) save: bool,
}

/// A number that is one of these.
///
/// # Errors
///
/// A text that names them.
pub(crate) fn one_of(known: &[usize], text: &str) -> Result<usize, String> {
    let found = text.parse().ok().filter(|number| known.contains(number));
    let names = || known.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| format!("one of {}", names()))
}
