//! DDS Security with the identity of the node: its certificate and key, its authority, which also
//! signs the documents, and the two documents in the directory of the certificate.

use std::io;

use polywire_dds::{Guid, Participant, Qos};

use super::{
    super::{Disconnect, EngineError, EngineOptions, rejections::Rejections},
    address::Address,
    state::Shared,
};

/// The message for a participant whose certificate or permissions expire.
pub(super) const EXPIRED: &str = "the certificate or the permissions of this node expire: renew them \
                                  ('polywire identity sign --renew'), and start it again";

/// Joins the domain, with DDS Security if the address says so.
pub(super) fn join(
    address: &Address,
    qos: &Qos,
    options: &EngineOptions,
    endpoint: &str,
) -> Result<Participant, EngineError> {
    let (domain, configuration) = (address.domain, address.configuration.as_deref());
    let joined = match address.security {
        true => secure(domain, configuration, qos, options, endpoint)?,
        false => Participant::new(domain, configuration, qos),
    };
    joined.map_err(|error| EngineError::System {
        endpoint: endpoint.into(),
        action: "join the domain",
        cause: io::Error::other(error),
    })
}

type Joined = Result<Participant, polywire_dds::Error>;

#[cfg(feature = "dds-security")]
fn secure(
    domain: u32,
    configuration: Option<&str>,
    qos: &Qos,
    options: &EngineOptions,
    endpoint: &str,
) -> Result<Joined, EngineError> {
    let wrong = |cause| EngineError::Identity { endpoint: endpoint.into(), cause };
    let security = files(&options.identity).map_err(wrong)?;
    Ok(Participant::secure(domain, configuration, qos, &security))
}

/// Never called: `Address::parse` refuses `security=on` in a program without this feature.
#[cfg(not(feature = "dds-security"))]
fn secure(_: u32, _: Option<&str>, _: &Qos, _: &EngineOptions, _: &str) -> Result<Joined, EngineError> {
    Err(EngineError::Closed)
}

/// Returns the files of an identity, and the documents in the directory of its certificate.
#[cfg(feature = "dds-security")]
fn files(identity: &super::super::Identity) -> Result<polywire_dds::Security, super::super::IdentityError> {
    use super::super::{IdentityError, identity::Files, tls};

    let Files { certificate, key, authority } = tls::checked_files(identity)?;
    let document = |name| {
        let path = certificate.with_file_name(name);
        match std::fs::File::open(&path) {
            Ok(_) => Ok(path),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                let advice = "there is no such file: 'polywire identity sign --dds' makes it";
                Err(IdentityError::Read { path, cause: io::Error::new(cause.kind(), advice) })
            }
            Err(cause) => Err(IdentityError::Read { path, cause }),
        }
    };
    let (governance, permissions) = (document("governance.p7s")?, document("permissions.p7s")?);
    Ok(polywire_dds::Security { authority, certificate, key, governance, permissions })
}

/// Reports other nodes that are in the domain but cannot be reached, because only one of the two
/// nodes uses DDS Security, or because they belong to different fleets. DDS itself does not report
/// them.
pub(super) struct Unreached(Rejections);

impl Default for Unreached {
    fn default() -> Self {
        Unreached(Rejections::new(1))
    }
}

impl Unreached {
    /// Reports each node that has not answered within the handshake timeout, once.
    pub(super) fn tell(&mut self, shared: &Shared) {
        let is_late = |(guid, peer): (&Guid, &mut super::peer::Peer)| {
            peer.node.as_mut()?.is_late(shared.options.hello_timeout).then_some(*guid)
        };
        let late: Vec<Guid> = shared.state.lock().peers.iter_mut().filter_map(is_late).collect();
        let reason = match shared.is_secure {
            true => {
                "it does not prove that it is of this fleet: both need 'security=on' and files of the same authority"
            }
            false => "it does not answer: if it has DDS Security, this node needs 'security=on' as well",
        };
        for guid in late {
            let counted = self.0.count("", guid.to_string(), Disconnect::Untrusted(reason.into()));
            counted.into_iter().for_each(|event| shared.sink.event(event));
        }
    }
}
