//! Who the peer at the other end of a link is, as far as the engine can prove it.

use std::fmt;

use crate::system::Process;

/// The identity of a peer, which the engine has proof of. What the peer claims without proof does
/// not count.
///
/// ```
/// use polywire::engine::Principal;
/// assert_eq!(Principal::Certificate("pump-3".into()).to_string(), "pump-3");
/// assert_eq!(Principal::User(1000).to_string(), "user 1000");
/// assert_eq!(Principal::default(), Principal::Anonymous);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Principal {
    /// Any peer: the engine has no proof of its identity, as with TCP.
    #[default]
    Anonymous,
    /// The holder of the key of a certificate that an authority of this node signed. The name is
    /// the certificate's first DNS name, in lower case.
    Certificate(String),
    /// A process of the Unix user with this number, on this machine.
    User(u32),
    /// A node of this process.
    Process,
}

impl Principal {
    /// Returns the user of the process at the other end of a socket, as the system reports it.
    pub(crate) fn of_user(peer: Option<Process>) -> Principal {
        peer.map_or(Principal::Anonymous, |peer| Principal::User(peer.user))
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Principal::Anonymous => f.write_str("anonymous"),
            Principal::Certificate(name) => f.write_str(name),
            Principal::User(id) => write!(f, "user {id}"),
            Principal::Process => f.write_str("this process"),
        }
    }
}
