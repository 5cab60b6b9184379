//! Hand-written FAST of ProcessorProbe, by the template `processor_probe.fast.xml`: each counter is
//! sent as the difference from its previous value.

use super::{Fast, FastReader, FastWriter};
use crate::{Malformed, ProcessorProbe};

impl Fast for ProcessorProbe {
    /// Whether a message has been written, and the previous values of the counters.
    type State = (bool, [u64; 3]);

    fn template() -> String {
        include_str!("../../processor_probe.fast.xml").into()
    }

    #[inline]
    fn write(&self, writer: &mut FastWriter, (known, state): &mut Self::State) {
        let w = &mut *writer;
        w.begin(1);
        w.bit(!*known);
        if !*known {
            w.unsigned(1);
        }
        *known = true;
        let values = [self.idle_time, self.system_time, self.user_time];
        for (value, previous) in values.iter().zip(state.iter()) {
            w.signed(value.wrapping_sub(*previous) as i64);
        }
        *state = values;
        w.end();
    }

    #[inline]
    fn read(&mut self, r: &mut FastReader, (_, state): &mut Self::State) -> Result<(), Malformed> {
        r.begin()?;
        if r.bit() {
            r.unsigned()?;
        }
        for previous in state.iter_mut() {
            *previous = previous.wrapping_add(r.signed()? as u64);
        }
        [self.idle_time, self.system_time, self.user_time] = *state;
        Ok(())
    }
}
