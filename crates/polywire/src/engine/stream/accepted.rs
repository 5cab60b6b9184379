//! The connections that a listening port has accepted, and which of them it closes for a newcomer
//! when it is full.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Shutdown},
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};

use super::transport::ByteStream;

/// Connections that a port has accepted, the oldest first.
#[derive(Default)]
pub(super) struct AcceptedConnections(Mutex<State>);

#[derive(Default)]
struct State {
    connections: Vec<AcceptedConnection>,
    last: u64,
}

/// Identifies an accepted connection; the default stands for one that the port made itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AcceptedId(Option<u64>);

struct AcceptedConnection {
    id: AcceptedId,
    stream: Arc<dyn ByteStream>,
    from: Option<IpAddr>,
    standing: Standing,
}

/// What a peer has done so far, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// It has not said hello.
    Stranger,
    /// It has said hello, but neither announced nor accepted a channel. A quiet node whose
    /// connection is closed connects again.
    Idle,
    /// It publishes or subscribes.
    Active,
}

impl AcceptedConnections {
    /// Admits a connection from a host. If there are `most` connections already, closes one first:
    /// the oldest stranger, else the oldest idle peer, else the newest peer of the host that has
    /// the most. Returns `None` if the newcomer's host would then have as many as that host.
    pub(super) fn admit(&self, stream: &Arc<dyn ByteStream>, host: Option<IpAddr>, most: usize) -> Option<AcceptedId> {
        let from = host.map(|host| host.to_canonical());
        let mut state = self.lock();
        if state.connections.len() >= most {
            let gone = state.makes_room(from)?;
            state.connections.remove(gone).stream.shutdown(Shutdown::Both);
        }
        state.last += 1;
        let id = AcceptedId(Some(state.last));
        state.connections.push(AcceptedConnection { id, stream: stream.clone(), from, standing: Standing::Stranger });
        Some(id)
    }

    /// Raises the standing of a connection.
    pub(super) fn rise(&self, id: AcceptedId, standing: Standing) {
        for connection in self.lock().connections.iter_mut().filter(|connection| connection.id == id) {
            connection.standing = connection.standing.max(standing);
        }
    }

    /// Returns whether the connection was closed to make room for another.
    pub(super) fn is_displaced(&self, id: AcceptedId) -> bool {
        id.0.is_some() && self.lock().connections.iter().all(|connection| connection.id != id)
    }

    pub(super) fn leave(&self, id: AcceptedId) {
        self.lock().connections.retain(|connection| connection.id != id);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl State {
    fn makes_room(&self, newcomer: Option<IpAddr>) -> Option<usize> {
        let oldest = |standing| self.connections.iter().position(|connection| connection.standing == standing);
        oldest(Standing::Stranger).or_else(|| oldest(Standing::Idle)).or_else(|| self.newest_of_the_most(newcomer))
    }

    fn newest_of_the_most(&self, newcomer: Option<IpAddr>) -> Option<usize> {
        let mut counts: BTreeMap<Option<IpAddr>, usize> = BTreeMap::new();
        self.connections.iter().for_each(|connection| *counts.entry(connection.from).or_default() += 1);
        let (most, count) = counts.iter().max_by_key(|(_, count)| **count)?;
        let fair = *count > counts.get(&newcomer).map_or(0, |own| *own) + 1;
        self.connections.iter().rposition(|connection| connection.from == *most).filter(|_| fair)
    }
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use super::*;

    struct Nothing;

    impl ByteStream for Nothing {
        fn read(&self, _: &mut [u8]) -> io::Result<usize> {
            Ok(0)
        }

        fn set_read_timeout(&self, _: Option<Duration>) -> io::Result<()> {
            Ok(())
        }

        fn write(&self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn wait_writable(&self, _: Duration) {}
        fn shutdown(&self, _: Shutdown) {}
    }

    fn admit(accepted: &AcceptedConnections, last: u8) -> Option<AcceptedId> {
        let stream: Arc<dyn ByteStream> = Arc::new(Nothing);
        accepted.admit(&stream, Some([10, 0, 0, last].into()), 4)
    }

    fn four(accepted: &AcceptedConnections, addresses: [u8; 4], standings: [Standing; 4]) -> Vec<AcceptedId> {
        let ids: Vec<AcceptedId> = addresses.iter().map(|last| admit(accepted, *last).expect("room")).collect();
        ids.iter().zip(standings).for_each(|(id, standing)| accepted.rise(*id, standing));
        ids
    }

    #[test]
    fn strangers_make_room_before_idle_peers_and_the_oldest_first() {
        use Standing::{Active, Idle, Stranger};
        let accepted = AcceptedConnections::default();
        let ids = four(&accepted, [1; 4], [Idle, Active, Stranger, Idle]);
        for displaced in [2, 0, 3] {
            let id = admit(&accepted, 1).expect("room is made");
            accepted.rise(id, Active);
            assert!(accepted.is_displaced(ids[displaced]));
        }
        assert_eq!(admit(&accepted, 1), None, "all are active and from one address");
        assert!(!accepted.is_displaced(ids[1]) && !accepted.is_displaced(AcceptedId::default()));
        accepted.leave(ids[1]);
        assert!(admit(&accepted, 1).is_some());
    }

    #[test]
    fn an_address_that_has_most_of_the_places_makes_room_for_others() {
        let accepted = AcceptedConnections::default();
        let ids = four(&accepted, [1, 1, 2, 1], [Standing::Active; 4]);
        assert_eq!(admit(&accepted, 1), None);
        let third = admit(&accepted, 3).expect("room is made");
        accepted.rise(third, Standing::Active);
        assert!(accepted.is_displaced(ids[3]), "the newest of the address with the most");
        assert_eq!(admit(&accepted, 2), None, "it would only change places with the one that makes room");
    }
}
