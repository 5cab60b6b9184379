//! A node's identity as TLS uses it: the files are read and checked, and read again when they
//! change.

use std::{
    fs::{self, File},
    io::Read as _,
    path::Path,
    sync::Arc,
    time::SystemTime,
};

use parking_lot::Mutex;
use rustls::{
    CertificateError, ClientConfig, Error, RootCertStore, ServerConfig,
    client::Resumption,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject},
    server::{NoServerSessionStorage, WebPkiClientVerifier},
    version::TLS13,
};

use super::explain;
use crate::{
    engine::identity::{Files, Identity, IdentityError, NamedBy},
    system,
};

/// The application protocol (ALPN) of both ends. With it, a node and another service never take
/// each other for a service of their own kind.
const PROTOCOL: &[u8] = b"polywire";
/// Largest file that is read.
const FILE_BYTES: u64 = 1 << 20;

/// The identity of a port.
pub(super) struct Credentials {
    files: Files,
    named_by: NamedBy,
    state: Mutex<State>,
}

struct State {
    configs: Configs,
    /// The stamps of the files when they were last read, with or without success.
    stamps: [Option<Stamp>; 3],
}

/// The configurations for a handshake.
#[derive(Clone)]
pub(super) struct Configs {
    pub(super) client: Arc<ClientConfig>,
    /// Like `client`, but accepts a certificate for any host.
    #[cfg(feature = "lan")]
    pub(super) member: Arc<ClientConfig>,
    pub(super) server: Arc<ServerConfig>,
}

/// Changes whenever a file is written or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    written: SystemTime,
    bytes: u64,
    file: (u64, u64),
}

impl Credentials {
    pub(super) fn read(identity: &Identity) -> Result<Credentials, IdentityError> {
        let files = identity.files()?;
        let stamps = stamps(&files);
        let named_by = identity.named_by();
        let configs = read(&files, &named_by)?;
        Ok(Credentials { files, named_by, state: Mutex::new(State { configs, stamps }) })
    }

    /// Returns the files, for a library that reads them itself.
    #[cfg(any(feature = "dds-security", feature = "zenoh"))]
    pub(super) fn into_files(self) -> Files {
        self.files
    }

    /// Returns the configurations for the next handshake. If the files have changed, reads them
    /// again. If they are wrong now, logs that once, and keeps the configurations that it has.
    pub(super) fn current(&self) -> Configs {
        let mut state = self.state.lock();
        let stamps = stamps(&self.files);
        if stamps != state.stamps {
            state.stamps = stamps;
            match read(&self.files, &self.named_by) {
                Ok(configs) => {
                    log::info!("{}: read again", self.files.certificate.display());
                    state.configs = configs;
                }
                Err(error) => log::warn!("{error}; the identity read before stays in use"),
            }
        }
        state.configs.clone()
    }
}

fn stamps(files: &Files) -> [Option<Stamp>; 3] {
    [&files.certificate, &files.key, &files.authority].map(|path| {
        let meta = fs::metadata(path).ok()?;
        Some(Stamp { written: meta.modified().ok()?, bytes: meta.len(), file: system::file_id(&meta) })
    })
}

/// Reads the files and checks them against each other.
fn read(files: &Files, by: &NamedBy) -> Result<Configs, IdentityError> {
    let provider = Arc::new(ring::default_provider());
    let chain = certificates(&files.certificate).map_err(|error| error.of_file_named_by(&by.certificate))?;
    let key = key(&files.key).map_err(|error| error.of_file_named_by(&by.key))?;
    let roots = Arc::new(roots(&files.authority).map_err(|error| error.of_file_named_by(&by.authority))?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
    let verifier = verifier.map_err(|error| content(&files.authority, &error))?;
    if let Some((own, between)) = chain.split_first() {
        // Peers with the same authority would check the node's certificate in this way.
        let valid = verifier.verify_client_cert(own, between, UnixTime::now());
        valid.map_err(|error| content(&files.certificate, &own_fault(&error, &files.authority)))?;
    }
    let wrong_key = |error: Error| match error {
        Error::InconsistentKeys(_) => {
            content(&files.key, &format!("is not the key of the certificate in {}", files.certificate.display()))
        }
        error => content(&files.key, &error),
    };
    let mut client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| content(&files.key, &error))?
        .with_root_certificates(roots.clone())
        .with_client_auth_cert(chain.clone(), key.clone_key())
        .map_err(wrong_key)?;
    client.alpn_protocols = vec![PROTOCOL.into()];
    // A resumed session would not check certificates again.
    client.resumption = Resumption::disabled();
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| content(&files.key, &error))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(wrong_key)?;
    server.alpn_protocols = vec![PROTOCOL.into()];
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    Ok(Configs {
        #[cfg(feature = "lan")]
        member: Arc::new(super::member::config(&client, roots)),
        client: Arc::new(client),
        server: Arc::new(server),
    })
}

fn own_fault(error: &Error, authority: &Path) -> String {
    use CertificateError as E;
    match error {
        Error::InvalidCertificate(E::UnknownIssuer | E::BadSignature) => format!(
            "was signed by no authority of {}, so peers that have the same file would refuse it",
            authority.display()
        ),
        Error::InvalidCertificate(cause) => explain::certificate("this certificate", cause),
        other => other.to_string(),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let text = text(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| content(path, &error))?;
    match found.is_empty() {
        true => Err(content(path, &"has no certificate in PEM ('-----BEGIN CERTIFICATE-----')")),
        false => Ok(found),
    }
}

fn roots(path: &Path) -> Result<RootCertStore, IdentityError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| content(path, &error))?;
    }
    Ok(roots)
}

/// Reads the private key. Fails if anybody but the owner can use the file.
fn key(path: &Path) -> Result<PrivateKeyDer<'static>, IdentityError> {
    let unreadable = |cause| IdentityError::Read { path: path.into(), cause };
    if let Some(mode) = system::mode_for_others(&fs::metadata(path).map_err(unreadable)?) {
        return Err(IdentityError::Mode { path: path.into(), mode });
    }
    PrivateKeyDer::from_pem_slice(&text(path)?)
        .map_err(|_| content(path, &"has no private key in PEM ('-----BEGIN PRIVATE KEY-----')"))
}

fn text(path: &Path) -> Result<Vec<u8>, IdentityError> {
    let unreadable = |cause| IdentityError::Read { path: path.into(), cause };
    let mut text = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES + 1).read_to_end(&mut text).map_err(unreadable)?;
    match text.len() as u64 > FILE_BYTES {
        true => Err(content(path, &format!("is larger than {FILE_BYTES} bytes"))),
        false => Ok(text),
    }
}

fn content(path: &Path, reason: &dyn ToString) -> IdentityError {
    IdentityError::Content { path: path.into(), reason: reason.to_string() }
}
