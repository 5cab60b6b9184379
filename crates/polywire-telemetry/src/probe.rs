//! Probes: a type of samples with an identity, units and parameters ([`ProbeType`]), and an object
//! that measures the samples ([`Probe`]).

use std::{collections::BTreeMap, fmt, time::Duration};

use polywire::{
    Message, Node, NodeError, PublishError, PublisherOf, Record, Shape,
    codec::{BuildError, Codec, Options},
    coding::{Coding, Dynamic, Typed},
    extend::{layout::ValueRef, program::CodecError},
    schema::Schema,
};

use crate::{MeasureError, Uuid, host::Host};

/// A moment on two clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The time since some fixed moment, on a clock that never steps.
    pub steady: Duration,
    /// Nanoseconds since 1970-01-01, on the system's real-time clock.
    pub wall_ns: i64,
}

impl Moment {
    /// Returns the seconds since an earlier moment, on the steady clock.
    ///
    /// ```
    /// use polywire_telemetry::Moment;
    /// use std::time::Duration;
    ///
    /// let (a, b) = (Moment::default(), Moment { steady: Duration::from_millis(1500), wall_ns: 0 });
    /// assert_eq!((b.seconds_since(a), a.seconds_since(b)), (1.5, 0.0));
    /// ```
    pub fn seconds_since(self, earlier: Moment) -> f64 {
        self.steady.saturating_sub(earlier.steady).as_secs_f64()
    }
}

/// A type of probe: what is known of a probe before it is opened.
///
/// ```
/// use polywire_telemetry::{Parameter, Pdl, ProbeType, Settings, system};
///
/// let probe: &ProbeType = system::find("processes")?;
/// assert!(matches!(probe.pdl, Pdl::File(text) if text.contains(&probe.uuid.to_string())));
/// let most: &Parameter = &probe.parameters[1];
/// assert_eq!((most.name, Settings::default().number(most, 100)?), ("most", 20));
/// # Ok::<(), polywire_telemetry::MeasureError>(())
/// ```
pub struct ProbeType {
    /// A word for command lines and topics, such as `processor`.
    pub name: &'static str,
    /// One line for lists of probes.
    pub summary: &'static str,
    /// The UUID of the type over all its versions.
    pub uuid: Uuid,
    /// The version, as PDL writes it.
    pub version: &'static str,
    /// The text of the PDL file that defines the type of the samples.
    pub pdl: Pdl,
    /// The default time between two samples.
    pub every: Duration,
    /// The parameters that can be set when a probe is opened.
    pub parameters: &'static [Parameter],
    /// The type of the samples.
    pub shape: fn() -> &'static Shape,
    /// Opens a probe. Fails if a parameter is wrong, or if the host does not have what the probe
    /// measures.
    pub open: Opener,
}

type Opener = fn(&Host, &Settings) -> Result<Box<dyn Probe>, MeasureError>;

impl fmt::Debug for ProbeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "probe {} {} version {}", self.name, self.uuid, self.version)
    }
}

/// The text of a PDL file.
#[derive(Clone, Copy)]
pub enum Pdl {
    /// A file that was written by hand.
    File(&'static str),
    /// The file of a type that is defined in Rust, generated at the first call.
    Of(fn() -> &'static str),
}

impl Pdl {
    /// Returns the text.
    pub fn text(self) -> &'static str {
        match self {
            Pdl::File(text) => text,
            Pdl::Of(make) => make(),
        }
    }
}

/// A parameter of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The name of the parameter.
    pub name: &'static str,
    /// What the parameter changes, with the unit.
    pub summary: &'static str,
    /// The default value.
    pub default: &'static str,
}

/// Values of a probe's parameters. A parameter that is not set has its default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(BTreeMap<&'static str, String>);

impl Settings {
    /// Sets a parameter.
    ///
    /// ```
    /// use polywire_telemetry::{Settings, system};
    ///
    /// let probe = system::find("processes")?;
    /// let mut settings = Settings::default();
    /// settings.set(probe.parameters, "pattern", "postgres*")?;
    /// let error = settings.set(probe.parameters, "patern", "x").unwrap_err();
    /// assert_eq!(error.to_string(), "unknown parameter 'patern', did you mean 'pattern'?");
    /// # Ok::<(), polywire_telemetry::MeasureError>(())
    /// ```
    pub fn set(&mut self, known: &[Parameter], name: &str, value: &str) -> Result<(), MeasureError> {
        let parameter = known.iter().find(|parameter| parameter.name == name);
        let unknown = || MeasureError::unknown("parameter", name, known.iter().map(|parameter| parameter.name));
        self.0.insert(parameter.ok_or_else(unknown)?.name, value.to_owned());
        Ok(())
    }

    /// Returns the value of a parameter, or its default.
    pub fn get(&self, parameter: &Parameter) -> &str {
        self.0.get(parameter.name).map_or(parameter.default, String::as_str)
    }

    /// Returns the value of a parameter that is a number from 1 to `most`.
    pub fn number(&self, parameter: &Parameter, most: usize) -> Result<usize, MeasureError> {
        let text = self.get(parameter);
        let number = text.parse().ok().filter(|number| (1..=most).contains(number));
        number.ok_or_else(|| MeasureError::Value {
            parameter: parameter.name.to_owned(),
            value: text.to_owned(),
            expected: format!("a number from 1 to {most}"),
        })
    }
}

/// An open probe.
///
/// A probe stores its latest sample, so that the sample is measured once and then compared, printed
/// and encoded. A probe starts no thread: its owner decides when to sample.
pub trait Probe: Send {
    /// Returns the type of the samples.
    fn schema(&self) -> &Schema;

    /// Measures a new sample. After an error, the latest sample has no meaning.
    fn sample(&mut self, now: Moment) -> Result<(), MeasureError>;

    /// Returns the latest sample.
    fn view(&self) -> ValueRef<'_>;

    /// Compiles an encoder for the samples, which [`Probe::encode`] then uses.
    fn set_format(&mut self, codec: &dyn Codec, options: &Options) -> Result<(), BuildError>;

    /// Appends the latest sample in the format of the last [`Probe::set_format`]. Returns false,
    /// and appends nothing, if no format was set.
    fn encode(&self, out: &mut Vec<u8>) -> Result<bool, CodecError>;

    /// Opens a publisher for the samples, or changes its wire.
    fn advertise(&mut self, node: &Node, topic: &str, wire: Option<&str>) -> Result<(), NodeError>;

    /// Publishes the latest sample; does nothing before [`Probe::advertise`].
    fn publish(&self) -> Result<(), PublishError>;

    /// Returns the number of subscribers that accept the samples.
    fn subscribers(&self) -> usize;

    /// Withdraws the publisher.
    fn withdraw(&mut self);
}

/// Measures samples. A function with these arguments implements it, too.
///
/// ```
/// use polywire_telemetry::{Measure, MeasureError, Moment};
///
/// struct Ramp(f64);
///
/// impl Measure<f64> for Ramp {
///     fn measure(&mut self, now: Moment, sample: &mut f64) -> Result<(), MeasureError> {
///         Ok(*sample = self.0 * now.steady.as_secs_f64())
///     }
/// }
///
/// let (mut level, mut ramp) = (1.0, Ramp(2.0));
/// ramp.measure(Moment::default(), &mut level)?;
/// assert_eq!(level, 0.0);
/// # Ok::<(), MeasureError>(())
/// ```
pub trait Measure<V>: Send + 'static {
    /// Replaces the previous sample by a new one.
    fn measure(&mut self, now: Moment, sample: &mut V) -> Result<(), MeasureError>;
}

impl<V, F: FnMut(Moment, &mut V) -> Result<(), MeasureError> + Send + 'static> Measure<V> for F {
    fn measure(&mut self, now: Moment, sample: &mut V) -> Result<(), MeasureError> {
        self(now, sample)
    }
}

/// Codings whose values can be inspected: those of Rust types and of records.
///
/// ```
/// use polywire::coding::{Coding, Typed};
/// use polywire_telemetry::{Samples, system::Load};
///
/// let coding = Typed::<Load>::default();
/// assert_eq!(coding.shape_of().schema().name(), "system::Load");
/// let load = Load { running: 2, ..coding.default_value() };
/// assert_eq!(Typed::view(&load).get("running")?.as_u64(), Some(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Samples: Coding {
    /// Returns the type.
    fn shape_of(&self) -> &Shape;
    /// Returns a view of the value's members.
    fn view(value: &Self::Value) -> ValueRef<'_>;
}

impl<T: Message> Samples for Typed<T> {
    fn shape_of(&self) -> &Shape {
        T::shape()
    }

    fn view(value: &T) -> ValueRef<'_> {
        ValueRef::of(value)
    }
}

impl Samples for Dynamic {
    fn shape_of(&self) -> &Shape {
        self.shape()
    }

    fn view(value: &Record) -> ValueRef<'_> {
        value.view()
    }
}

/// A probe of samples of one type.
///
/// ```
/// use polywire::{coding::Typed, codec::{self, Options}};
/// use polywire_telemetry::{Instrument, MeasureError, Moment, Probe};
///
/// #[derive(polywire::Message)]
/// struct Tank { #[polywire(unit = "m")] level: f64 }
///
/// let measure = |_: Moment, tank: &mut Tank| -> Result<(), MeasureError> { Ok(tank.level += 0.5) };
/// let mut probe = Instrument::new(Typed::<Tank>::default(), measure);
/// probe.set_format(codec::find("json").unwrap(), &Options::default())?;
/// probe.sample(Moment::default())?;
/// let mut bytes = Vec::new();
/// assert!(probe.encode(&mut bytes)?);
/// assert_eq!(bytes, b"{\"level\":0.5}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Instrument<C: Samples, M> {
    coding: C,
    measure: M,
    value: C::Value,
    encoder: Option<C::Encoder>,
    publisher: Option<PublisherOf<C>>,
}

impl<C: Samples, M: Measure<C::Value>> Instrument<C, M> {
    /// Makes a probe that has no sample yet.
    pub fn new(coding: C, measure: M) -> Self {
        let value = coding.default_value();
        Instrument { coding, measure, value, encoder: None, publisher: None }
    }
}

/// Makes a probe whose samples have a Rust type.
pub(crate) fn boxed<T: Message>(measure: impl Measure<T>) -> Box<dyn Probe> {
    Box::new(Instrument::new(Typed::<T>::default(), measure))
}

impl<C: Samples, M: Measure<C::Value>> Probe for Instrument<C, M> {
    fn schema(&self) -> &Schema {
        self.coding.shape_of().schema()
    }

    fn sample(&mut self, now: Moment) -> Result<(), MeasureError> {
        self.measure.measure(now, &mut self.value)
    }

    fn view(&self) -> ValueRef<'_> {
        C::view(&self.value)
    }

    fn set_format(&mut self, codec: &dyn Codec, options: &Options) -> Result<(), BuildError> {
        self.encoder = Some(self.coding.encoder(codec, options)?);
        Ok(())
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<bool, CodecError> {
        self.encoder.as_ref().map_or(Ok(false), |encoder| C::encode(encoder, &self.value, out).map(|()| true))
    }

    fn advertise(&mut self, node: &Node, topic: &str, wire: Option<&str>) -> Result<(), NodeError> {
        if let (Some(publisher), Some(wire)) = (&self.publisher, wire) {
            return publisher.set_wire(wire);
        }
        self.publisher = Some(node.publisher_of(topic, wire, self.coding.clone())?);
        Ok(())
    }

    fn publish(&self) -> Result<(), PublishError> {
        self.publisher.as_ref().map_or(Ok(()), |publisher| publisher.publish(&self.value).map(|_| ()))
    }

    fn subscribers(&self) -> usize {
        self.publisher.as_ref().map_or(0, |publisher| publisher.status().accepting)
    }

    fn withdraw(&mut self) {
        self.publisher = None;
    }
}
