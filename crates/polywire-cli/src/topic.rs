//! The topic that a verb is about: where it is, and by which configuration.

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use clap::Args;
use polywire::codec::{self, CODECS, Options};
use polywire::compress::{self, COMPRESSORS, Settings};
use polywire::{
    Config, Node, Wire,
    engine::{self, ENGINES},
    wire::{Endpoint, Names},
};

use crate::stop;

/// Where topics are unless something else is said.
pub const DEFAULT_ENDPOINT: &str = "tcp/127.0.0.1:7447";

/// How long what was published may take to leave when the process is told to end.
const DRAIN: Duration = Duration::from_secs(1);

/// The nodes that verbs have opened. Whoever waits for signals holds them, too, so that they do not close when the verb lets go of them.
static OPENED: Mutex<Vec<Node>> = Mutex::new(Vec::new());

/// Says goodbye to the peers of all nodes, which would take the end of the process for a link that broke.
pub fn leave() {
    let opened = std::mem::take(&mut *OPENED.lock().unwrap_or_else(PoisonError::into_inner));
    opened.iter().for_each(Node::close);
}

/// How and where messages travel.
#[derive(Args, Clone, Debug)]
pub struct WireArgs {
    /// CODEC[:OPTIONS][+COMPRESSOR[:OPTIONS]]@ENGINE/ADDRESS; the codec alone (at tcp/127.0.0.1:7447) and ENGINE/ADDRESS alone (with cdr) do, too
    #[arg(short, long, value_name = "WIRE", env = "POLYWIRE_WIRE", hide_env_values = true, value_parser = wire)]
    pub wire: Option<Wire>,
    /// TOML file with wires and policies per topic
    #[arg(short, long, value_name = "FILE", env = "POLYWIRE_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
}

impl WireArgs {
    /// A node with the configuration given, and the wire of the topic on it. When the process is told to end, what was published leaves first.
    pub fn open(&self, topic: &str) -> anyhow::Result<(Node, Wire)> {
        let config = self.config.as_ref().map(Config::read).transpose()?.unwrap_or_default();
        let wire = self.wire_of(&config, topic);
        if let Some(configured) = config.wire_of(topic).filter(|_| self.wire.is_none()) {
            check(&configured).map_err(anyhow::Error::msg)?;
        }
        stop::hold()?;
        let node = Node::builder().config(config).build();
        OPENED.lock().unwrap_or_else(PoisonError::into_inner).push(node.clone());
        let ending = node.clone();
        stop::after(move || {
            ending.flush(DRAIN);
            ending.close();
        })?;
        Ok((node, wire))
    }

    /// The command line's word counts more than the file's.
    fn wire_of(&self, config: &Config, topic: &str) -> Wire {
        let configured = config.wire_of(topic);
        let at = configured.as_ref().and_then(|wire| wire.endpoint.clone());
        let chosen = self.wire.clone().or(configured).unwrap_or_else(|| Wire::codec("cdr"));
        chosen.or_at(at.as_ref()).or_at(DEFAULT_ENDPOINT.parse().ok().as_ref())
    }
}

/// Where a wire leads, for messages.
pub fn place(wire: &Wire) -> String {
    wire.endpoint.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// A wire, or an endpoint alone.
pub fn wire(text: &str) -> Result<Wire, String> {
    let is_engine = |name: &str| engine::find(name).is_some();
    let wire = match text.split_once('/') {
        Some((name, _)) if is_engine(name) => {
            let endpoint: Endpoint = text.parse().map_err(|e: polywire::wire::WireError| e.to_string())?;
            Wire::codec("cdr").or_at(Some(&endpoint))
        }
        _ => text.parse::<Wire>().map_err(|e| e.to_string())?,
    };
    check(&wire)?;
    Ok(wire)
}

/// A wire without an endpoint.
pub fn wire_without_endpoint(text: &str) -> Result<Wire, String> {
    let wire = text.parse::<Wire>().map_err(|e| e.to_string())?;
    if let Some(endpoint) = &wire.endpoint {
        return Err(format!("a codec alone is expected; give the endpoint as --at {endpoint}"));
    }
    check(&wire)?;
    Ok(wire)
}

/// Refuses names and options that the tables do not have.
fn check(wire: &Wire) -> Result<(), String> {
    let codecs: Vec<&str> = CODECS.iter().map(|codec| codec.name()).collect();
    let engines: Vec<&str> = ENGINES.iter().map(|engine| engine.name()).collect();
    let compressors: Vec<&str> = COMPRESSORS.iter().map(|compressor| compressor.name()).collect();
    let names = Names { codecs: &codecs, compressors: &compressors, engines: &engines };
    wire.check(&names).map_err(|e| e.to_string())?;
    if let Some((choice, compressor)) = wire.compressor.as_ref().and_then(|c| Some((c, compress::find(&c.name)?))) {
        Settings::parse(&choice.options, compressor).map_err(|e| e.to_string())?;
    }
    let options: Options = wire.codec.options.parse().map_err(|e: codec::LowerError| e.to_string())?;
    codec::find(&wire.codec.name).map_or(Ok(()), |codec| options.check(codec).map_err(|e| e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(wire_text: Option<&str>, config: &str) -> String {
        let args = WireArgs { wire: wire_text.map(|text| wire(text).expect("a wire")), config: None };
        args.wire_of(&Config::parse(config).expect("a configuration"), "t").to_string()
    }

    #[test]
    fn what_is_left_out_comes_from_the_file_and_then_from_the_default() {
        let file = "[node]\nwire = 'bson@unix/a'";
        assert_eq!(of(None, ""), "cdr@tcp/127.0.0.1:7447");
        assert_eq!(of(Some("json"), ""), "json@tcp/127.0.0.1:7447");
        assert_eq!(of(Some("unix/x/y.sock"), ""), "cdr@unix/x/y.sock");
        assert_eq!(of(None, file), "bson@unix/a");
        assert_eq!(of(Some("json"), file), "json@unix/a");
        assert_eq!(of(Some("json@unix/b"), file), "json@unix/b");
    }

    #[test]
    fn slips_are_told() {
        assert_eq!(wire("jsn").expect_err("unknown"), "unknown codec 'jsn', did you mean 'json'?");
        assert!(wire("cdr@tpc/a:1").expect_err("unknown").contains("did you mean 'tcp'?"));
        assert!(wire("cdr:sideways").expect_err("unknown").contains("there is no option 'sideways'"));
        assert_eq!(wire("cdr+zsdt").expect_err("unknown"), "unknown compressor 'zsdt', did you mean 'zstd'?");
        assert!(wire("cdr+zlib:10").expect_err("a level").contains("levels go from 1 to 9"));
        assert!(wire_without_endpoint("cdr@tcp/a:1").expect_err("an endpoint").contains("--at"));
    }
}
