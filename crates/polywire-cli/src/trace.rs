//! Prints the spans of the command's nodes on standard error: `--trace`.

use std::io;

use tracing_subscriber::{EnvFilter, fmt::format::FmtSpan};

use crate::outcome::Misuse;

/// Prints each span that passes the filter when it ends. The filter has the form of `RUST_LOG`:
/// `polywire=debug`, `polywire[publish]=trace`.
pub fn print(filter: &str) -> Result<(), Misuse> {
    let filter = EnvFilter::try_new(filter).map_err(|error| Misuse(format!("--trace: {error}")))?;
    let printer = tracing_subscriber::fmt().with_env_filter(filter).with_span_events(FmtSpan::CLOSE);
    // No other code sets a subscriber.
    let _ = printer.with_ansi(false).with_writer(io::stderr).try_init();
    Ok(())
}
