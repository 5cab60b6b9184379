//! Probes of applications: cells that any thread updates without a lock, and the code that
//! `#[derive(Probe)]` generates for a structure of cells.

use std::{
    array,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use polywire::{Message, coding::Typed, extend::layout::MessageField};

use crate::{Instrument, MeasureError, Moment, Plan, Probe, ProbeType, Settings, Thinning, Uuid, host::Host};

/// A structure of cells. `#[derive(Probe)]` implements this trait.
///
/// ```
/// use polywire::{Node, coding::Discovered};
/// use polywire_telemetry::{Agent, Application, Counter, Gauge, Histogram, Identity, Moment, Probe, Runner, system::Host};
/// use std::{sync::Arc, time::Duration};
///
/// /// A pump.
/// #[derive(Default, Probe)]
/// #[probe(name = "plant::Pump", uuid = "152a9bd8-6a03-4d4c-85ef-e720829573c4", version = "1.0", every = 0.01)]
/// struct Pump {
///     #[probe(unit = "bar", deadband = 0.5)]
///     pressure: Gauge<f64>,
///     running: Gauge<bool>,
///     strokes: Counter,
///     #[probe(unit = "us")]
///     latency: Histogram,
/// }
///
/// let pump = Arc::new(Pump::default());
/// let wire = "json@inproc/application-doc";
/// let mut agent = Agent::new(Node::new(), Identity::new("plant")?, Host::this(), wire, Moment::default())?;
/// agent.add_application("pump-1", &pump)?;
/// let runner = Runner::start(agent)?;
///
/// // Any thread updates the cells.
/// pump.pressure.set(2.5);
/// pump.running.set(true);
/// pump.strokes.add(3);
/// pump.latency.observe(150);
///
/// let samples = Node::new().subscribe_of("probes/plant/pump-1", Some(wire), Discovered::new()?)?.open();
/// let sample = samples.recv_timeout(Duration::from_secs(60)).unwrap().value;
/// assert_eq!((sample.f64("pressure")?, sample.u64("strokes")?, sample.u64("latency.count")?), (2.5, 3, 1));
/// assert!(Pump::TYPE.pdl.text().contains("probe Pump"));
/// // On request, regardless of whether a value has changed.
/// assert!(runner.flush("pump-1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Application: Send + Sync + 'static {
    /// The type of the samples: a structure with a member for each cell.
    type Sample: Message;

    /// The type of the probe.
    const TYPE: ProbeType;

    /// The thinning that results from the deadbands of the structure.
    const THIN: &'static str;

    /// Reads all cells into a sample. Cells are read one after the other: a sample may contain one
    /// of two concurrent updates without the other.
    fn read(&self, sample: &mut Self::Sample);
}

/// Returns the plan for a probe of an application.
pub(crate) fn plan<A: Application>(instance: &str) -> Result<Plan, MeasureError> {
    let kind: &'static ProbeType = const { &A::TYPE };
    Ok(Plan { instance: instance.to_owned(), thin: A::THIN.parse::<Thinning>()?, ..Plan::of(kind) })
}

/// Makes the probe that samples the cells.
pub(crate) fn probe<A: Application>(cells: &Arc<A>) -> Box<dyn Probe> {
    let cells = cells.clone();
    let read = move |_: Moment, sample: &mut A::Sample| -> Result<(), MeasureError> {
        cells.read(sample);
        Ok(())
    };
    Box::new(Instrument::new(Typed::<A::Sample>::default(), read))
}

/// Always fails: this is the `ProbeType::open` of application probes, and only the application has
/// the cells.
#[doc(hidden)]
pub fn not_by_name(_: &Host, _: &Settings) -> Result<Box<dyn Probe>, MeasureError> {
    Err(MeasureError::Unknown("an application opens this probe, by Agent::add_application".to_owned()))
}

/// A member of a PDL file.
#[doc(hidden)]
pub struct Line {
    name: &'static str,
    unit: &'static str,
    pdl: &'static str,
    definitions: &'static str,
}

impl Line {
    /// Returns the member for a cell of this type.
    pub const fn of<C: Cell>(name: &'static str, unit: &'static str) -> Line {
        Line { name, unit, pdl: C::PDL, definitions: C::DEFINITIONS }
    }
}

/// Returns the PDL file of a probe with these members.
#[doc(hidden)]
pub fn pdl(name: &str, uuid: Uuid, version: &str, lines: &[Line]) -> String {
    let mut definitions: Vec<&str> = lines.iter().map(|line| line.definitions).collect();
    definitions.sort_unstable();
    definitions.dedup();
    let modules: Vec<&str> = name.split("::").collect();
    let (name, modules) = modules.split_last().unwrap_or((&name, &[]));
    let open: String = modules.iter().map(|module| format!("module {module} {{\n")).collect();
    let member = |line: &Line| match line.unit {
        "" => format!("    {} {};\n", line.pdl, line.name),
        unit => format!("    @unit(\"{}\") {} {};\n", unit.escape_default(), line.pdl, line.name),
    };
    let members: String = lines.iter().map(member).collect();
    let close = "};\n".repeat(modules.len());
    let head = format!("[uuid({uuid}); version({version})]\nprobe {name} {{\n");
    format!("{}{open}{head}{members}}};\n{close}", definitions.concat())
}

/// A cell of a probe: threads update it, and each sample reads it. An application may implement its
/// own cell types.
///
/// ```
/// use polywire_telemetry::{Bits, Cell, Distribution, Gauge, Histogram};
/// use std::sync::atomic::{AtomicI64, Ordering};
///
/// /// The highest value so far.
/// #[derive(Default)]
/// struct Peak(AtomicI64);
///
/// impl Cell for Peak {
///     type Value = i64;
///     const PDL: &'static str = <i64 as Bits>::PDL;
///
///     fn read(&self, value: &mut i64) {
///         *value = self.0.load(Ordering::Relaxed);
///     }
/// }
///
/// let (peak, latency) = (Peak::default(), Histogram::default());
/// peak.0.fetch_max(7, Ordering::Relaxed);
/// (1..=10).for_each(|number| latency.observe(number));
/// let (mut highest, mut distribution) = (0, Distribution::default());
/// peak.read(&mut highest);
/// latency.read(&mut distribution);
/// assert_eq!((highest, distribution.p50, distribution.most), (7, 5, 10));
/// // The values of gauges fit into 64 bits.
/// assert_eq!(f64::from_bits(Bits::to_bits(0.5)), 0.5);
/// assert_eq!(Gauge::<u32>::default().get(), 0);
/// ```
pub trait Cell: Default + Send + Sync {
    /// The type of the cell's member in a sample.
    type Value: MessageField;

    /// The type of the member in PDL.
    const PDL: &'static str;

    /// The definitions that this type needs in PDL.
    const DEFINITIONS: &'static str = "";

    /// Reads the cell into a sample.
    fn read(&self, value: &mut Self::Value);
}

/// A cell that holds the latest value of a number or a boolean.
///
/// [`Gauge::set`] is one store with relaxed ordering; see [`Application`] for an example.
#[derive(Debug, Default)]
pub struct Gauge<T: Bits>(AtomicU64, std::marker::PhantomData<T>);

impl<T: Bits> Gauge<T> {
    /// Sets the value.
    #[inline]
    pub fn set(&self, value: T) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// Returns the latest value.
    #[inline]
    pub fn get(&self) -> T {
        T::from_bits(self.0.load(Ordering::Relaxed))
    }
}

impl<T: Bits> Cell for Gauge<T> {
    type Value = T;
    const PDL: &'static str = T::PDL;

    fn read(&self, value: &mut T) {
        *value = self.get();
    }
}

/// The types of a [`Gauge`]'s value: they fit into 64 bits, and the bits 0 are their default.
pub trait Bits: MessageField + Copy + Default + Send + Sync {
    /// The type in PDL.
    const PDL: &'static str;
    /// Returns the value as bits.
    fn to_bits(self) -> u64;
    /// Returns the value of these bits, which [`Bits::to_bits`] made.
    fn from_bits(bits: u64) -> Self;
}

macro_rules! bits {
    ($($rust:ty, $pdl:literal, $to:expr, $from:expr;)+) => {$(
        impl Bits for $rust {
            const PDL: &'static str = $pdl;

            #[inline]
            fn to_bits(self) -> u64 {
                $to(self)
            }

            #[inline]
            fn from_bits(bits: u64) -> $rust {
                $from(bits)
            }
        }
    )+};
}

bits! {
    f64, "double", f64::to_bits, f64::from_bits;
    f32, "float", |value: f32| u64::from(value.to_bits()), |bits| f32::from_bits(bits as u32);
    u64, "uint64", |value| value, |bits| bits;
    i64, "int64", |value: i64| value as u64, |bits| bits as i64;
    u32, "uint32", u64::from, |bits| bits as u32;
    i32, "int32", |value: i32| value as u32 as u64, |bits| bits as u32 as i32;
    bool, "boolean", u64::from, |bits| bits != 0;
}

/// A cell that counts upwards.
///
/// [`Counter::add`] is one atomic addition; see [`Application`] for an example.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds a number. The counter wraps around at 2^64.
    #[inline]
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Returns the sum of all additions since the start.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Cell for Counter {
    type Value = u64;
    const PDL: &'static str = "uint64";

    fn read(&self, value: &mut u64) {
        *value = self.get();
    }
}

/// The binary logarithm of the number of buckets of each power of two.
const FINE: u32 = 4;

/// The number of buckets: one for each number below 2^FINE, and 2^FINE for each power of two above.
const BUCKETS: usize = (64 - FINE as usize + 1) << FINE;

/// The distribution of numbers, such as times or sizes.
///
/// [`Histogram::observe`] is one atomic addition. Numbers below 16 are exact; larger ones have an
/// error of at most 1/32. A histogram takes 8 kB. See [`Application`] for an example.
pub struct Histogram {
    buckets: Box<[AtomicU64; BUCKETS]>,
    /// The counts of the buckets at the previous sample. Only the sampling thread changes them.
    sampled: Box<[AtomicU64; BUCKETS]>,
}

impl Default for Histogram {
    fn default() -> Histogram {
        let zero = || Box::new(array::from_fn(|_| AtomicU64::new(0)));
        Histogram { buckets: zero(), sampled: zero() }
    }
}

impl Histogram {
    /// Counts a number.
    #[inline]
    pub fn observe(&self, number: u64) {
        self.buckets[bucket(number)].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a number `times` times.
    pub(crate) fn observe_times(&self, number: u64, times: u64) {
        self.buckets[bucket(number)].fetch_add(times, Ordering::Relaxed);
    }
}

/// A sample of a [`Histogram`]. All members but `count` describe the numbers since the previous
/// sample, and are 0 if there were none.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::Distribution", nested)]
pub struct Distribution {
    /// The number of observations since the start.
    pub count: u64,
    /// The smallest number.
    pub least: u64,
    /// Half of the numbers are at most this.
    pub p50: u64,
    /// 90 % are at most this.
    pub p90: u64,
    /// 99 % are at most this.
    pub p99: u64,
    /// The largest number.
    pub most: u64,
}

impl Cell for Histogram {
    type Value = Distribution;
    const PDL: &'static str = "telemetry::Distribution";
    const DEFINITIONS: &'static str = "\
module telemetry {
    @nested struct Distribution {
        uint64 count;
        uint64 least;
        uint64 p50;
        uint64 p90;
        uint64 p99;
        uint64 most;
    };
};

";

    fn read(&self, value: &mut Distribution) {
        let mut fresh = [0; BUCKETS];
        let mut total: u64 = 0;
        for ((fresh, bucket), sampled) in fresh.iter_mut().zip(&*self.buckets).zip(&*self.sampled) {
            let now = bucket.load(Ordering::Relaxed);
            *fresh = now.wrapping_sub(sampled.swap(now, Ordering::Relaxed));
            total = total.wrapping_add(now);
        }
        *value = distribution(&fresh, total);
    }
}

fn distribution(fresh: &[u64; BUCKETS], count: u64) -> Distribution {
    let number: u64 = fresh.iter().sum();
    if number == 0 {
        return Distribution { count, ..Distribution::default() };
    }
    // Finds the bucket of the number of this rank; ranks start from 1.
    let at = |rank: u64| {
        let mut seen = 0;
        let found = fresh.iter().position(|n| {
            seen += n;
            seen >= rank
        });
        middle(found.unwrap_or(BUCKETS - 1))
    };
    let share = |percent: u64| at((u128::from(number) * u128::from(percent)).div_ceil(100) as u64);
    Distribution { count, least: at(1), p50: share(50), p90: share(90), p99: share(99), most: at(number) }
}

#[inline]
fn bucket(number: u64) -> usize {
    let top = 63 - (number | ((1 << FINE) - 1)).leading_zeros();
    let shift = (top + 1).saturating_sub(FINE + 1);
    ((shift as usize) << FINE) + (number >> shift) as usize
}

/// Returns the number in the middle of a bucket.
fn middle(bucket: usize) -> u64 {
    let shift = (bucket >> FINE).saturating_sub(1) as u32;
    let low = ((bucket - ((shift as usize) << FINE)) as u64) << shift;
    low + ((1_u64 << shift) >> 1)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_bucket_has_the_numbers_near_its_middle() {
        let numbers = (0..100_000).chain((0..64).flat_map(|bit| [1_u64 << bit, (1 << bit) + 1, u64::MAX >> bit]));
        for number in numbers {
            let bucket = bucket(number);
            assert!(bucket < BUCKETS, "{number}");
            let error = middle(bucket).abs_diff(number);
            assert!(error <= number / 32, "{number} is {}", middle(bucket));
        }
    }

    #[test]
    fn buckets_rise_with_numbers() {
        let mut before = 0;
        for number in (0..1_u64 << 20).step_by(3) {
            assert!(bucket(number) >= before && bucket(number) <= before + 3, "{number}");
            before = bucket(number);
        }
    }

    #[test]
    fn a_distribution_is_of_what_is_new() {
        let (histogram, mut sample) = (Histogram::default(), Distribution::default());
        (1..=100).for_each(|number| histogram.observe(number * 10));
        histogram.read(&mut sample);
        let near = |found: u64, wanted: u64| found.abs_diff(wanted) <= wanted / 16;
        assert_eq!((sample.count, sample.least), (100, 10));
        let Distribution { p50, p90, p99, most, .. } = sample;
        assert!(near(p50, 500) && near(p90, 900) && near(p99, 990) && near(most, 1000), "{sample:?}");
        histogram.read(&mut sample);
        assert_eq!(sample, Distribution { count: 100, ..Distribution::default() });
        histogram.observe(7);
        histogram.read(&mut sample);
        assert_eq!(sample, Distribution { count: 101, least: 7, p50: 7, p90: 7, p99: 7, most: 7 });
    }

    #[test]
    fn no_update_of_any_thread_is_lost() {
        let (counter, histogram) = (Counter::default(), Histogram::default());
        let gauge = Gauge::<i32>::default();
        thread::scope(|scope| {
            for thread in 0..4 {
                let (counter, histogram, gauge) = (&counter, &histogram, &gauge);
                scope.spawn(move || {
                    for i in 0..10_000 {
                        counter.add(2);
                        histogram.observe(i);
                        gauge.set(-thread);
                    }
                });
            }
        });
        let mut sample = Distribution::default();
        histogram.read(&mut sample);
        assert_eq!((counter.get(), sample.count), (80_000, 40_000));
        assert!((-3..=0).contains(&gauge.get()));
    }

    #[test]
    fn gauges_keep_their_values() {
        let (double, truth, number) = (Gauge::<f64>::default(), Gauge::<bool>::default(), Gauge::<i64>::default());
        assert_eq!((double.get(), truth.get(), number.get()), (0.0, false, 0));
        double.set(-1.5);
        truth.set(true);
        number.set(i64::MIN);
        assert_eq!((double.get(), truth.get(), number.get()), (-1.5, true, i64::MIN));
    }
}
