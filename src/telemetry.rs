//! Log lines: to standard error, as text or JSON.

use std::io::IsTerminal;

use tracing_subscriber::{Layer, filter::Targets, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::config::LogFormat;

/// Starts logging. `filter` is a level or a list such as `info,seriatim::store=debug`.
pub fn start(filter: &str, format: LogFormat) -> Result<(), String> {
    let filter: Targets = filter.parse().map_err(|error| {
        format!("log: {filter:?} is not understood ({error}); write \"info\" or \"debug\"")
    })?;
    let lines = fmt::layer().with_ansi(std::io::stderr().is_terminal()).with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Text => lines.with_target(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .try_init()
        .map_err(|error| error.to_string())
}
