//! The probe that measures the uplink itself.

use std::time::Duration;

use polywire::Message;

use super::{UplinkHandle, UplinkStatus};
use crate::{MeasureError, Moment, Pdl, Probe, ProbeType, Settings, Uuid, host::Host, probe::boxed};

/// The samples that a node has sent to its collector since its start, and those that it has left
/// out. A node with a collector has a probe `uplink` of this type.
///
/// ```
/// use polywire::{Node, Wire};
/// use polywire_telemetry::{
///     Agent, Clocks, Identity, Moment, Uuid,
///     system::Host,
///     uplink::{Carrier, Memory, Uplink, UplinkOptions, UplinkSample},
/// };
///
/// let (node, clocks, wire) = (Node::new(), Clocks::new(), "cdr@inproc/uplink-probe-doc");
/// let uplink = Uplink::new(Uuid::random(), 7, Box::new(Memory::default()), UplinkOptions::default(), clocks.now())?;
/// let carrier = Carrier::start(&node, wire, uplink, clocks)?;
/// let mut agent = Agent::new(node, Identity::new("house")?, Host::this(), wire, Moment::default())?;
/// agent.send_to(carrier.handle())?;
/// assert_eq!(agent.description().probes[0].topic, "probes/house/uplink");
/// assert_eq!(UplinkSample::from(carrier.handle().status()).acknowledged, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::Uplink")]
pub struct UplinkSample {
    /// Samples that the collector has stored.
    pub acknowledged: u64,
    /// Samples that were dropped from the spool for lack of room.
    pub dropped: u64,
    /// Samples that were not written to the spool, because the disk is full or fails.
    pub unwritten: u64,
    /// Samples that were damaged in the spool.
    pub damaged: u64,
    /// Samples that were replaced by newer ones, of probes that keep only the last ones.
    pub replaced: u64,
    /// Samples that were left out to keep the byte budget.
    pub reduced: u64,
    /// Samples that the collector has refused, or that are too large.
    pub refused: u64,
    /// The size of the spool in bytes.
    #[polywire(unit = "B")]
    pub spool_bytes: u64,
    /// The current measure to keep the byte budget, as in [`Reduction`](crate::packet::Reduction).
    pub reduction: u8,
}

/// The type of the probe.
pub(crate) static PROBE: ProbeType = ProbeType {
    name: "uplink",
    summary: "What the node has sent to its collector, and what it has left out",
    uuid: Uuid::of(0x5f1c0f4e_53a5_4d5b_9d0e_0c6f3b6b8a51),
    version: "1.0",
    pdl: Pdl::File(include_str!("../../pdl/uplink.pdl")),
    every: Duration::from_secs(10),
    parameters: &[],
    shape: UplinkSample::shape,
    open,
};

fn open(_: &Host, _: &Settings) -> Result<Box<dyn Probe>, MeasureError> {
    Err(MeasureError::Unknown("every node with a collector has this probe".to_owned()))
}

/// Makes the probe of this uplink.
pub(crate) fn probe(handle: UplinkHandle) -> Box<dyn Probe> {
    boxed(move |_: Moment, sample: &mut UplinkSample| -> Result<(), MeasureError> {
        *sample = handle.status().into();
        Ok(())
    })
}

impl From<UplinkStatus> for UplinkSample {
    fn from(status: UplinkStatus) -> UplinkSample {
        UplinkSample {
            acknowledged: status.acknowledged,
            dropped: status.spool.dropped,
            unwritten: status.spool.unwritten,
            damaged: status.spool.damaged,
            replaced: status.replaced,
            reduced: status.reduced,
            refused: status.refused,
            spool_bytes: status.spool_bytes,
            reduction: status.reduction as u8,
        }
    }
}
