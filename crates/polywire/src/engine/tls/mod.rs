//! TLS 1.3 over TCP. Both sides authenticate by certificates.
//!
//! The library `rustls` implements the protocol. This module has the transport, which wraps the TCP
//! transport. `stream` is a byte stream within TLS, `credentials` reads the files of a node's
//! identity, `member` verifies the peers of a caller that knows no names, and `explain` has the
//! texts for failed handshakes. The module uses `engine/tcp` and `engine/sockets`.
//!
//! ```
//! use polywire::{engine::{tls::{Tls, TlsConnect, TlsListen}, Engine}, Node};
//! assert_eq!([Tls.name(), TlsListen.name(), TlsConnect.name()], ["tls", "tls-listen", "tls-connect"]);
//!
//! // Without certificates there is no TLS.
//! let error = Node::new().open("tls-listen/127.0.0.1:0").unwrap_err().to_string();
//! assert!(error.contains("POLYWIRE_CERTIFICATE"), "{error}");
//! ```

mod credentials;
mod explain;
#[cfg(feature = "lan")]
mod member;
mod stream;

#[cfg(test)]
#[path = "../../../tests/common/fleet.rs"]
mod fleet;

use std::{io, net::IpAddr, sync::Arc, time::Duration};

use rustls::{ClientConfig, ClientConnection, Connection as Session, ServerConnection, pki_types::ServerName};

use self::{credentials::Credentials, stream::TlsStream};
#[cfg(any(feature = "dds-security", feature = "zenoh"))]
use super::identity::Files;
use super::{
    Engine, EngineError, Local, Port, Properties, Sink,
    sockets::{self, engine},
    stream::{self as streams, Connection, Listener, PROPERTIES, Role, Transport},
    tcp,
};
#[cfg(any(feature = "dds-security", feature = "lan", feature = "zenoh"))]
use super::{Identity, IdentityError};

/// `tls/ADDR`: listens if the address is local and free, and connects otherwise.
pub struct Tls;
/// `tls-listen/ADDR`: listens; opening fails if it cannot.
pub struct TlsListen;
/// `tls-connect/ADDR`: connects, and keeps trying.
pub struct TlsConnect;

engine!(
    Tls,
    "tls",
    Role::Either,
    "127.0.0.1:7448",
    "TLS over TCP: listens if the address is free here, else connects",
    open
);
engine!(TlsListen, "tls-listen", Role::Listen, "0.0.0.0:7448", "TLS over TCP, listening", open);
engine!(TlsConnect, "tls-connect", Role::Connect, "robot.example:7448", "TLS over TCP, connecting", open);

/// Returns the files of an identity, after a check of their present content.
#[cfg(any(feature = "dds-security", feature = "zenoh"))]
pub(super) fn checked_files(identity: &Identity) -> Result<Files, IdentityError> {
    Credentials::read(identity).map(Credentials::into_files)
}

fn open(
    role: Role,
    (name, example): (&'static str, &'static str),
    address: &str,
    local: &Local,
    sink: Arc<dyn Sink>,
) -> Result<Arc<dyn Port>, EngineError> {
    let bad = |reason| EngineError::Address { engine: name, address: address.into(), reason, example };
    let below = sockets::transport(&tcp::FAMILY, name, address, local).map_err(bad)?;
    let host = match role {
        Role::Listen => None,
        Role::Either | Role::Connect => Some(host(address).map_err(bad)?),
    };
    let endpoint = format!("{name}/{address}");
    let credentials = Credentials::read(&local.options.identity)
        .map_err(|cause| EngineError::Identity { endpoint: endpoint.clone(), cause })?;
    let patience = local.options.connect_timeout;
    let transport =
        TlsTransport { below: Box::new(below), host, endpoint, credentials: Arc::new(credentials), patience };
    streams::open(transport, role, local, sink)
}

/// Returns the name or IP address that the certificate of the listening side must be for.
fn host(address: &str) -> Result<ServerName<'static>, String> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if bare.is_empty() || bare == "*" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified()) {
        return Err("whoever connects has to name the host that listens, to check its certificate; \
                    'tls-listen/' takes every address"
            .into());
    }
    ServerName::try_from(bare.to_owned()).map_err(|_| format!("'{bare}' is no name that a certificate can be for"))
}

/// One address of the engine.
struct TlsTransport {
    below: Box<dyn Transport>,
    /// `None` if the port never connects.
    host: Option<ServerName<'static>>,
    endpoint: String,
    credentials: Arc<Credentials>,
    /// Longest time of a handshake, for the side that connects.
    patience: Duration,
}

impl Transport for TlsTransport {
    fn name(&self) -> &'static str {
        "tls"
    }

    fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    fn listen(&self) -> io::Result<Arc<dyn Listener>> {
        Ok(Arc::new(TlsListener { below: self.below.listen()?, credentials: self.credentials.clone() }))
    }

    fn connect(&self) -> io::Result<Connection> {
        let host = self.host.clone().ok_or(io::ErrorKind::Unsupported)?;
        called(self.below.connect()?, self.credentials.current().client, host, self.patience)
    }
}

struct TlsListener {
    below: Arc<dyn Listener>,
    credentials: Arc<Credentials>,
}

impl Listener for TlsListener {
    fn endpoint(&self) -> String {
        self.below.endpoint().replacen("tcp/", "tls/", 1)
    }

    /// Accepts a connection. Its reading thread carries out the handshake, within
    /// [`EngineOptions::hello_timeout`](super::EngineOptions::hello_timeout).
    fn accept(&self) -> io::Result<Option<Connection>> {
        self.below.accept()?.map(|connection| accepted(connection, &self.credentials)).transpose()
    }

    fn wake(&self) {
        self.below.wake();
    }

    fn close(&self) {
        self.below.close();
    }
}

/// TLS between nodes that call each other at addresses which no certificate names: each side
/// accepts every peer whose certificate an authority of the fleet signed. The engine `lan` uses it.
#[cfg(feature = "lan")]
pub(super) struct Fleet(Credentials);

#[cfg(feature = "lan")]
impl Fleet {
    /// Fails if a file of the identity is missing or wrong.
    pub(super) fn read(identity: &Identity) -> Result<Fleet, IdentityError> {
        Credentials::read(identity).map(Fleet)
    }

    /// Puts TLS over a connection that was accepted. The connection's reading thread carries out
    /// the handshake.
    pub(super) fn accepted(&self, connection: Connection) -> io::Result<Connection> {
        accepted(connection, &self.0)
    }

    /// Puts TLS over a connection that was made to `host`, and carries out the handshake.
    pub(super) fn called(&self, connection: Connection, host: IpAddr, patience: Duration) -> io::Result<Connection> {
        called(connection, self.0.current().member, host.into(), patience)
    }
}

/// Puts TLS over a connection that was accepted. The handshake follows at the first reads.
fn accepted(connection: Connection, credentials: &Credentials) -> io::Result<Connection> {
    let session = ServerConnection::new(credentials.current().server).map_err(io::Error::other)?;
    Ok(within(connection, session.into()).0)
}

/// Puts TLS over a connection that was made to `host`, and carries out the handshake.
fn called(
    connection: Connection,
    config: Arc<ClientConfig>,
    host: ServerName<'static>,
    patience: Duration,
) -> io::Result<Connection> {
    let session = ClientConnection::new(config, host).map_err(io::Error::other)?;
    let (connection, stream) = within(connection, session.into());
    stream.handshake(patience)?;
    Ok(connection)
}

fn within(connection: Connection, session: Session) -> (Connection, Arc<TlsStream>) {
    let stream = Arc::new(TlsStream::new(connection.stream, session));
    (Connection { stream: stream.clone(), ..connection }, stream)
}
