//! The addresses of this machine, and when a library has lost one that it uses.

use std::net::{IpAddr, Ipv4Addr};

use crate::system;

/// An address of IPv4 and the number of its interface. Libraries find other programs over IPv4.
/// An address that comes back on another interface is another place: groups are joined on
/// interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Place {
    pub(in super::super) address: Ipv4Addr,
    pub(in super::super) interface: String,
    index: u32,
}

impl Place {
    #[cfg(test)]
    pub(in super::super) fn new(interface: &str, address: Ipv4Addr) -> Place {
        Place { address, interface: interface.into(), index: 1 }
    }

    fn of(found: system::Interface) -> Option<Place> {
        let Some(IpAddr::V4(address)) = found.address else { return None };
        Some(Place { address, interface: found.name, index: found.index })
    }
}

/// Returns all addresses of this machine and the [usable] ones, as the system has them at one time.
pub(super) fn present_and_usable() -> (Vec<Place>, Vec<Place>) {
    let (mut present, mut usable) = (Vec::new(), Vec::new());
    for found in system::interfaces() {
        let is_usable = found.is_up && !found.is_loopback;
        let Some(place) = Place::of(found) else { continue };
        if is_usable {
            usable.push(place.clone());
        }
        present.push(place);
    }
    (present, usable)
}

/// Returns the addresses from which other machines can be found, in the order of the system: those
/// of interfaces that are up, take multicast and reach more than this machine.
pub(super) fn usable() -> Vec<Place> {
    present_and_usable().1
}

/// The most interfaces that are remembered because a library has lost its address there.
const MISSED: usize = 16;

/// Decides, look by look, whether a library has to be opened anew.
pub(super) struct Looks {
    used: Vec<Place>,
    /// Names of the interfaces that the library used formerly and does not use now.
    missed: Vec<String>,
    /// What the library would use if it was opened now, if the last look found a reason for that.
    last: Option<Vec<Place>>,
}

impl Looks {
    /// Begins with the addresses that the library uses.
    pub(super) fn new(used: Vec<Place>) -> Looks {
        Looks { used, missed: Vec::new(), last: None }
    }

    /// Takes the addresses that are present, and those that the library would use if it was opened
    /// now. Returns true if this is the second look in succession to find the same reason for that:
    /// the library would use a new address, and it has lost one, or one of the interfaces that it
    /// used formerly has the new one. An interface that is down still has its addresses.
    pub(super) fn look(&mut self, present: &[Place], choice: Vec<Place>) -> bool {
        let has_lost = self.used.iter().any(|place| !present.contains(place));
        let is_reason =
            |place: &Place| !self.used.contains(place) && (has_lost || self.missed.contains(&place.interface));
        let now = choice.iter().any(is_reason).then_some(choice);
        let is_settled = now.is_some() && now == self.last;
        self.last = now;
        is_settled
    }

    /// Goes on with the addresses that the library uses after it was opened anew.
    pub(super) fn renewed(&mut self, used: Vec<Place>) {
        let before = std::mem::replace(&mut self.used, used);
        self.missed.extend(before.into_iter().map(|place| place.interface));
        let is_used = |name: &String| self.used.iter().any(|place| place.interface == *name);
        self.missed.retain(|name| !is_used(name));
        self.missed.drain(..self.missed.len().saturating_sub(MISSED));
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;

    fn place(index: u32, last: u8) -> Place {
        Place { address: Ipv4Addr::new(10, 0, 0, last), interface: format!("eth{index}"), index }
    }

    fn looks(looks: &mut Looks, present: &[Place], choice: &[Place], times: usize) -> Vec<bool> {
        (0..times).map(|_| looks.look(present, choice.to_vec())).collect()
    }

    #[test]
    fn a_port_is_renewed_when_two_looks_agree_that_an_address_was_replaced() {
        let mut port = Looks::new(vec![place(1, 1)]);
        assert_eq!(looks(&mut port, &[place(1, 1)], &[place(1, 1)], 3), [false; 3]);
        assert_eq!(looks(&mut port, &[place(1, 2)], &[place(1, 2)], 2), [false, true]);
        // The second look finds another address than the first.
        let mut port = Looks::new(vec![place(1, 1)]);
        assert_eq!(looks(&mut port, &[place(1, 2)], &[place(1, 2)], 1), [false]);
        assert_eq!(looks(&mut port, &[place(1, 3)], &[place(1, 3)], 2), [false, true]);
        // The address is back at the second look.
        let mut port = Looks::new(vec![place(1, 1)]);
        assert_eq!(looks(&mut port, &[place(1, 2)], &[place(1, 2)], 1), [false]);
        assert_eq!(looks(&mut port, &[place(1, 1)], &[place(1, 1)], 1), [false]);
        assert_eq!(looks(&mut port, &[place(1, 2)], &[place(1, 2)], 1), [false]);
    }

    #[test]
    fn what_a_port_does_not_use_does_not_concern_it() {
        let bridge = place(9, 9);
        // A bridge appears and disappears beside an address of the library.
        let mut port = Looks::new(vec![place(1, 1)]);
        assert_eq!(looks(&mut port, &[place(1, 1), bridge.clone()], &[place(1, 1), bridge.clone()], 3), [false; 3]);
        assert_eq!(looks(&mut port, &[place(1, 1)], &[place(1, 1)], 3), [false; 3]);
        // An address is lost, and those that are left are in use already.
        let mut port = Looks::new(vec![place(1, 1), place(2, 2)]);
        assert_eq!(looks(&mut port, &[place(2, 2)], &[place(2, 2)], 3), [false; 3]);
        // There is no address, and then the one from before.
        assert_eq!(looks(&mut port, &[], &[], 3), [false; 3]);
        assert_eq!(looks(&mut port, &[place(1, 1)], &[place(1, 1)], 3), [false; 3]);
        // The interface is down for a while.
        assert_eq!(looks(&mut port, &[place(1, 1), place(2, 2), bridge], &[place(2, 2)], 3), [false; 3]);
    }

    #[test]
    fn an_interface_that_replaces_another_one_is_another_place() {
        let (before, after) = (place(1, 1), Place { index: 7, ..place(1, 1) });
        let mut port = Looks::new(vec![before]);
        assert_eq!(looks(&mut port, from_ref(&after), from_ref(&after), 2), [false, true]);
    }

    #[test]
    fn a_library_that_had_to_use_another_interface_comes_back() {
        let (wired, bridge, again) = (place(1, 1), place(9, 9), place(1, 7));
        let mut port = Looks::new(vec![wired.clone()]);
        assert_eq!(looks(&mut port, from_ref(&bridge), from_ref(&bridge), 2), [false, true]);
        port.renewed(vec![bridge.clone()]);
        let other = place(2, 2);
        assert_eq!(looks(&mut port, &[bridge.clone(), other.clone()], &[bridge.clone(), other], 3), [false; 3]);
        for back in [wired, again] {
            assert_eq!(looks(&mut port, &[back.clone(), bridge.clone()], &[back], 2), [false, true]);
            assert_eq!(looks(&mut port, from_ref(&bridge), from_ref(&bridge), 1), [false]);
        }
        port.renewed(vec![place(1, 7)]);
        assert_eq!(port.missed, ["eth9"]);
        (0..40).for_each(|index| port.renewed(vec![place(index, 1)]));
        assert_eq!(port.missed.len(), MISSED);
    }

    #[test]
    fn loopback_is_not_for_other_machines() {
        let (present, usable) = present_and_usable();
        assert!(present.iter().any(|place| place.address.is_loopback()));
        assert!(usable.iter().all(|place| !place.address.is_loopback()));
    }
}
