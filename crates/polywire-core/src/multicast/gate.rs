//! Who may use a member that anybody can reach by its unicast address: only who has proved to
//! receive what is sent to its own address.

use core::time::Duration;

use alloc::vec::Vec;

use super::{
    MemberId,
    packet::{Body, Packet},
};

/// How long a token is good, at least.
const SLOT: Duration = Duration::from_secs(30);

/// Challenges strangers, and holds nothing for them.
///
/// A stranger's status is answered by a challenge with a token, which depends on the stranger's
/// address, its id, the time and a secret. Only the next status that brings the token back is
/// admitted. A challenge is shorter than twice the packet that it answers, and nothing else is sent
/// to an address that has not proved itself.
///
/// ```
/// use std::time::Duration;
/// use polywire_core::multicast::{Admission, Config, Gate, Member};
/// let (gate, now) = (Gate::new([7; 32]), Duration::ZERO);
/// let mut stranger = Member::new(Config { is_pair: true, ..Config::default() }, Default::default(), 1);
/// let mut status = Vec::new();
/// assert!(stranger.poll_transmit(now, &mut status));
/// let Admission::Challenge(challenge) = gate.admit(b"192.0.2.1:4", &status, now) else { panic!() };
/// assert!(challenge.len() < 2 * status.len());
///
/// stranger.handle_datagram(&challenge, now)?;
/// assert!(stranger.poll_transmit(now, &mut status));
/// assert_eq!(gate.admit(b"192.0.2.1:4", &status, now), Admission::Admitted(stranger.id()));
/// assert_ne!(gate.admit(b"192.0.2.2:4", &status, now), Admission::Admitted(stranger.id()));
/// # Ok::<(), polywire_core::multicast::PacketError>(())
/// ```
#[derive(Debug)]
pub struct Gate {
    secret: [u8; 32],
}

/// What is to be done with a datagram from an address that is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The address has proved itself: this member is there.
    Admitted(MemberId),
    /// Send this back to the address.
    Challenge(Vec<u8>),
    /// Send nothing.
    Ignored,
}

impl Gate {
    /// A gate with a secret of its own.
    pub fn new(secret: [u8; 32]) -> Gate {
        Gate { secret }
    }

    /// Decides on a datagram from an unknown address, or from a known member at an unknown address.
    pub fn admit(&self, address: &[u8], datagram: &[u8], now: Duration) -> Admission {
        let Ok(Packet { sender, body }) = Packet::parse(datagram) else { return Admission::Ignored };
        let slot = now.as_secs() / SLOT.as_secs();
        let proved = match body {
            Body::Challenge { .. } | Body::Bye { .. } => return Admission::Ignored,
            Body::Status { token, .. } => {
                [Some(slot), slot.checked_sub(1)].into_iter().flatten().any(|s| token == self.token(address, sender, s))
            }
            _ => false,
        };
        if proved {
            return Admission::Admitted(sender);
        }
        let token = self.token(address, sender, slot);
        let challenge = Packet { sender: MemberId::ALL, body: Body::Challenge { to: sender, token } }.write();
        match challenge.len() < 2 * datagram.len() {
            true => Admission::Challenge(challenge),
            false => Admission::Ignored,
        }
    }

    fn token(&self, address: &[u8], id: MemberId, slot: u64) -> u64 {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(&id.0.to_le_bytes()).update(&slot.to_le_bytes()).update(address);
        let mut token = [0; 8];
        token.copy_from_slice(hasher.finalize().as_bytes().first_chunk::<8>().unwrap_or(&[0; 8]));
        u64::from_le_bytes(token)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::packet::Content, *};

    #[test]
    fn a_token_grows_old() {
        let (gate, here) = (Gate::new([1; 32]), b"here");
        let status = |token| {
            let hello = crate::frame::Hello { node: Default::default(), incarnation: 1 };
            let body = Body::Status { hello, token, oldest: 0, next: 0, entries: Vec::new() };
            Packet { sender: MemberId(5), body }.write()
        };
        let Admission::Challenge(challenge) = gate.admit(here, &status(0), SLOT / 2) else { panic!() };
        let Ok(Packet { body: Body::Challenge { token, .. }, .. }) = Packet::parse(&challenge) else { panic!() };
        assert_eq!(gate.admit(here, &status(token), SLOT), Admission::Admitted(MemberId(5)));
        assert!(matches!(gate.admit(here, &status(token), 3 * SLOT), Admission::Challenge(_)));
    }

    #[test]
    fn no_answer_is_longer_than_twice_the_question() {
        let gate = Gate::new([1; 32]);
        let short =
            Packet { sender: MemberId(5), body: Body::Reliable(1, Content::Records(Vec::new().into())) }.write();
        for question in [&short[..], b"", b"PLYW", &[0x55; 100]] {
            if let Admission::Challenge(answer) = gate.admit(b"a", question, Duration::ZERO) {
                assert!(answer.len() < 2 * question.len());
            }
        }
        let bye = Packet { sender: MemberId(5), body: Body::Bye { to: MemberId::ALL, number: 0 } }.write();
        assert_eq!(gate.admit(b"a", &bye, Duration::ZERO), Admission::Ignored);
    }
}
