//! `polywire probe send`: sends values to the input `lines` of a node on this machine.

use std::{
    io::{BufRead as _, stdin},
    os::unix::net::UnixDatagram,
    path::PathBuf,
};

use anyhow::Context as _;
use clap::Args;
use serde_json::{Value, json};

use crate::{
    outcome::{self, Misuse, Outcome},
    terminal::Terminal,
    verb::{Action, Verb},
};

pub const VERB: Verb = Verb::new::<Send>("send", "Sends values to the input `lines` of a node on this machine")
    .details(
        "SOCKET is the path that the node's file names. Without VALUE, each line of the standard input is a value. \
         Exit code 2 means that no node has the socket.",
    )
    .example("polywire probe send queue.sock press '{\"jobs\":3}'");

#[derive(Args)]
pub struct Send {
    /// Path of the node's socket
    socket: PathBuf,
    /// What the value is about: the first part of the names of its figures
    name: String,
    /// The value as JSON
    value: Option<String>,
}

impl Action for Send {
    fn run(self, _: &Terminal) -> outcome::Result {
        let socket = UnixDatagram::unbound().context("cannot make a socket")?;
        let failed = || format!("no node has the socket {}", self.socket.display());
        socket.connect(&self.socket).with_context(failed)?;
        let send = |text: &str| -> anyhow::Result<()> {
            let value: Value = serde_json::from_str(text).map_err(|error| Misuse(format!("the value: {error}")))?;
            let line = json!({ "probe": self.name, "value": value }).to_string();
            // Waits while the receive queue of the node's socket is full.
            socket.send(line.as_bytes()).map(drop).context("cannot send the value")
        };
        match &self.value {
            Some(value) => send(value)?,
            None => stdin().lock().lines().try_for_each(|line| send(&line?))?,
        }
        Ok(Outcome::Fine)
    }
}
