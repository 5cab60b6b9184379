//! Network interfaces.

use std::{collections::BTreeMap, time::Duration};

use polywire::Message;

use super::{Interval, Rated};
use crate::{
    Measure, MeasureError, Moment, Pdl, ProbeType, Uuid,
    host::{Host, SystemFile, take},
    probe::boxed,
};

/// The maximum number of interfaces in a sample.
const MAX_INTERFACES: usize = 1024;

pub(super) const PROBE: ProbeType = ProbeType {
    name: "network",
    summary: "What network interfaces receive, send and drop",
    uuid: Uuid::of(0x589bd2bf_8c41_4d84_a1b7_a10c62699d43),
    version: "1.0",
    pdl: Pdl::File(include_str!("../../pdl/network.pdl")),
    every: Duration::from_secs(1),
    parameters: &[],
    shape: Network::shape,
    open: |host, _| Ok(boxed(Sampler::open(host)?)),
};

/// A sample of the network interfaces.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "system::Network")]
pub struct Network {
    /// The time that the rates cover.
    #[polywire(base)]
    pub rated: Rated,
    /// The interfaces, in the system's order; at most 1,024.
    pub interfaces: Vec<Interface>,
}

/// One interface. Its counters start when the interface is created.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "system::Interface", nested)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Bytes received.
    #[polywire(unit = "B")]
    pub received_bytes: u64,
    /// Bytes sent.
    #[polywire(unit = "B")]
    pub sent_bytes: u64,
    /// Bytes received per second.
    #[polywire(unit = "B/s")]
    pub receive_rate: f64,
    /// Bytes sent per second.
    #[polywire(unit = "B/s")]
    pub send_rate: f64,
    /// Packets received.
    pub received_packets: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Received packets that were damaged or dropped.
    pub receive_faults: u64,
    /// Packets to send that were damaged or dropped.
    pub send_faults: u64,
}

struct Sampler {
    file: SystemFile,
    interval: Interval,
    /// Bytes received and sent at the previous sample, by interface.
    before: BTreeMap<String, (u64, u64)>,
}

impl Sampler {
    fn open(host: &Host) -> Result<Sampler, MeasureError> {
        Ok(Sampler { file: host.file("proc/net/dev")?, interval: Interval::default(), before: BTreeMap::new() })
    }
}

impl Measure<Network> for Sampler {
    fn measure(&mut self, now: Moment, sample: &mut Network) -> Result<(), MeasureError> {
        sample.rated = self.interval.next(now);
        // Two lines of headings precede the interfaces.
        let lines = self.file.read()?.lines().skip(2);
        sample.interfaces = lines.filter_map(interface).take(MAX_INTERFACES).collect();
        for interface in &mut sample.interfaces {
            let after = (interface.received_bytes, interface.sent_bytes);
            let before = self.before.get(&interface.name).unwrap_or(&after);
            interface.receive_rate = sample.rated.rate(before.0, after.0);
            interface.send_rate = sample.rated.rate(before.1, after.1);
        }
        let counters =
            |interface: &Interface| (interface.name.clone(), (interface.received_bytes, interface.sent_bytes));
        self.before = sample.interfaces.iter().map(counters).collect();
        Ok(())
    }
}

/// Parses a line of `/proc/net/dev`, without rates.
fn interface(line: &str) -> Option<Interface> {
    // The name of an alias may contain colons.
    let (name, counters) = line.rsplit_once(':')?;
    let [received_bytes, received_packets, damaged, dropped, _, _, _, _, sent_bytes, sent_packets, failed, refused] =
        take(counters)?;
    Some(Interface {
        name: name.trim().to_owned(),
        received_bytes,
        sent_bytes,
        received_packets,
        sent_packets,
        receive_faults: damaged.saturating_add(dropped),
        send_faults: failed.saturating_add(refused),
        ..Interface::default()
    })
}
