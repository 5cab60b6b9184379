//! Adjustments of the wall clock.

use std::time::Duration;

use polywire::Message;

use super::{Interval, Rated};
use crate::{Measure, MeasureError, Moment, Pdl, ProbeType, Uuid, probe::boxed};

pub(super) const PROBE: ProbeType = ProbeType {
    name: "clock",
    summary: "How far the wall clock has been moved against the steady clock",
    uuid: Uuid::of(0xa616de8e_5c9f_479e_a223_e79e3d8e7996),
    version: "1.0",
    pdl: Pdl::File(include_str!("../../pdl/clock.pdl")),
    every: Duration::from_secs(10),
    parameters: &[],
    shape: Clock::shape,
    open: |_, _| Ok(boxed(Sampler::default())),
};

/// A sample of the clock. Time services and people move the wall clock; the steady clock never
/// steps.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "system::Clock")]
pub struct Clock {
    /// The time that `moved_s` covers.
    #[polywire(base)]
    pub rated: Rated,
    /// How far the wall clock has been moved since the first sample; positive if it was set
    /// forward.
    #[polywire(unit = "s")]
    pub offset_s: f64,
    /// How far the wall clock has been moved since the previous sample.
    #[polywire(unit = "s")]
    pub moved_s: f64,
}

#[derive(Default)]
struct Sampler {
    interval: Interval,
    first: Option<Moment>,
}

impl Measure<Clock> for Sampler {
    fn measure(&mut self, now: Moment, sample: &mut Clock) -> Result<(), MeasureError> {
        let first = *self.first.get_or_insert(now);
        let wall_s = now.wall_ns.saturating_sub(first.wall_ns) as f64 / 1e9;
        let offset_s = wall_s - now.seconds_since(first);
        let moved_s = if now == first { 0.0 } else { offset_s - sample.offset_s };
        *sample = Clock { rated: self.interval.next(now), offset_s, moved_s };
        Ok(())
    }
}
