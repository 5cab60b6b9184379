//! The nodes that DNS-SD names: a table of bounded size, whatever the network sends. It does no
//! I/O.

use std::{collections::BTreeMap, net::SocketAddr};

use super::record::Record;
use crate::engine::stream::Peer;

/// The most addresses of one node that are tried.
const ADDRESSES: usize = 8;

/// Nodes by instance name.
pub(super) struct Table {
    known: BTreeMap<String, Known>,
    most: usize,
    last: u64,
    ignored: u64,
}

/// A node that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) record: Record,
    /// The addresses, first the one that is most likely to work.
    pub(super) addresses: Vec<SocketAddr>,
    /// The node did not answer the last call.
    is_dead: bool,
    /// The position in the order in which the nodes were found.
    number: u64,
}

impl Table {
    /// Creates a table of at most `most` nodes.
    pub(super) fn new(most: usize) -> Table {
        Table { known: BTreeMap::new(), most, last: 0, ignored: 0 }
    }

    /// Adds or updates a node that was found. Fails with the reason if the node is ignored.
    pub(super) fn found(&mut self, name: &str, record: Record, addresses: Vec<SocketAddr>) -> Result<(), String> {
        let addresses = best(addresses);
        if addresses.is_empty() {
            return Err("it has no address at which it could be called".into());
        }
        let number = match self.known.get(name) {
            Some(known) if known.record == record && known.addresses == addresses => return Ok(()),
            Some(known) => known.number,
            None => {
                self.make_room()?;
                self.last += 1;
                self.last
            }
        };
        self.known.insert(name.into(), Known { record, addresses, is_dead: false, number });
        Ok(())
    }

    /// Forgets a node that has said goodbye, or is not heard any more.
    pub(super) fn gone(&mut self, name: &str) {
        self.known.remove(name);
    }

    /// Forgets all nodes.
    pub(super) fn clear(&mut self) {
        self.known.clear();
    }

    /// Notes whether a node has answered a call. Returns whether the node is known, and had
    /// answered its last call or was never called.
    pub(super) fn called(&mut self, name: &str, answered: bool) -> bool {
        self.known.get_mut(name).is_some_and(|known| !std::mem::replace(&mut known.is_dead, !answered))
    }

    /// Counts something ignored. Returns the count if it is to be reported: the 1st, 2nd, 4th, ...
    pub(super) fn ignore(&mut self) -> Option<u64> {
        self.ignored += 1;
        Some(self.ignored).filter(|total| total.is_power_of_two())
    }

    pub(super) fn get(&self, name: &str) -> Option<&Known> {
        self.known.get(name)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&String, &Known)> {
        self.known.iter()
    }

    /// Returns the nodes of a domain.
    pub(super) fn peers(&self, domain: u8) -> Vec<Peer> {
        let there = self.known.iter().filter(|(_, known)| known.record.domain == domain);
        there.map(|(name, known)| Peer { address: name.clone(), hello: Some(known.record.hello) }).collect()
    }

    /// Makes room for a new node, by removing the oldest node that does not answer. Fails if the
    /// table is full and all nodes answer.
    fn make_room(&mut self) -> Result<(), String> {
        if self.known.len() < self.most {
            return Ok(());
        }
        let dead = self.known.iter().filter(|(_, known)| known.is_dead).min_by_key(|(_, known)| known.number);
        let name = dead.map(|(name, _)| name.clone());
        let name = name.ok_or_else(|| format!("there are {} nodes already, and all of them answer", self.most))?;
        self.known.remove(&name);
        Ok(())
    }
}

/// Returns some of the addresses, first those that are most likely to work. Link-local IPv6
/// addresses need a scope and are last.
fn best(mut addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let is_host = |address: &SocketAddr| {
        let is_broadcast = matches!(address, SocketAddr::V4(v4) if v4.ip().is_broadcast());
        !address.ip().is_unspecified() && !address.ip().is_multicast() && !is_broadcast && address.port() != 0
    };
    let rank = |address: &SocketAddr| match address {
        SocketAddr::V4(v4) => (!v4.ip().is_loopback(), 0),
        SocketAddr::V6(v6) => (!v6.ip().is_loopback(), 1 + u8::from(v6.ip().is_unicast_link_local())),
    };
    addresses.retain(is_host);
    addresses.sort_by_key(|address| (rank(address), *address));
    addresses.dedup();
    addresses.truncate(ADDRESSES);
    addresses
}

#[cfg(test)]
mod tests {
    use polywire_core::{envelope::Id128, frame::Hello};

    use super::*;

    fn record(number: u8, domain: u8) -> Record {
        Record::new(Hello { node: Id128([number; 16]), incarnation: 1 }, domain, false)
    }

    fn at(text: &str) -> Vec<SocketAddr> {
        text.split(' ').map(|address| address.parse().expect("an address")).collect()
    }

    #[test]
    fn nodes_of_other_domains_are_known_but_no_peers() {
        let mut table = Table::new(4);
        table.found("a", record(1, 0), at("10.0.0.1:1")).expect("taken");
        table.found("b", record(2, 3), at("10.0.0.2:1")).expect("taken");
        let peers = table.peers(0);
        assert_eq!(peers, [Peer { address: "a".into(), hello: Some(record(1, 0).hello) }]);
        assert_eq!(table.all().count(), 2);
        // The node has restarted.
        table.found("a", Record { domain: 3, ..record(1, 0) }, at("10.0.0.1:2")).expect("taken");
        assert!(table.peers(0).is_empty() && table.peers(3).len() == 2);
        table.gone("a");
        assert_eq!(table.peers(3).len(), 1);
        table.clear();
        assert_eq!(table.all().count(), 0);
    }

    #[test]
    fn a_full_table_forgets_who_does_not_answer_and_else_takes_nobody() {
        let mut table = Table::new(3);
        for number in 1..=3 {
            table.found(&number.to_string(), record(number, 0), at("10.0.0.1:1")).expect("taken");
        }
        assert!(table.found("4", record(4, 0), at("10.0.0.1:1")).is_err_and(|reason| reason.contains("3 nodes")));
        for (name, answers) in [("1", true), ("2", false), ("3", false)] {
            assert!(table.called(name, answers));
        }
        assert!(!table.called("2", false) && !table.called("nobody", false));
        table.found("4", record(4, 0), at("10.0.0.1:1")).expect("taken");
        let names: Vec<&str> = table.all().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["1", "3", "4"]);
        // A known node may change, even if the table is full.
        table.found("1", record(1, 0), at("10.0.0.9:1")).expect("taken");
        assert_eq!(table.get("1").expect("known").addresses, at("10.0.0.9:1"));
    }

    #[test]
    fn what_is_ignored_is_told_less_and_less_often() {
        let mut table = Table::new(1);
        let told: Vec<u64> = (0..1000).filter_map(|_| table.ignore()).collect();
        assert_eq!(told, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
    }

    #[test]
    fn addresses_that_work_most_likely_come_first_and_impossible_ones_not_at_all() {
        let mut table = Table::new(2);
        let text = "[fe80::1%4]:1 [2001:db8::1]:1 10.0.0.2:1 127.0.0.1:1 0.0.0.0:1 224.0.0.1:1 255.255.255.255:1 \
                    10.0.0.2:1 10.0.0.3:0 [::]:1 [ff02::1]:1";
        table.found("a", record(1, 0), at(&text.replace("  ", " "))).expect("taken");
        let best = at("127.0.0.1:1 10.0.0.2:1 [2001:db8::1]:1 [fe80::1%4]:1");
        assert_eq!(table.get("a").expect("known").addresses, best);
        assert!(table.found("b", record(2, 0), at("0.0.0.0:1")).is_err_and(|reason| reason.contains("no address")));
        let many: Vec<SocketAddr> = (1..=200).map(|last| SocketAddr::from(([10, 0, 0, last], 1))).collect();
        table.found("b", record(2, 0), many).expect("taken");
        assert_eq!(table.get("b").expect("known").addresses.len(), ADDRESSES);
    }
}
