//! Wires: the string that says how a topic's messages travel. `spec/wire-names.md` has the grammar
//! and the rules for merging wires.

use std::{fmt, str::FromStr};

use crate::suggest::{hint, nearest};

/// The codec name that leaves the choice open: a wire of lower precedence decides, and finally the
/// node. The node uses its first codec, `cdr` unless
/// [`NodeBuilder::codec`](crate::node::NodeBuilder::codec) registered another.
pub const AUTO: &str = "auto";

/// The endpoint of topics whose wire names none. It connects all nodes of the user on this machine,
/// in the domain that the environment variable `POLYWIRE_DOMAIN` names, or in domain 0.
pub const DEFAULT_ENDPOINT: &str = "local";

/// A choice of codec, compressor and endpoint:
/// `codec[:options][+compressor[:options]][@engine/address]`, or an endpoint alone. The engines
/// `local`, `lan`, `shm` and `zenoh` need no address.
///
/// [`Wire::default`], [`AUTO`] at [`DEFAULT_ENDPOINT`], completes every wire that is given or
/// configured. A topic without any wire cannot be opened
/// ([`NodeError::NoWire`](crate::NodeError::NoWire)).
///
/// ```
/// use polywire::wire::Wire;
/// let wire: Wire = "json+zstd:3@tcp/127.0.0.1:7460".parse()?;
/// assert_eq!(wire.codec.name, "json");
/// assert_eq!(wire.compressor.as_ref().map(|c| c.options.as_str()), Some("3"));
/// assert_eq!(wire.endpoint.as_ref().map(|e| e.address.as_str()), Some("127.0.0.1:7460"));
/// assert_eq!(wire.to_string(), "json+zstd:3@tcp/127.0.0.1:7460");
///
/// // Wires of lower precedence fill in what a wire leaves open.
/// let there: Wire = "unix//run/robot.sock".parse()?;
/// assert_eq!(there.clone().or(&wire).to_string(), "json+zstd:3@unix//run/robot.sock");
/// assert_eq!("bson".parse::<Wire>()?.or(&there).to_string(), "bson@unix//run/robot.sock");
/// assert_eq!(Wire::codec("bson").or(&Wire::default()).to_string(), "bson@local");
/// # Ok::<(), polywire::wire::WireError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Wire {
    /// The format; [`AUTO`] if it is left open.
    pub codec: Choice,
    /// Compresses the codec's output; `None` if it is left open.
    pub compressor: Option<Choice>,
    /// Engine and address; `None` if they are left open.
    pub endpoint: Option<Endpoint>,
}

/// A name with options.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Choice {
    /// Name of the codec or compressor.
    pub name: String,
    /// The text after the colon; empty if there is none.
    pub options: String,
}

/// An engine and an address that it understands.
///
/// ```
/// use polywire::wire::{Choice, Endpoint, Wire};
/// let endpoint: Endpoint = "tcp/127.0.0.1:7460".parse()?;
/// assert_eq!((endpoint.engine.as_str(), endpoint.address.as_str()), ("tcp", "127.0.0.1:7460"));
/// let wire = Wire { endpoint: Some(endpoint), ..Wire::codec("cdr") };
/// assert_eq!(wire.codec, Choice { name: "cdr".into(), options: "".into() });
/// assert_eq!(wire.to_string(), "cdr@tcp/127.0.0.1:7460");
/// assert!(!wire.is_auto() && Wire::codec("auto").is_auto());
/// # Ok::<(), polywire::wire::WireError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Name of the engine, as in [`crate::engine::ENGINES`].
    pub engine: String,
    /// The address, in the engine's notation. Empty if the engine has to
    /// [complete](crate::engine::Engine::complete) it.
    pub address: String,
}

/// The names that [`Wire::check`] accepts.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// Codecs. `auto` is always accepted.
    pub codecs: &'a [&'a str],
    /// Compressors.
    pub compressors: &'a [&'a str],
    /// Engines.
    pub engines: &'a [&'a str],
}

/// Why a wire is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// A part is missing or malformed.
    #[error("wire '{wire}', at byte {offset}: {expected}")]
    Syntax {
        /// The wire as given.
        wire: String,
        /// Byte offset of the part.
        offset: usize,
        /// What is expected there.
        expected: &'static str,
    },
    /// A name is unknown.
    #[error("unknown {what} '{name}'{hint}")]
    Unknown {
        /// `codec`, `compressor` or `engine`.
        what: &'static str,
        /// The name as given.
        name: String,
        /// Text to append to the message: the nearest name, or all names.
        hint: String,
    },
}

impl Wire {
    /// A wire with a codec, and everything else left open.
    pub fn codec(name: impl Into<String>) -> Wire {
        Wire { codec: Choice { name: name.into(), options: String::new() }, compressor: None, endpoint: None }
    }

    /// Fills in what this wire leaves open from `other`, which has lower precedence: the endpoint,
    /// and the codec with its options and the compressor.
    ///
    /// Wires from code and configuration files are merged by this function, and in the command-line
    /// tool also those from its arguments and from `POLYWIRE_WIRE`, which the library does not
    /// read. So a wire means the same in all of them. If this wire names a codec, it does not take
    /// the compressor of `other`.
    pub fn or(mut self, other: &Wire) -> Wire {
        if self.is_auto() && self.codec.options.is_empty() {
            self.codec = other.codec.clone();
            self.compressor = self.compressor.or_else(|| other.compressor.clone());
        }
        self.endpoint = self.endpoint.or_else(|| other.endpoint.clone());
        self
    }

    /// Checks whether both wires have the same codec and compressor, with the same options.
    pub(crate) fn has_format_of(&self, other: &Wire) -> bool {
        self.codec == other.codec && self.compressor == other.compressor
    }

    /// Checks whether the codec is left open.
    pub fn is_auto(&self) -> bool {
        self.codec.name == AUTO
    }

    /// Checks that every name is known.
    ///
    /// ```
    /// use polywire::wire::{Names, Wire};
    /// let names = Names { codecs: &["cdr", "json"], compressors: &["zstd"], engines: &["tcp", "unix"] };
    /// let wire: Wire = "cdr@tpc/127.0.0.1:1".parse()?;
    /// assert_eq!(wire.check(&names).unwrap_err().to_string(), "unknown engine 'tpc', did you mean 'tcp'?");
    /// # Ok::<(), polywire::wire::WireError>(())
    /// ```
    pub fn check(&self, names: &Names<'_>) -> Result<(), WireError> {
        if !self.is_auto() {
            known("codec", &self.codec.name, names.codecs).map_err(|unknown| self.or_endpoint(unknown, names))?;
        }
        if let Some(compressor) = &self.compressor {
            known("compressor", &compressor.name, names.compressors)?;
        }
        self.endpoint.as_ref().map_or(Ok(()), |endpoint| known("engine", &endpoint.engine, names.engines))
    }

    /// Returns the error for an unknown codec. If the name looks like a mistyped endpoint that
    /// needs no address, the error suggests that endpoint.
    fn or_endpoint(&self, unknown: WireError, names: &Names<'_>) -> WireError {
        let name = self.codec.name.as_str();
        match nearest(name, WITHOUT_ADDRESS) {
            Some(endpoint) if self.endpoint.is_none() && nearest(name, names.codecs.iter().copied()).is_none() => {
                let hint = format!(", did you mean the endpoint '{endpoint}'?");
                WireError::Unknown { what: "codec", name: name.into(), hint }
            }
            _ => unknown,
        }
    }
}

/// Completes a list of wires with a list of lower precedence. A topic with several wires is at
/// several endpoints at once.
///
/// A wire that names an endpoint is completed by the first of `lower`. A wire without an endpoint
/// stands for as many wires as `lower` has, one at each of its endpoints. If either list is empty,
/// the result is the other list.
///
/// ```
/// use polywire::wire::{Wire, complete};
/// let wires = |texts: &[&str]| texts.iter().map(|text| text.parse()).collect::<Result<Vec<Wire>, _>>();
/// let lower = wires(&["cdr@local", "fast@udp/239.1.2.3:7400"])?;
/// assert_eq!(complete(&wires(&["json"])?, &lower), wires(&["json@local", "json@udp/239.1.2.3:7400"])?);
/// assert_eq!(complete(&wires(&["tcp/127.0.0.1:7460"])?, &lower), wires(&["cdr@tcp/127.0.0.1:7460"])?);
/// assert_eq!(complete(&[], &lower), lower);
/// # Ok::<(), polywire::WireError>(())
/// ```
pub fn complete(given: &[Wire], lower: &[Wire]) -> Vec<Wire> {
    let Some(first) = lower.first() else { return given.to_vec() };
    if given.is_empty() {
        return lower.to_vec();
    }
    let completed = given.iter().flat_map(|wire| match &wire.endpoint {
        Some(_) => vec![wire.clone().or(first)],
        None => lower.iter().map(|lower| wire.clone().or(lower)).collect(),
    });
    let mut once: Vec<Wire> = Vec::new();
    for wire in completed {
        if !once.contains(&wire) {
            once.push(wire);
        }
    }
    once
}

fn known(what: &'static str, name: &str, all: &[&str]) -> Result<(), WireError> {
    if all.contains(&name) {
        return Ok(());
    }
    if what == "engine" && BY_FEATURE.contains(&name) {
        let feature = split(name, '-').0;
        let hint = format!(": this program was built without it, build it with the feature '{feature}'");
        return Err(WireError::Unknown { what, name: name.into(), hint });
    }
    let mut hint = hint(name, all.iter().copied());
    if hint.is_empty() {
        hint = if all.is_empty() { "; there is none".into() } else { format!("; there are {}", all.join(", ")) };
    }
    Err(WireError::Unknown { what, name: name.into(), hint })
}

impl Default for Wire {
    fn default() -> Wire {
        let endpoint = Endpoint { engine: DEFAULT_ENDPOINT.into(), address: String::new() };
        Wire { endpoint: Some(endpoint), ..Wire::codec(AUTO) }
    }
}

impl FromStr for Wire {
    type Err = WireError;

    fn from_str(wire: &str) -> Result<Wire, WireError> {
        if is_endpoint(wire) {
            return Ok(Wire { endpoint: Some(endpoint_of(wire, 0, wire)?), ..Wire::codec(AUTO) });
        }
        let (format, endpoint) = split(wire, '@');
        let (codec, compressor) = split(format, '+');
        let compressor_at = codec.len() + 1;
        Ok(Wire {
            codec: choice(wire, 0, codec)?,
            compressor: compressor.map(|text| choice(wire, compressor_at, text)).transpose()?,
            endpoint: endpoint.map(|text| endpoint_of(wire, format.len() + 1, text)).transpose()?,
        })
    }
}

impl FromStr for Endpoint {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Endpoint, WireError> {
        endpoint_of(text, 0, text)
    }
}

fn split(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at).map_or((text, None), |(before, after)| (before, Some(after)))
}

/// Engines that need no address, and that a wire may therefore name without a slash.
const WITHOUT_ADDRESS: [&str; 4] = [DEFAULT_ENDPOINT, "lan", "shm", "zenoh"];

/// Engines that exist only if the program was built with a feature, which is named like the
/// engine's name up to the first '-'.
const BY_FEATURE: [&str; 8] = ["dds", "lan", "shm", "tls", "tls-listen", "tls-connect", "zenoh", "zeromq"];

/// Whether a wire is an endpoint alone: it is the name of an engine that needs no address, or has a
/// slash right after a name, which codecs never have.
fn is_endpoint(wire: &str) -> bool {
    WITHOUT_ADDRESS.contains(&wire)
        || matches!(split(wire, '/'), (engine, Some(_)) if check_name(wire, 0, engine, "").is_ok())
}

fn choice(wire: &str, offset: usize, text: &str) -> Result<Choice, WireError> {
    let (name, options) = split(text, ':');
    check_name(wire, offset, name, "a name is expected: lower case letters, digits, '-' and '_', a letter first")?;
    let at = offset + name.len() + 1;
    if options.is_some_and(str::is_empty) {
        return Err(syntax(wire, at, "options are expected after the colon"));
    }
    let options = options.unwrap_or_default();
    let bad = |c: char| c == '+' || c.is_whitespace() || c.is_control();
    match options.find(bad) {
        Some(i) => Err(syntax(wire, at + i, "options hold no '+', '@', blank or control character")),
        None => Ok(Choice { name: name.into(), options: options.into() }),
    }
}

fn endpoint_of(wire: &str, offset: usize, text: &str) -> Result<Endpoint, WireError> {
    let (engine, address) = split(text, '/');
    check_name(wire, offset, engine, "an engine is expected, as in 'tcp/127.0.0.1:7460'")?;
    if WITHOUT_ADDRESS.contains(&text) {
        return Ok(Endpoint { engine: engine.into(), address: String::new() });
    }
    let at = offset + engine.len();
    let is_name = crate::engine::find(engine).is_some() || BY_FEATURE.contains(&engine);
    let mistyped = nearest(engine, WITHOUT_ADDRESS).filter(|_| !is_name);
    let address = address.ok_or_else(|| match mistyped {
        Some(near) => {
            let hint = format!(", did you mean '{near}'?");
            WireError::Unknown { what: "engine", name: engine.into(), hint }
        }
        None => syntax(wire, at, "'/' and an address are expected after the engine"),
    })?;
    if address.is_empty() {
        return Err(syntax(wire, at + 1, "an address is expected after the slash"));
    }
    match address.find(char::is_control) {
        Some(i) => Err(syntax(wire, at + 1 + i, "addresses hold no control character")),
        None => Ok(Endpoint { engine: engine.into(), address: address.into() }),
    }
}

fn check_name(wire: &str, offset: usize, name: &str, expected: &'static str) -> Result<(), WireError> {
    let first = name.starts_with(|c: char| c.is_ascii_lowercase());
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    match name.find(|c| !allowed(c)) {
        Some(i) => Err(syntax(wire, offset + i, expected)),
        None if !first => Err(syntax(wire, offset, expected)),
        None => Ok(()),
    }
}

fn syntax(wire: &str, offset: usize, expected: &'static str) -> WireError {
    WireError::Syntax { wire: wire.into(), offset, expected }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.codec.fmt(f)?;
        self.compressor.iter().try_for_each(|compressor| write!(f, "+{compressor}"))?;
        self.endpoint.iter().try_for_each(|endpoint| write!(f, "@{endpoint}"))
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.options.is_empty() { Ok(()) } else { write!(f, ":{}", self.options) }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address.as_str() {
            "" => f.write_str(&self.engine),
            address => write!(f, "{}/{address}", self.engine),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_come_back_as_written() {
        let wires = [
            "cdr",
            "json+zstd:3",
            "fast:template=/etc/feed.xml@tcp/127.0.0.1:7400",
            "auto",
            "xcdr2:le,header@unix//tmp/a+b@c.sock",
            "json:numbers=string@tcp/[::1]:7460",
            "pl_cdr@inproc/main",
            "cdr@local",
            "json+lz4@local/3",
        ];
        for text in wires {
            assert_eq!(text.parse::<Wire>().map(|wire| wire.to_string()).as_deref(), Ok(text));
        }
    }

    #[test]
    fn errors_say_where() {
        let cases = [
            ("", 0),
            ("CDR", 0),
            ("cdr:", 4),
            ("cdr+", 4),
            ("cdr+zstd:", 9),
            ("cdr+zstd+lz4", 8),
            ("cdr:a+b+c", 7),
            ("cdr@", 4),
            ("cdr@tcp", 7),
            ("cdr@tcp/", 8),
            ("cdr@local/", 10),
            ("json:a b", 6),
            ("9p", 0),
            ("tcp/", 4),
            ("tcp/a\u{7}", 5),
            ("TCP/a", 0),
        ];
        for (text, at) in cases {
            match text.parse::<Wire>() {
                Err(WireError::Syntax { offset, .. }) => assert_eq!(offset, at, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_a_wire_leaves_open_comes_from_the_one_that_counts_less() {
        let cases = [
            ("json", "bson+zstd@unix/a", "json@unix/a"),
            ("tcp/a:1", "bson:x+zstd@unix/a", "bson:x+zstd@tcp/a:1"),
            ("auto", "bson+zstd@unix/a", "bson+zstd@unix/a"),
            ("auto+lz4", "bson+zstd@unix/a", "bson+lz4@unix/a"),
            ("auto:be", "bson@unix/a", "auto:be@unix/a"),
            ("json+lz4@tcp/a:1", "bson+zstd@unix/a", "json+lz4@tcp/a:1"),
            ("json", "bson", "json"),
            ("json", "tcp/a:1", "json@tcp/a:1"),
        ];
        for (wire, other, expected) in cases {
            let parsed = |text: &str| text.parse::<Wire>().expect(text);
            assert_eq!(parsed(wire).or(&parsed(other)).to_string(), expected, "{wire} over {other}");
        }
        assert_eq!(DEFAULT_ENDPOINT.parse(), Ok(Wire::default()));
        assert_eq!("local".parse::<Wire>().map(|wire| wire.to_string()).as_deref(), Ok("auto@local"));
        assert_eq!("lan".parse::<Wire>().map(|wire| wire.to_string()).as_deref(), Ok("auto@lan"));
        assert_eq!("shm".parse::<Wire>().map(|wire| wire.to_string()).as_deref(), Ok("auto@shm"));
        assert_eq!("tcp/a:1".parse::<Wire>().map(|wire| wire.to_string()).as_deref(), Ok("auto@tcp/a:1"));
    }

    #[test]
    fn unknown_names_have_a_hint() {
        let names = Names { codecs: &["cdr", "json"], compressors: &[], engines: &["tcp"] };
        let check = |text: &str| text.parse::<Wire>().expect("well-formed").check(&names).map_err(|e| e.to_string());
        assert_eq!(check("auto@tcp/x"), Ok(()));
        assert_eq!(check("jsn"), Err("unknown codec 'jsn', did you mean 'json'?".into()));
        assert_eq!(check("protobuf"), Err("unknown codec 'protobuf'; there are cdr, json".into()));
        assert_eq!(check("cdr+zstd"), Err("unknown compressor 'zstd'; there is none".into()));
        assert_eq!(check("lcal"), Err("unknown codec 'lcal', did you mean the endpoint 'local'?".into()));
        let left_out =
            "unknown engine 'tls-listen': this program was built without it, build it with the feature 'tls'";
        assert_eq!(check("tls-listen/a:1"), Err(left_out.into()));
        let mistyped = "json@locl".parse::<Wire>().map_err(|e| e.to_string());
        assert_eq!(mistyped, Err("unknown engine 'locl', did you mean 'local'?".into()));
    }
}
