//! Nodes on one network, which find each other without an address: `lan`.
//!
//! Each node listens at a TCP port, advertises it by DNS-SD (service `_polywire._tcp`), and has one
//! link to every other node of its domain, as over [`local`](super::local). With an identity
//! ([`EngineOptions::identity`](super::EngineOptions::identity), or by the environment), all links
//! are within TLS 1.3, and both sides prove who they are. `spec/lan.md` defines what nodes
//! advertise.
//!
//! `address` reads addresses, `record` writes and reads what nodes advertise, `table` holds the
//! nodes found, `finder` speaks DNS-SD, `interfaces` selects interfaces of the machine, and
//! `member` listens and calls.
//!
//! ```
//! use polywire::{engine::{lan::Lan, Engine}, Node};
//! assert_eq!((Lan.name(), Lan.properties().reliable), ("lan", true));
//!
//! // Without multicast, an address names its peers. Here both nodes are on one machine.
//! let (first, second) = (Node::new(), Node::new());
//! let endpoint = first.open("lan/0?multicast=off,interface=127.0.0.1,port=0")?;
//! let port = endpoint.rsplit_once('=').unwrap().1;
//! second.open(&format!("lan/0?multicast=off,interface=127.0.0.1,port=0,peer=127.0.0.1:{port}"))?;
//! while first.links() == 0 || second.links() == 0 {
//!     std::thread::sleep(std::time::Duration::from_millis(1));
//! }
//! let error = first.open("lan/0?interfaces=eth0").unwrap_err().to_string();
//! assert!(error.contains("there are interface, peer, port, multicast"), "{error}");
//! # Ok::<(), polywire::NodeError>(())
//! ```

mod address;
mod finder;
mod interfaces;
mod member;
mod record;
mod table;

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use polywire_core::frame::Hello;

use self::{address::Address, finder::Finder, interfaces::Selection, member::Member, record::Record, table::Table};
use super::{
    Engine, EngineError, Local, Port, Properties, Sink, domain,
    stream::{self, PROPERTIES},
    tls::Fleet,
};
use crate::clock;

/// `lan`, `lan/DOMAIN` or `lan/DOMAIN?OPTIONS`: finds and links all nodes of a domain on the
/// network.
pub struct Lan;

impl Engine for Lan {
    fn name(&self) -> &'static str {
        "lan"
    }

    fn summary(&self) -> &'static str {
        "All nodes on the network, found by DNS-SD; DOMAIN is 0 to 232"
    }

    fn example(&self) -> &'static str {
        "0?interface=eth0,peer=192.0.2.1:7461"
    }

    fn properties(&self) -> Properties {
        PROPERTIES
    }

    fn complete(&self, address: &str) -> String {
        let (number, options) = match address.split_once('?') {
            Some((number, options)) => (number, format!("?{options}")),
            None => (address, String::new()),
        };
        let given = if number.is_empty() { domain::default() } else { number.into() };
        // A malformed domain stays as it is, so that `open` reports it.
        let domain = domain::parse(&given).map_or(given, |domain| domain.to_string());
        format!("{domain}{options}")
    }

    fn open(&self, address: &str, local: &Local, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, EngineError> {
        let text = self.complete(address);
        let bad =
            |reason| EngineError::Address { engine: "lan", address: text.clone(), reason, example: self.example() };
        let address = Address::parse(&text).map_err(bad)?;
        let endpoint = format!("lan/{text}");
        let identity = &local.options.identity;
        let fleet = identity.is_named().then(|| Fleet::read(identity)).transpose();
        let fleet = fleet.map_err(|cause| EngineError::Identity { endpoint: endpoint.clone(), cause })?;
        let system = |cause| EngineError::System { endpoint: endpoint.clone(), action: "use the interface", cause };
        let told = sink.clone();
        let tell = Box::new(move |event| told.event(event));
        let member = Member::new(&endpoint, address, fleet, local, tell).map_err(system)?;
        stream::open_mesh(Arc::new(member), local, sink)
    }
}

/// What a node advertises by DNS-SD. It is not authenticated: any host on the network can advertise
/// anything.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Advertised {
    /// The instance name: machine, TCP port and id of the node.
    pub name: String,
    /// The hello that the node sends to peers.
    pub hello: Hello,
    /// Its domain.
    pub domain: u8,
    /// Whether its links are within TLS.
    pub is_tls: bool,
    /// Its version of Polywire.
    pub version: String,
    /// The addresses at which the node listens, first the one that is most likely to work.
    pub addresses: Vec<SocketAddr>,
}

/// Looks for nodes of any domain by DNS-SD, and returns at most 1024. `interfaces` are names or
/// addresses of interfaces; an empty slice stands for all. Calls no node, and does not advertise
/// this process. Blocks for `time`.
///
/// ```
/// use polywire::engine::lan::{self, Advertised};
/// let there: Vec<Advertised> = lan::browse(&["127.0.0.1"], std::time::Duration::from_millis(100))?;
/// for node in there {
///     println!("{}: domain {}, Polywire {}", node.name, node.domain, node.version);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn browse(interfaces: &[&str], time: Duration) -> io::Result<Vec<Advertised>> {
    let wanted = interfaces.iter().map(|text| address::Interface::of(text)).collect();
    let selection = Selection::new(wanted);
    selection.check().map_err(|reason| io::Error::new(io::ErrorKind::InvalidInput, reason))?;
    let finder = Arc::new(Finder::new("lan", selection, 1024, Box::new(|event| log::warn!("{event}"))));
    finder.start(None)?;
    let until = clock::deadline(time);
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        finder.wait(left);
    }
    let found = finder.all();
    finder.close();
    Ok(found.into_iter().map(|(name, known)| Advertised::new(name, known)).collect())
}

impl Advertised {
    /// Reads what a node advertises, as another browser of DNS-SD than [`browse`] has found it.
    /// `name` is the instance name, and `value` returns the values of the TXT record by their keys.
    /// Keeps at most 8 of the addresses. Fails with a reason if the record is malformed, or if a
    /// node could be called at none of the addresses.
    ///
    /// ```
    /// use polywire::engine::lan::Advertised;
    /// let pairs = [("txtvers", "1"), ("frames", "1"), ("node", "ab"), ("inc", "7"), ("domain", "3"), ("tls", "0")];
    /// let value = |key: &str| pairs.iter().find(|(own, _)| *own == key).map(|(_, value)| value.as_bytes());
    /// let node = Advertised::read("plant:7461 ab", value, vec!["192.0.2.1:7461".parse().unwrap()]).unwrap();
    /// assert_eq!((node.domain, node.is_tls, node.addresses.len()), (3, false, 1));
    /// let error = Advertised::read("plant", |_| None, Vec::new()).unwrap_err();
    /// assert_eq!(error, "its TXT record has no 'txtvers'");
    /// ```
    pub fn read<'a>(
        name: &str,
        value: impl Fn(&str) -> Option<&'a [u8]>,
        addresses: Vec<SocketAddr>,
    ) -> Result<Advertised, String> {
        let mut found = Table::new(1);
        found.found(name, Record::read(value)?, addresses)?;
        let known = found.get(name).ok_or("it was not taken")?;
        Ok(Advertised::new(name.into(), known.clone()))
    }

    fn new(name: String, known: table::Known) -> Advertised {
        let (record, addresses) = (known.record, known.addresses);
        let (hello, domain, is_tls, version) = (record.hello, record.domain, record.is_tls, record.software);
        Advertised { name, hello, domain, is_tls, version, addresses }
    }
}
