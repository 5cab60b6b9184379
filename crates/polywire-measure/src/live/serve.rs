//! Runs the other end of a live measurement in its own process: reads requests from standard input
//! and writes answers to standard output, each as a line of JSON.

use std::io::{self, Write};

use serde::Serialize;

use super::{engines, peer::Request, setup::Setup};
use crate::Error;

/// Runs the other end of a real engine. A program that measures in
/// [`Mode::Closed`](crate::scenario::Mode::Closed) or a similar mode is started again with the one
/// argument `bench-peer`, and must then call this function. It returns when standard input ends.
///
/// # Errors
/// [`Error::Engine`] if standard input is empty or has anything else than requests of `bench`.
pub fn serve() -> Result<(), Error> {
    let wrong = |problem: String| Error::Engine { engine: "bench-peer".into(), problem };
    let mut lines = io::stdin().lines().map_while(Result::ok);
    let setup = lines.next().ok_or_else(|| wrong("only `bench` starts this program with these arguments".into()))?;
    let setup: Setup = serde_json::from_str(&setup).map_err(|error| wrong(error.to_string()))?;
    let receivers = engines::receive(&setup);
    let ready = receivers.as_ref().map(|_| ()).map_err(String::clone);
    answer(&ready).map_err(wrong)?;
    let Ok(receivers) = receivers else { return Ok(()) };
    for line in lines {
        match serde_json::from_str(&line).map_err(|error| wrong(error.to_string()))? {
            Request::Report(expected) => answer(&receivers.report(expected)),
            Request::Vitals => answer(&receivers.vitals(true)),
        }
        .map_err(wrong)?;
    }
    Ok(())
}

fn answer(value: &impl Serialize) -> Result<(), String> {
    let text = serde_json::to_string(value).map_err(|error| error.to_string())?;
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| error.to_string())
}
