//! Who is connected to a listening port, and who makes room when it is full.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Shutdown},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use socket2::{SockAddr, Socket};

/// Connections that a port has accepted, the oldest first.
#[derive(Default)]
pub(super) struct Guests(Mutex<State>);

#[derive(Default)]
struct State {
    guests: Vec<Guest>,
    last: u64,
}

/// Names a connection that was accepted; none stands for one that the port made itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GuestId(Option<u64>);

struct Guest {
    id: GuestId,
    socket: Arc<Socket>,
    from: Option<IpAddr>,
    standing: Standing,
}

/// What a peer has done so far, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// It has not said hello.
    Stranger,
    /// It has neither announced nor accepted a channel. Quiet nodes are so, too: when they are sent
    /// away, they come back.
    Idle,
    /// It publishes or subscribes.
    Active,
}

impl Guests {
    /// Lets a connection in. If `most` are there, the first of these makes room: the oldest
    /// stranger, the oldest idle peer, the newest peer of the address that has the most of
    /// them, unless the newcomer's own has as many. None if nobody does.
    pub(super) fn admit(&self, socket: &Arc<Socket>, from: &SockAddr, most: usize) -> Option<GuestId> {
        let from = from.as_socket().map(|address| address.ip().to_canonical());
        let mut state = self.lock();
        if state.guests.len() >= most {
            let gone = state.makes_room(from)?;
            // It may have gone by itself.
            let _ = state.guests.remove(gone).socket.shutdown(Shutdown::Both);
        }
        state.last += 1;
        let id = GuestId(Some(state.last));
        state.guests.push(Guest { id, socket: socket.clone(), from, standing: Standing::Stranger });
        Some(id)
    }

    /// The connection has come so far.
    pub(super) fn rise(&self, id: GuestId, standing: Standing) {
        for guest in self.lock().guests.iter_mut().filter(|guest| guest.id == id) {
            guest.standing = guest.standing.max(standing);
        }
    }

    /// The connection had to make room for another.
    pub(super) fn is_displaced(&self, id: GuestId) -> bool {
        id.0.is_some() && self.lock().guests.iter().all(|guest| guest.id != id)
    }

    pub(super) fn leave(&self, id: GuestId) {
        self.lock().guests.retain(|guest| guest.id != id);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn makes_room(&self, newcomer: Option<IpAddr>) -> Option<usize> {
        let oldest = |standing| self.guests.iter().position(|guest| guest.standing == standing);
        oldest(Standing::Stranger).or_else(|| oldest(Standing::Idle)).or_else(|| self.newest_of_the_most(newcomer))
    }

    fn newest_of_the_most(&self, newcomer: Option<IpAddr>) -> Option<usize> {
        let mut counts: BTreeMap<Option<IpAddr>, usize> = BTreeMap::new();
        self.guests.iter().for_each(|guest| *counts.entry(guest.from).or_default() += 1);
        let (most, count) = counts.iter().max_by_key(|(_, count)| **count)?;
        let fair = *count > counts.get(&newcomer).map_or(0, |own| *own) + 1;
        self.guests.iter().rposition(|guest| guest.from == *most).filter(|_| fair)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use socket2::{Domain, Type};

    use super::*;

    fn admit(guests: &Guests, last: u8) -> Option<GuestId> {
        let socket = Arc::new(Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket"));
        guests.admit(&socket, &SocketAddr::from(([10, 0, 0, last], 1)).into(), 4)
    }

    fn four(guests: &Guests, addresses: [u8; 4], standings: [Standing; 4]) -> Vec<GuestId> {
        let ids: Vec<GuestId> = addresses.iter().map(|last| admit(guests, *last).expect("room")).collect();
        ids.iter().zip(standings).for_each(|(id, standing)| guests.rise(*id, standing));
        ids
    }

    #[test]
    fn strangers_make_room_before_idle_peers_and_the_oldest_first() {
        use Standing::{Active, Idle, Stranger};
        let guests = Guests::default();
        let ids = four(&guests, [1; 4], [Idle, Active, Stranger, Idle]);
        for displaced in [2, 0, 3] {
            let id = admit(&guests, 1).expect("room is made");
            guests.rise(id, Active);
            assert!(guests.is_displaced(ids[displaced]));
        }
        assert_eq!(admit(&guests, 1), None, "all are active and from one address");
        assert!(!guests.is_displaced(ids[1]) && !guests.is_displaced(GuestId::default()));
        guests.leave(ids[1]);
        assert!(admit(&guests, 1).is_some());
    }

    #[test]
    fn an_address_that_has_most_of_the_places_makes_room_for_others() {
        let guests = Guests::default();
        let ids = four(&guests, [1, 1, 2, 1], [Standing::Active; 4]);
        assert_eq!(admit(&guests, 1), None);
        let third = admit(&guests, 3).expect("room is made");
        guests.rise(third, Standing::Active);
        assert!(guests.is_displaced(ids[3]), "the newest of the address with the most");
        assert_eq!(admit(&guests, 2), None, "it would only change places with the one that makes room");
    }
}
