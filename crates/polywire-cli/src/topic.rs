//! The wire of the topic that a command uses, from `--wire`, the environment and the configuration
//! file. Also opens the command's node, and stores it so that it can be closed at the end of the
//! process.

use std::{env, path::PathBuf, time::Duration};

use anyhow::Context as _;
use clap::Args;
use parking_lot::Mutex;
use polywire::codec::{self, CODECS, Options};
use polywire::compress::{self, COMPRESSORS, Settings};
use polywire::{
    Config, Node, NodeBuilder, NodeError, Publish, Subscribe, Wire,
    coding::Coding,
    engine::ENGINES,
    qos::Qos,
    wire::{Names, complete},
};
use polywire_telemetry::Identity;

use crate::{outcome::Misuse, reload, stop};

/// The environment variable with a wire. `--wire` has priority over it, and it has priority over
/// the configuration file.
const VARIABLE: &str = "POLYWIRE_WIRE";

/// How long published messages may take to be delivered after SIGINT or SIGTERM.
const DRAIN: Duration = Duration::from_secs(1);

/// The nodes that commands have opened. A node stays open when its command drops it, because the
/// thread that waits for signals holds it as well; [`leave`] closes it.
static OPENED: Mutex<Vec<Node>> = Mutex::new(Vec::new());

/// Closes all nodes, which announces the end to their peers. Otherwise a peer would treat the end
/// of the process as a broken link.
pub fn leave() {
    let opened = std::mem::take(&mut *OPENED.lock());
    opened.iter().for_each(Node::close);
}

/// The options that choose the wire of a topic.
#[derive(Args, Clone, Debug)]
pub struct WireArgs {
    /// CODEC[:OPTIONS][+COMPRESSOR[:OPTIONS]]@ENGINE/ADDRESS, or a part of it. Missing parts come
    /// from the environment variable POLYWIRE_WIRE, then from --config; the default is cdr@local.
    /// Several --wire are several endpoints at once
    #[arg(short, long = "wire", value_name = "WIRE", value_parser = wire)]
    pub wires: Vec<Wire>,
    /// TOML file with wires and policies per topic
    #[arg(short, long, value_name = "FILE", env = "POLYWIRE_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
}

impl WireArgs {
    /// Opens a node with the given configuration, and returns it with the wires of the topic. After
    /// SIGINT or SIGTERM, published messages are delivered before the process ends.
    pub fn open(&self, topic: &str) -> anyhow::Result<(Node, Wires)> {
        stop::hold()?;
        let (node, wires) = self.node_for(topic)?;
        let ending = node.clone();
        stop::after(move || {
            ending.flush(DRAIN);
            ending.close();
        })?;
        Ok((node, wires))
    }

    /// Opens a node as [`WireArgs::open`] does, for a command that handles signals itself.
    pub fn node_for(&self, topic: &str) -> anyhow::Result<(Node, Wires)> {
        self.build(topic, Node::builder())
    }

    /// Opens a node with this name and id, for a command that runs until it is told to end and
    /// handles signals itself. The returned wires are not for a particular topic.
    pub fn node_of(&self, identity: &Identity) -> anyhow::Result<(Node, Wires)> {
        self.build("", Node::builder().id(identity.uuid.into()).name(&identity.name))
    }

    fn build(&self, topic: &str, builder: NodeBuilder) -> anyhow::Result<(Node, Wires)> {
        let config = reload::given(self.config.as_ref())?;
        let variable = env::var_os(VARIABLE).map(|text| text.to_string_lossy().into_owned());
        let wires = self.wires_of(variable.as_deref(), &config, topic)?;
        let node = builder.config(config).build();
        if self.config.is_some() {
            reload::on_hang_up(&node, self.config.clone());
        }
        OPENED.lock().push(node.clone());
        Ok((node, wires))
    }

    /// Determines the wires of a topic. The wires of the command line have priority over that of
    /// the variable, and this one has priority over those of the file.
    fn wires_of(&self, variable: Option<&str>, config: &Config, topic: &str) -> anyhow::Result<Wires> {
        let parsed = |text: &str| wire(text).map_err(|error| Misuse(format!("{VARIABLE}: {error}")));
        let variable = variable.map(parsed).transpose()?;
        let given = complete(&self.wires, variable.as_slice());
        let mut used = config.wires_for(topic, &given);
        if used.is_empty() {
            used.push(Wire::default());
        }
        used.iter().try_for_each(check).map_err(anyhow::Error::msg).context("the topic's wire")?;
        let is_configured = !config.wires_of(topic).is_empty();
        let given = if given.is_empty() && !is_configured { used.clone() } else { given };
        Ok(Wires { used, given })
    }
}

/// The wires of a topic.
pub struct Wires {
    /// The wires completed by the configuration; at least one.
    used: Vec<Wire>,
    /// The wires without the parts from the configuration. The node completes them, and does so
    /// again when the configuration is reloaded.
    given: Vec<Wire>,
}

impl Wires {
    /// Subscribes at all endpoints.
    pub fn subscribe<C: Coding>(&self, node: &Node, topic: &str, coding: C) -> Result<Subscribe<C>, NodeError> {
        let mut texts = self.given.iter().map(ToString::to_string);
        let subscribe = node.subscribe_of(topic, texts.next().as_deref(), coding)?;
        texts.try_fold(subscribe, |subscribe, wire| subscribe.also(&wire))
    }

    /// Publishes at all endpoints.
    pub fn publish<C: Coding>(&self, node: &Node, topic: &str, coding: C) -> Result<Publish<C>, NodeError> {
        let mut texts = self.given.iter().map(ToString::to_string);
        let publish = node.publish_of(topic, texts.next().as_deref(), coding)?;
        texts.try_fold(publish, |publish, wire| publish.also(&wire))
    }

    /// Returns the wire of a command that supports only one endpoint.
    pub fn only(&self) -> Result<&Wire, Misuse> {
        match self.used.as_slice() {
            [only] => Ok(only),
            several => Err(Misuse(format!("this command works at one endpoint, and there are {}", several.len()))),
        }
    }

    /// Returns the endpoints.
    pub fn endpoints(&self) -> impl Iterator<Item = String> {
        self.used.iter().filter_map(|wire| wire.endpoint.as_ref()).map(ToString::to_string)
    }
}

/// Returns the policies of `--qos`, completed by those of the configuration.
pub fn policies(configured: &Qos, text: &str) -> Result<Qos, Misuse> {
    configured.clone().with(text).map_err(|error| Misuse(format!("--qos: {error}")))
}

/// Returns the endpoints of wires, as text for messages.
pub fn place(wires: &Wires) -> String {
    wires.endpoints().collect::<Vec<_>>().join(", ")
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
        let wires = option.into_iter().flat_map(|text| text.split(' ')).map(|text| wire(text).expect("a wire"));
        let args = WireArgs { wires: wires.collect(), config: None };
        let config = Config::parse(config).expect("a configuration");
        let used = args.wires_of(variable, &config, "t").expect("a wire");
        used.used.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
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
        // The variable has priority over the file, and the option over the variable.
        assert_eq!(of(Some("json"), Some("cdr@tcp/127.0.0.1:7671"), ""), "json@tcp/127.0.0.1:7671");
        assert_eq!(of(Some("json"), Some("cdr@tcp/127.0.0.1:7671"), file), "json@tcp/127.0.0.1:7671");
        assert_eq!(of(None, Some("tcp/127.0.0.1:7671"), file), "bson@tcp/127.0.0.1:7671");
        assert_eq!(of(None, Some("cdr"), file), "cdr@unix/a");
        assert_eq!(of(Some("json@unix/b tcp/127.0.0.1:7671"), None, file), "json@unix/b bson@tcp/127.0.0.1:7671");
    }

    #[test]
    fn a_slip_in_the_variable_is_told_as_such() {
        let args = WireArgs { wires: Vec::new(), config: None };
        let error = args.wires_of(Some("jsn"), &Config::default(), "t").map(|_| ()).expect_err("unknown");
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
