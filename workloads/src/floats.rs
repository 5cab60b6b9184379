//! The workload Floats: a sequence of 25,000 floats, like the data of a lidar sensor.

use polywire_derive::Message;

use crate::cdr::{Cdr, FIELD, Malformed, Reader, Writer, string_bound};
use crate::{Rng, Workload};

/// An image of 32-bit floats.
#[derive(Clone, Debug, PartialEq, Default, Message)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(
    feature = "rkyv",
    derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize),
    rkyv(attr(allow(missing_docs)))
)]
#[polywire(name = "Workloads::Floats")]
#[repr(C)]
pub struct Floats {
    /// Nanoseconds since 1970.
    pub stamp: u64,
    /// The name of the frame of reference.
    pub frame_id: String,
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
    /// The values, row by row.
    pub data: Vec<f32>,
}

impl Cdr for Floats {
    #[inline]
    fn encode(&self, writer: &mut Writer) {
        let mut local = *writer;
        let w = &mut local;
        w.scalar(self.stamp);
        w.string(&self.frame_id);
        w.align(4);
        w.scalar(self.height);
        w.scalar(self.width);
        w.floats(&self.data);
        *writer = local;
    }

    #[inline]
    fn decode(&mut self, reader: &mut Reader) -> Result<(), Malformed> {
        let mut local = *reader;
        let r = &mut local;
        self.stamp = r.scalar::<u64>()?;
        r.string(&mut self.frame_id)?;
        r.align(4);
        self.height = r.scalar::<u32>()?;
        self.width = r.scalar::<u32>()?;
        r.floats(&mut self.data)?;
        *reader = local;
        Ok(())
    }

    fn bound(&self) -> usize {
        4 * FIELD + string_bound(&self.frame_id) + 4 * self.data.len()
    }
}

impl Workload for Floats {
    const NAME: &'static str = "100 KB of floats";
    const MESSAGES: usize = 4;

    fn generate(n: usize) -> Vec<Self> {
        let mut rng = Rng(99);
        (0..n)
            .map(|i| Floats {
                stamp: 1_700_000_000_000_000_000 + i as u64 * 100_000_000,
                frame_id: "lidar_front".into(),
                height: 1,
                width: 25000,
                data: (0..25000).map(|k| distance(k, &mut rng)).collect(),
            })
            .collect()
    }
}

fn distance(k: i32, rng: &mut Rng) -> f32 {
    let angle = k as f32 * 0.01;
    10.0 + 5.0 * angle.sin() + (rng.range(-1000, 1001) as f32) * 1e-4
}
