//! `kakehi config`: every setting, its value, and where the value comes from.

use serde_json::json;

use crate::{
    config::{Config, Environment, Flags},
    failure::Failure,
    output,
    voice::Screen,
};

/// Column at which the meaning of a setting begins.
const INDENT: usize = 28;

/// Shows every setting with its value.
///
/// Later layers replace earlier ones: defaults, /etc/kakehi/config.toml,
/// $XDG_CONFIG_HOME/kakehi/config.toml, ./kakehi.toml, $KAKEHI_CONFIG, the variables KAKEHI_*,
/// flags.
///
/// Exit status: 0; 2 when a layer has an unknown name or a bad value.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags,
    /// Shows where each value comes from, and the variable that sets it.
    #[arg(long)]
    show_origin: bool,
    /// Prints one JSON document, with origins.
    #[arg(long)]
    json: bool,
}

pub(crate) fn config(args: &Args, environment: &Environment) -> Result<(), Failure> {
    let config = Config::load(environment, &args.flags)?;
    if args.json {
        let settings = config.rows.iter().map(|row| {
            json!({"name": row.name, "value": row.value, "origin": row.origin.to_string(),
                "variable": row.variable(), "meaning": row.meaning})
        });
        return output::print_json(&json!({"settings": settings.collect::<Vec<_>>()}));
    }
    let (screen, mut text) = (Screen::stdout(), String::new());
    for row in &config.rows {
        let value = row.value.as_deref().unwrap_or("(unset)");
        let line = if args.show_origin {
            format!("{:<14} {value:<12} {:<22} {}", row.name, row.variable(), row.origin)
        } else {
            format!("{:<14} {value:<12} {}", row.name, row.meaning)
        };
        text.push_str(&(screen.folded(&line, INDENT) + "\n"));
    }
    output::print(&text)
}
