//! Nodes of one user on one machine, which find each other without an address: `local`, the default
//! endpoint.
//!
//! Each node has a socket in a folder that belongs to the user, and one link to every other node
//! there. No node depends on another one: if one ends, is killed or suspended, the others continue.
//! `folder` locates the folder and checks that it is safe, `member` manages the node's files in it,
//! and `watch` notices changes in it.
//!
//! ```
//! use polywire::{engine::{local::Domain, Engine}, Node};
//! assert_eq!(Domain.name(), "local");
//!
//! let folder = std::env::temp_dir().join(format!("polywire-doc-{}", std::process::id()));
//! let endpoint = format!("local/{}", folder.display());
//! let (here, there) = (Node::new(), Node::new());
//! here.open(&endpoint)?;
//! there.open(&endpoint)?;
//! while here.links() == 0 || there.links() == 0 {
//!     std::thread::sleep(std::time::Duration::from_millis(1));
//! }
//! // A domain is a number; the default is POLYWIRE_DOMAIN, or 0.
//! let error = here.open("local/233").unwrap_err();
//! assert!(error.to_string().contains("from 0 to 232"), "{error}");
//! # (here.close(), there.close());
//! # std::fs::remove_dir(&folder).unwrap();
//! # Ok::<(), polywire::NodeError>(())
//! ```

mod folder;
mod member;
mod watch;

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use socket2::{Socket, Type};

pub(super) use self::folder::Place;
use self::member::Member;
#[cfg(any(feature = "shm", feature = "zeromq"))]
pub(super) use self::member::{hello_of, name_of};
#[cfg(feature = "shm")]
pub(super) use self::member::{lock_anew, lock_of_dead};
use super::{
    Engine, EngineError, Local, Port, Principal, Properties, Sink, domain,
    sockets::SocketStream,
    stream::{self, ByteStream, Connection, Listener, PROPERTIES, Peer, Rendezvous},
};

/// The longest lease: between nodes of one machine, a longer silence means that the peer does not
/// run.
const LEASE: Duration = Duration::from_secs(1);

/// `local`, `local/DOMAIN` or `local//FOLDER`: finds and links all nodes of the user in a domain.
pub struct Domain;

impl Engine for Domain {
    fn name(&self) -> &'static str {
        "local"
    }

    fn summary(&self) -> &'static str {
        "All nodes of the user on this machine; DOMAIN is 0 to 232"
    }

    fn example(&self) -> &'static str {
        "0"
    }

    fn properties(&self) -> Properties {
        PROPERTIES
    }

    fn complete(&self, address: &str) -> String {
        complete(address)
    }

    fn open(&self, address: &str, local: &Local, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, EngineError> {
        let address = complete(address);
        let bad = |reason| EngineError::Address { engine: "local", address: address.clone(), reason, example: "0" };
        let place: Place = address.parse().map_err(bad)?;
        let stream = |socket, principal| Arc::new(SocketStream::new(socket, principal)) as Arc<dyn ByteStream>;
        let medium = Medium { engine: "local", below: None, socket: Type::STREAM, stream: Box::new(stream) };
        meet(format!("local/{place}"), place, medium, local, sink)
    }
}

/// How the nodes of a domain exchange bytes.
pub(super) struct Medium {
    /// Name of the engine.
    pub(super) engine: &'static str,
    /// Name of the engine's own folder within the domain's folder, if it has one.
    pub(super) below: Option<&'static str>,
    /// Type of the sockets at which the nodes listen.
    pub(super) socket: Type,
    /// Makes the stream over a connected, blocking socket to a node of this principal.
    pub(super) stream: Box<dyn Fn(Socket, Principal) -> Arc<dyn ByteStream> + Send + Sync>,
}

/// Returns the place that an address names, in its usual form. A malformed address stays as it is,
/// so that `open` reports it.
pub(super) fn complete(address: &str) -> String {
    let given = match address {
        "" => domain::default(),
        address => address.into(),
    };
    given.parse::<Place>().map_or(given, |place| place.to_string())
}

/// Opens a port with a link to every other node of a place.
pub(super) fn meet(
    endpoint: String,
    place: Place,
    medium: Medium,
    local: &Local,
    sink: Arc<dyn Sink>,
) -> Result<Arc<dyn Port>, EngineError> {
    let mut local = local.clone();
    local.options.lease = local.options.lease.min(LEASE);
    let system = |cause| EngineError::System { endpoint: endpoint.clone(), action: "use its folder", cause };
    let member = Member::new(&endpoint, place, medium, &local).map_err(system)?;
    stream::open_mesh(Neighbours(Arc::new(member)), &local, sink)
}

/// Returns the folder in which the nodes of an address meet. The address is a domain, the absolute
/// path of a folder, or empty, which is the domain of `POLYWIRE_DOMAIN`, or 0. Makes the folder if
/// it is missing. Fails if the address is wrong, or if the folder belongs to another user or other
/// users could use it.
///
/// ```
/// let folder = std::env::temp_dir().join(format!("polywire-doc-folder-{}", std::process::id()));
/// assert_eq!(polywire::engine::local::folder(folder.to_str().unwrap())?, folder);
/// assert!(polywire::engine::local::folder("233").is_err());
/// # std::fs::remove_dir(&folder)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn folder(address: &str) -> io::Result<PathBuf> {
    let place: Result<Place, _> = complete(address).parse();
    place.map_err(|reason| io::Error::new(io::ErrorKind::InvalidInput, reason))?.folder(None)
}

/// The nodes of a domain.
struct Neighbours(Arc<Member>);

impl Rendezvous for Neighbours {
    fn name(&self) -> &'static str {
        self.0.engine()
    }

    fn endpoint(&self) -> String {
        self.0.endpoint().into()
    }

    fn listen(&self) -> io::Result<Arc<dyn Listener>> {
        self.0.appear()?;
        Ok(self.0.clone())
    }

    fn peers(&self) -> io::Result<Vec<Peer>> {
        self.0.peers()
    }

    fn connect(&self, address: &str) -> io::Result<Connection> {
        self.0.connect(address)
    }

    fn wait(&self, timeout: Duration) {
        self.0.watch().wait(timeout);
    }

    fn wake(&self) {
        self.0.watch().wake();
    }
}
