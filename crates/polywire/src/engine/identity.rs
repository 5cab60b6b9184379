//! The files by which a node proves who it is, and what can be wrong with them. `engine/tls` reads
//! them; the configuration and the environment name them.

#[cfg(feature = "tls")]
use std::env;
use std::{io, path::PathBuf};

/// The files by which a node proves its identity over TLS and with DDS Security, and verifies the
/// identity of its peers. All three are PEM. `polywire identity` makes them. DDS Security also
/// takes `governance.p7s` and `permissions.p7s` from the folder of the certificate.
///
/// A file that is not named here is taken from the environment variable `POLYWIRE_CERTIFICATE`,
/// `POLYWIRE_KEY` or `POLYWIRE_AUTHORITY`. The files are read when a port opens, and again before
/// a handshake if one of them has changed.
///
/// ```
/// use polywire::{Config, engine::Identity};
/// let config = Config::parse("[identity]\ncertificate = 'a/certificate.pem'\nkey = 'a/key.pem'")?;
/// let identity: &Identity = &config.engine.identity;
/// assert_eq!(identity.key.as_deref(), Some("a/key.pem".as_ref()));
/// assert_eq!(identity.authority, None);
/// # Ok::<(), polywire::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// The node's certificate, followed by the intermediate certificates up to the authority, if
    /// any.
    pub certificate: Option<PathBuf>,
    /// The private key of the certificate. Only its owner may have access to the file.
    pub key: Option<PathBuf>,
    /// The certificates of the authorities that sign the certificates of peers.
    pub authority: Option<PathBuf>,
}

impl Identity {
    /// Creates an identity from three files.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>, authority: impl Into<PathBuf>) -> Self {
        let (certificate, key, authority) = (certificate.into(), key.into(), authority.into());
        Identity { certificate: Some(certificate), key: Some(key), authority: Some(authority) }
    }

    /// Returns the three files, as named here or else by the environment. Fails if a file is not
    /// named.
    #[cfg(feature = "tls")]
    pub(super) fn files(&self) -> Result<Files, IdentityError> {
        let file = |named: &Option<PathBuf>, what, key, variable| {
            named_or_given(named, variable).ok_or(IdentityError::Unnamed { what, key, variable })
        };
        Ok(Files {
            certificate: file(&self.certificate, "certificate", "certificate", CERTIFICATE)?,
            key: file(&self.key, "private key", "key", KEY)?,
            authority: file(&self.authority, "authority's certificate", "authority", AUTHORITY)?,
        })
    }

    /// Returns what names each of the three files: a key of the configuration, or an environment
    /// variable.
    #[cfg(feature = "tls")]
    pub(super) fn named_by(&self) -> NamedBy {
        let by = |named: &Option<PathBuf>, key, variable| match named {
            Some(_) => format!("'{key}' in the section [identity] of the configuration"),
            None => format!("the environment variable {variable}"),
        };
        NamedBy {
            certificate: by(&self.certificate, "certificate", CERTIFICATE),
            key: by(&self.key, "key", KEY),
            authority: by(&self.authority, "authority", AUTHORITY),
        }
    }

    /// Returns whether any of the files is named, here or by the environment.
    #[cfg(feature = "lan")]
    pub(super) fn is_named(&self) -> bool {
        let files = [(&self.certificate, CERTIFICATE), (&self.key, KEY), (&self.authority, AUTHORITY)];
        files.into_iter().any(|(named, variable)| named_or_given(named, variable).is_some())
    }
}

/// The environment variables that name the files.
#[cfg(feature = "tls")]
const CERTIFICATE: &str = "POLYWIRE_CERTIFICATE";
#[cfg(feature = "tls")]
const KEY: &str = "POLYWIRE_KEY";
#[cfg(feature = "tls")]
const AUTHORITY: &str = "POLYWIRE_AUTHORITY";

#[cfg(feature = "tls")]
fn named_or_given(named: &Option<PathBuf>, variable: &str) -> Option<PathBuf> {
    named.clone().or_else(|| env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from))
}

/// The files of a complete [`Identity`].
#[derive(Clone, Debug)]
#[cfg(feature = "tls")]
pub(super) struct Files {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    pub(super) authority: PathBuf,
}

/// What names the files of an [`Identity`], for error messages.
#[cfg(feature = "tls")]
pub(super) struct NamedBy {
    pub(super) certificate: String,
    pub(super) key: String,
    pub(super) authority: String,
}

/// Why a node cannot prove who it is. The messages say what to do.
///
/// ```
/// use polywire::{engine::{EngineError, Identity, IdentityError}, Config, Node, NodeError};
/// let mut config = Config::default();
/// config.engine.identity = Identity::new("no/certificate.pem", "no/key.pem", "no/authority.pem");
/// # if polywire::engine::find("tls").is_none() { return; }
/// let error = Node::builder().config(config).build().open("tls-listen/127.0.0.1:0").unwrap_err();
/// let NodeError::Engine(EngineError::Identity { cause, .. }) = error else { panic!("{error}") };
/// assert!(matches!(cause, IdentityError::Read { .. }), "{cause}");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// Nothing names a file.
    #[error(
        "no file for the {what} is named: set '{key}' in the section [identity] of the configuration, or the \
         environment variable {variable} ('polywire identity' makes the files)"
    )]
    Unnamed {
        /// The content of the file, such as `private key`.
        what: &'static str,
        /// Its key in the configuration.
        key: &'static str,
        /// Its environment variable.
        variable: &'static str,
    },
    /// A file cannot be read.
    #[error("{}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// A file does not have the expected content.
    #[error("{}: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Others than the owner have access to the private key.
    #[error("{0} is open to other users (mode {mode:04o}): chmod 600 {0}", path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
}

#[cfg(feature = "tls")]
impl IdentityError {
    /// Adds to the error of a file that `by` names the file, so that the text says where to correct
    /// the path.
    pub(super) fn of_file_named_by(self, by: &str) -> IdentityError {
        match self {
            IdentityError::Read { path, cause } => {
                let cause = io::Error::new(cause.kind(), format!("{cause}; {by} names this file"));
                IdentityError::Read { path, cause }
            }
            IdentityError::Content { path, reason } => {
                IdentityError::Content { path, reason: format!("{reason}; {by} names this file") }
            }
            other => other,
        }
    }
}
