//! The wire of the topic that a command works on, from `--wire`, the environment and the
//! configuration file. Also opens the command's node, and keeps it so that it can be closed at the
//! end of the process.

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
use polywire::extend::envelope::Id128;
use polywire::{Config, Node, NodeBuilder, Wire, engine::ENGINES, qos::Qos, wire::Names};

use crate::{outcome::Misuse, stop};

/// Environment variable with a wire. It ranks below `--wire` and above the configuration file.
const VARIABLE: &str = "POLYWIRE_WIRE";

/// How long published messages may take to leave after SIGINT or SIGTERM.
const DRAIN: Duration = Duration::from_secs(1);

/// The nodes that commands have opened. A node stays open when its command drops it, because the
/// thread that waits for signals holds it as well; [`leave`] closes it.
static OPENED: Mutex<Vec<Node>> = Mutex::new(Vec::new());

/// Closes all nodes, which says goodbye to their peers. Otherwise a peer would take the end of the
/// process for a broken link.
pub fn leave() {
    let opened = std::mem::take(&mut *OPENED.lock().unwrap_or_else(PoisonError::into_inner));
    opened.iter().for_each(Node::close);
}

/// The options that choose the wire of a topic.
#[derive(Args, Clone, Debug)]
pub struct WireArgs {
    /// CODEC[:OPTIONS][+COMPRESSOR[:OPTIONS]]@ENGINE/ADDRESS, or a part of it. Missing parts come
    /// from the environment variable POLYWIRE_WIRE, then from --config; the default is cdr@local
    #[arg(short, long, value_name = "WIRE", value_parser = wire)]
    pub wire: Option<Wire>,
    /// TOML file with wires and policies per topic
    #[arg(short, long, value_name = "FILE", env = "POLYWIRE_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
}

impl WireArgs {
    /// Opens a node with the given configuration, and returns it with the wire of the topic. After
    /// SIGINT or SIGTERM, published messages leave before the process ends.
    pub fn open(&self, topic: &str) -> anyhow::Result<(Node, Wire)> {
        stop::hold()?;
        let (node, wire) = self.build(topic, Node::builder())?;
        let ending = node.clone();
        stop::after(move || {
            ending.flush(DRAIN);
            ending.close();
        })?;
        Ok((node, wire))
    }

    /// Opens a node with this identity, for a command that handles signals itself.
    pub fn node_at(&self, topic: &str, id: Id128) -> anyhow::Result<(Node, Wire)> {
        self.build(topic, Node::builder().id(id))
    }

    fn build(&self, topic: &str, builder: NodeBuilder) -> anyhow::Result<(Node, Wire)> {
        let config = self.config.as_ref().map(Config::read).transpose()?.unwrap_or_default();
        let variable = env::var_os(VARIABLE).map(|text| text.to_string_lossy().into_owned());
        let wire = self.wire_of(variable.as_deref(), &config, topic)?;
        let node = builder.config(config).build();
        OPENED.lock().unwrap_or_else(PoisonError::into_inner).push(node.clone());
        Ok((node, wire))
    }

    /// The wire of the command line ranks above that of the variable, which ranks above that of the
    /// file.
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

/// The endpoint of a wire, as text for messages.
pub fn place(wire: &Wire) -> String {
    wire.endpoint.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// Parses a wire or a part of one.
pub fn wire(text: &str) -> Result<Wire, String> {
    let wire = text.parse::<Wire>().map_err(|e| e.to_string())?;
    check(&wire)?;
    Ok(wire)
}

/// Parses a wire that must not have an endpoint.
pub fn wire_without_endpoint(text: &str) -> Result<Wire, String> {
    let wire = text.parse::<Wire>().map_err(|e| e.to_string())?;
    if let Some(endpoint) = &wire.endpoint {
        return Err(format!("a codec alone is expected: leave out '@{endpoint}'"));
    }
    check(&wire)?;
    Ok(wire)
}

/// Rejects codecs, compressors, engines and options that do not exist.
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
        assert_eq!(of(None, None, ""), "auto@local");
        assert_eq!(of(Some("json"), None, ""), "json@local");
        assert_eq!(of(Some("unix/x/y.sock"), None, ""), "auto@unix/x/y.sock");
        assert_eq!(of(None, None, file), "bson@unix/a");
        assert_eq!(of(Some("json"), None, file), "json@unix/a");
        assert_eq!(of(Some("unix/b"), None, file), "bson@unix/b");
        assert_eq!(of(Some("json@unix/b"), None, file), "json@unix/b");
        // The variable ranks between the option and the file.
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
        assert!(wire_without_endpoint("cdr@tcp/a:1").expect_err("an endpoint").contains("leave out '@tcp/a:1'"));
    }
}
