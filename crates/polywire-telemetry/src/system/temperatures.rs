//! Temperatures of chips and zones.

use std::time::Duration;

use polywire::Message;

use crate::{Measure, MeasureError, Moment, Pdl, ProbeType, Uuid, host::Host, probe::boxed};

/// The maximum number of sensors in a sample.
const MAX_SENSORS: usize = 1024;

/// How often the sampler searches for sensors, which are added and removed with devices.
const SEARCH: Duration = Duration::from_secs(60);

pub(super) const PROBE: ProbeType = ProbeType {
    name: "temperatures",
    summary: "Temperatures of chips, disks and thermal zones",
    uuid: Uuid::of(0x8bd2013f_ddd9_43e6_8e38_881d39a79e36),
    version: "1.0",
    pdl: Pdl::File(include_str!("../../pdl/temperatures.pdl")),
    every: Duration::from_secs(10),
    parameters: &[],
    shape: Temperatures::shape,
    open: |host, _| Ok(boxed(Sampler::open(host)?)),
};

/// A sample of all temperatures.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "system::Temperatures")]
pub struct Temperatures {
    /// The sensors, by name; at most 1,024.
    pub sensors: Vec<Sensor>,
}

/// One sensor.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "system::Sensor", nested)]
pub struct Sensor {
    /// The chip and its label for the sensor, or the thermal zone.
    pub name: String,
    /// Degrees Celsius.
    #[polywire(unit = "degC")]
    pub celsius: f32,
}

struct Sampler {
    host: Host,
    /// Names, and files that contain thousandths of a degree Celsius.
    sensors: Vec<(String, String)>,
    searched: Option<Moment>,
}

impl Sampler {
    /// Opens the sampler. Fails if the machine has no sensor, as virtual machines do.
    fn open(host: &Host) -> Result<Sampler, MeasureError> {
        let sensors = sensors(host);
        if sensors.is_empty() {
            let path = host.path("sys/class/hwmon").display().to_string();
            return Err(MeasureError::Form { path, expected: "a sensor of temperature" });
        }
        Ok(Sampler { host: host.clone(), sensors, searched: None })
    }
}

impl Measure<Temperatures> for Sampler {
    fn measure(&mut self, now: Moment, sample: &mut Temperatures) -> Result<(), MeasureError> {
        let searched = *self.searched.get_or_insert(now);
        if now.steady.saturating_sub(searched.steady) >= SEARCH {
            (self.sensors, self.searched) = (sensors(&self.host), Some(now));
        }
        let read = |(name, file): &(String, String)| {
            let celsius = self.host.number(file)? as f32 / 1000.0;
            Some(Sensor { name: name.clone(), celsius })
        };
        sample.sensors = self.sensors.iter().filter_map(read).collect();
        Ok(())
    }
}

fn sensors(host: &Host) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = chips(host).chain(zones(host)).take(MAX_SENSORS).collect();
    found.sort();
    found
}

/// Finds sensors such as `/sys/class/hwmon/hwmon0/temp1_input`, named by the chip and
/// `temp1_label`.
fn chips(host: &Host) -> impl Iterator<Item = (String, String)> + '_ {
    host.names("sys/class/hwmon").into_iter().flat_map(move |chip| {
        let folder = format!("sys/class/hwmon/{chip}");
        let name = host.line(&format!("{folder}/name")).unwrap_or(chip);
        let inputs = host.names(&folder).into_iter();
        inputs.filter_map(move |file| {
            let sensor = file.strip_suffix("_input").filter(|sensor| sensor.starts_with("temp"))?;
            let label = host.line(&format!("{folder}/{sensor}_label")).unwrap_or_else(|| sensor.to_owned());
            Some((format!("{name} {label}"), format!("{folder}/{file}")))
        })
    })
}

/// Finds zones such as `/sys/class/thermal/thermal_zone0/temp`, named by `type`.
fn zones(host: &Host) -> impl Iterator<Item = (String, String)> + '_ {
    let names = host.names("sys/class/thermal").into_iter();
    names.filter(|zone| zone.starts_with("thermal_zone")).map(move |zone| {
        let kind = host.line(&format!("sys/class/thermal/{zone}/type")).unwrap_or_else(|| zone.clone());
        (kind, format!("sys/class/thermal/{zone}/temp"))
    })
}
