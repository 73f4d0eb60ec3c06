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
