//! The topic that a verb is about: where it is, and by which configuration.

use std::{
    env,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use polywire::codec::{self, CODECS, Options};
use polywire::compress::{self, COMPRESSORS, Settings};
use polywire::{Config, Node, Wire, engine::ENGINES, qos::Qos, wire::Names};

use crate::{outcome::Misuse, stop};

/// A wire that counts less than `--wire` and more than the configuration.
const VARIABLE: &str = "POLYWIRE_WIRE";

/// How long what was published may take to leave when the process is told to end.
const DRAIN: Duration = Duration::from_secs(1);

/// The nodes that verbs have opened. Whoever waits for signals holds them, too, so that they do not
/// close when the verb lets go of them.
static OPENED: Mutex<Vec<Node>> = Mutex::new(Vec::new());

/// Says goodbye to the peers of all nodes, which would take the end of the process for a link that
/// broke.
pub fn leave() {
    let opened = std::mem::take(&mut *OPENED.lock().unwrap_or_else(PoisonError::into_inner));
    opened.iter().for_each(Node::close);
}

/// How and where messages travel.
#[derive(Args, Clone, Debug)]
pub struct WireArgs {
    /// CODEC[:OPTIONS][+COMPRESSOR[:OPTIONS]]@ENGINE/ADDRESS, or a part: what is left out comes
    /// from the variable POLYWIRE_WIRE, then from --config, then it is cdr at
    /// tcp/127.0.0.1:7447
    #[arg(short, long, value_name = "WIRE", value_parser = wire)]
    pub wire: Option<Wire>,
    /// TOML file with wires and policies per topic
    #[arg(short, long, value_name = "FILE", env = "POLYWIRE_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
}

impl WireArgs {
    /// A node with the configuration given, and the wire of the topic on it. When the process is
    /// told to end, what was published leaves first.
    pub fn open(&self, topic: &str) -> anyhow::Result<(Node, Wire)> {
        let config = self.config.as_ref().map(Config::read).transpose()?.unwrap_or_default();
        let variable = env::var_os(VARIABLE).map(|text| text.to_string_lossy().into_owned());
        let wire = self.wire_of(variable.as_deref(), &config, topic)?;
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

    /// The command line's word counts more than the variable's, and that more than the file's.
    fn wire_of(&self, variable: Option<&str>, config: &Config, topic: &str) -> anyhow::Result<Wire> {
        let parsed = |text: &str| wire(text).map_err(|error| Misuse(format!("{VARIABLE}: {error}")));
        let variable = variable.map(parsed).transpose()?;
        let given = match (self.wire.clone(), variable) {
            (Some(wire), Some(variable)) => Some(wire.or(&variable)),
            (wire, variable) => wire.or(variable),
        };
        let used = config.wire_for(topic, given).unwrap_or_default();
        check(&used).map_err(anyhow::Error::msg).context("the topic's wire")?;
        Ok(used)
    }
}

/// The policies of `--qos`, and where it names none those of the configuration.
pub fn policies(configured: &Qos, text: &str) -> Result<Qos, Misuse> {
    configured.clone().with(text).map_err(|error| Misuse(format!("--qos: {error}")))
}

/// Where a wire leads, for messages.
pub fn place(wire: &Wire) -> String {
    wire.endpoint.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// A wire, or a part of one.
pub fn wire(text: &str) -> Result<Wire, String> {
    let wire = text.parse::<Wire>().map_err(|e| e.to_string())?;
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

    fn of(option: Option<&str>, variable: Option<&str>, config: &str) -> String {
        let args = WireArgs { wire: option.map(|text| wire(text).expect("a wire")), config: None };
        let config = Config::parse(config).expect("a configuration");
        args.wire_of(variable, &config, "t").expect("a wire").to_string()
    }

    #[test]
    fn what_is_left_out_comes_from_what_counts_less() {
        let file = "[node]\nwire = 'bson@unix/a'";
        assert_eq!(of(None, None, ""), "auto@tcp/127.0.0.1:7447");
        assert_eq!(of(Some("json"), None, ""), "json@tcp/127.0.0.1:7447");
        assert_eq!(of(Some("unix/x/y.sock"), None, ""), "auto@unix/x/y.sock");
        assert_eq!(of(None, None, file), "bson@unix/a");
        assert_eq!(of(Some("json"), None, file), "json@unix/a");
        assert_eq!(of(Some("unix/b"), None, file), "bson@unix/b");
        assert_eq!(of(Some("json@unix/b"), None, file), "json@unix/b");
        // The variable stands between the option and the file.
        assert_eq!(of(Some("json"), Some("cdr@tcp/127.0.0.1:7671"), ""), "json@tcp/127.0.0.1:7671");
        assert_eq!(of(Some("json"), Some("cdr@tcp/127.0.0.1:7671"), file), "json@tcp/127.0.0.1:7671");
        assert_eq!(of(None, Some("tcp/127.0.0.1:7671"), file), "bson@tcp/127.0.0.1:7671");
        assert_eq!(of(None, Some("cdr"), file), "cdr@unix/a");
    }

    #[test]
    fn a_slip_in_the_variable_is_told_as_such() {
        let args = WireArgs { wire: None, config: None };
        let error = args.wire_of(Some("jsn"), &Config::default(), "t").expect_err("unknown");
        assert!(error.is::<Misuse>() && error.to_string().starts_with("POLYWIRE_WIRE: unknown codec 'jsn'"), "{error}");
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
