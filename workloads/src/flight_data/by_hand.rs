//! Hand-written CDR of FlightData and its parts, one of the yardsticks.

use std::collections::BTreeMap;

use polywire_core::layout::Char8;

use super::{
    Coordination, CoordinationState, FlightData, FlightRules, Meteo, Position, SurveillanceEquipment, TrajectoryPoint,
    Waypoint, Wind,
};
use crate::cdr::{Cdr, FIELD, Malformed, Reader, Writer, string_bound};

impl Cdr for FlightData {
    #[inline]
    fn encode(&self, writer: &mut Writer) {
        let mut local = *writer;
        let w = &mut local;
        w.string(&self.call_sign);
        w.align(8);
        w.scalar(self.flight_id);
        w.string(&self.departure);
        w.align(4);
        w.string(&self.destination);
        w.align(4);
        w.scalar(self.alternates.len() as u32);
        for x in &self.alternates {
            w.align(4);
            w.string(x);
        }
        w.align(4);
        w.string(&self.aircraft_type);
        w.scalar(self.wake_category.0);
        w.align(4);
        w.scalar(self.rules as i32);
        w.scalar(self.equipment.0);
        w.scalar(self.ssr_code);
        match self.mode_s_address {
            Some(address) => {
                w.parameter(10, 3);
                w.scalar(address);
            }
            None => w.parameter(10, 0),
        }
        w.align(8);
        w.scalar(self.estimated_off_block_ns);
        w.scalar(self.route.len() as u32);
        for x in &self.route {
            w.align(4);
            x.encode(w);
        }
        w.align(4);
        w.scalar(self.trajectory.len() as u32);
        if !self.trajectory.is_empty() {
            w.align(8);
        }
        for x in &self.trajectory {
            x.encode(w);
        }
        w.scalar(self.coordinations.len() as u32);
        for x in &self.coordinations {
            w.align(4);
            x.encode(w);
        }
        w.align(4);
        w.scalar(self.meteo.len() as u32);
        for x in &self.meteo {
            x.encode(w);
        }
        w.scalar(self.extensions.len() as u32);
        for (key, value) in &self.extensions {
            w.align(4);
            w.string(key);
            w.align(4);
            w.string(value);
        }
        w.align(4);
        w.octets(&self.radar_image);
        *writer = local;
    }

    #[inline]
    fn decode(&mut self, reader: &mut Reader) -> Result<(), Malformed> {
        let mut local = *reader;
        let r = &mut local;
        r.bounded_string(&mut self.call_sign, 7)?;
        r.align(8);
        self.flight_id = r.scalar::<u64>()?;
        r.bounded_string(&mut self.departure, 4)?;
        r.align(4);
        r.bounded_string(&mut self.destination, 4)?;
        r.align(4);
        let n = r.length()?;
        if n > 4 {
            return Err(Malformed);
        }
        self.alternates.resize_with(n, Default::default);
        for x in &mut self.alternates {
            r.align(4);
            r.bounded_string(x, 4)?;
        }
        r.align(4);
        r.bounded_string(&mut self.aircraft_type, 4)?;
        self.wake_category = Char8(r.scalar::<u8>()?);
        r.align(4);
        self.rules = rules(r.scalar::<i32>()?)?;
        self.equipment = SurveillanceEquipment(r.scalar::<u32>()?);
        self.ssr_code = r.scalar::<u16>()?;
        self.mode_s_address = match r.parameter(10)? {
            0 => None,
            3.. => Some([r.scalar::<u8>()?, r.scalar::<u8>()?, r.scalar::<u8>()?]),
            _ => return Err(Malformed),
        };
        r.align(8);
        self.estimated_off_block_ns = r.scalar::<u64>()?;
        let n = r.length()?;
        self.route.resize_with(n, Default::default);
        for x in &mut self.route {
            r.align(4);
            x.decode(r)?;
        }
        r.align(4);
        let n = r.length()?;
        self.trajectory.resize_with(n, Default::default);
        if n > 0 {
            r.align(8);
        }
        for x in &mut self.trajectory {
            x.decode(r)?;
        }
        let n = r.length()?;
        self.coordinations.resize_with(n, Default::default);
        for x in &mut self.coordinations {
            r.align(4);
            x.decode(r)?;
        }
        r.align(4);
        let n = r.length()?;
        if n > 32 {
            return Err(Malformed);
        }
        self.meteo.resize_with(n, Default::default);
        for x in &mut self.meteo {
            x.decode(r)?;
        }
        extensions(&mut self.extensions, r)?;
        r.align(4);
        r.octets(&mut self.radar_image)?;
        *reader = local;
        Ok(())
    }

    fn bound(&self) -> usize {
        let strings = [&self.call_sign, &self.departure, &self.destination, &self.aircraft_type];
        14 * FIELD
            + strings.into_iter().chain(&self.alternates).map(|s| string_bound(s)).sum::<usize>()
            + self.route.iter().map(Cdr::bound).sum::<usize>()
            + self.trajectory.iter().map(Cdr::bound).sum::<usize>()
            + self.coordinations.iter().map(Cdr::bound).sum::<usize>()
            + self.meteo.iter().map(Cdr::bound).sum::<usize>()
            + self.extensions.iter().map(|(key, value)| string_bound(key) + string_bound(value)).sum::<usize>()
            + self.radar_image.len()
    }
}

fn rules(value: i32) -> Result<FlightRules, Malformed> {
    Ok(match value {
        0 => FlightRules::Visual,
        1 => FlightRules::Instrument,
        2 => FlightRules::VisualThenInstrument,
        3 => FlightRules::InstrumentThenVisual,
        _ => return Err(Malformed),
    })
}

fn state(value: i32) -> Result<CoordinationState, Malformed> {
    Ok(match value {
        0 => CoordinationState::Initial,
        1 => CoordinationState::Notified,
        2 => CoordinationState::Coordinated,
        3 => CoordinationState::Transferred,
        4 => CoordinationState::Redundant,
        _ => return Err(Malformed),
    })
}

fn extensions(map: &mut BTreeMap<String, String>, r: &mut Reader) -> Result<(), Malformed> {
    r.align(4);
    map.clear();
    for _ in 0..r.length()? {
        let (mut key, mut value) = (String::new(), String::new());
        r.align(4);
        r.string(&mut key)?;
        r.align(4);
        r.string(&mut value)?;
        map.insert(key, value);
    }
    Ok(())
}

impl Cdr for Waypoint {
    #[inline]
    fn encode(&self, w: &mut Writer) {
        w.string(&self.designator);
        w.align(8);
        self.position.encode(w);
        match self.level_ft {
            Some(level) => {
                w.parameter(2, 4);
                w.scalar(level);
            }
            None => w.parameter(2, 0),
        }
        w.align(8);
        w.scalar(self.estimated_time_over_ns);
    }

    #[inline]
    fn decode(&mut self, r: &mut Reader) -> Result<(), Malformed> {
        r.bounded_string(&mut self.designator, 11)?;
        r.align(8);
        self.position.decode(r)?;
        self.level_ft = match r.parameter(2)? {
            0 => None,
            4 => Some(r.scalar::<i32>()?),
            _ => return Err(Malformed),
        };
        r.align(8);
        self.estimated_time_over_ns = r.scalar::<u64>()?;
        Ok(())
    }

    fn bound(&self) -> usize {
        5 * FIELD + string_bound(&self.designator)
    }
}

impl Cdr for Position {
    #[inline(always)]
    fn encode(&self, w: &mut Writer) {
        w.scalar(self.latitude_deg);
        w.scalar(self.longitude_deg);
    }

    #[inline(always)]
    fn decode(&mut self, r: &mut Reader) -> Result<(), Malformed> {
        self.latitude_deg = r.scalar::<f64>()?;
        self.longitude_deg = r.scalar::<f64>()?;
        Ok(())
    }

    fn bound(&self) -> usize {
        2 * FIELD
    }
}

/// A point takes 40 bytes and begins at a multiple of 8, so there is no padding within a point or
/// between two points.
impl Cdr for TrajectoryPoint {
    #[inline(always)]
    fn encode(&self, w: &mut Writer) {
        w.scalar(self.time_ns);
        self.position.encode(w);
        w.scalar(self.altitude_ft);
        w.scalar(self.ground_speed_kt);
        w.scalar(self.vertical_rate_ft_min);
        w.scalar(self.heading_deg);
    }

    #[inline(always)]
    fn decode(&mut self, r: &mut Reader) -> Result<(), Malformed> {
        self.time_ns = r.scalar::<u64>()?;
        self.position.decode(r)?;
        self.altitude_ft = r.scalar::<f32>()?;
        self.ground_speed_kt = r.scalar::<f32>()?;
        self.vertical_rate_ft_min = r.scalar::<f32>()?;
        self.heading_deg = r.scalar::<f32>()?;
        Ok(())
    }

    fn bound(&self) -> usize {
        7 * FIELD
    }
}

impl Cdr for Coordination {
    #[inline]
    fn encode(&self, w: &mut Writer) {
        w.string(&self.from_unit);
        w.align(4);
        w.string(&self.to_unit);
        w.align(4);
        w.scalar(self.state as i32);
        self.boundary.encode(w);
        match &self.remark {
            Some(remark) => {
                w.parameter(4, 4 + remark.len() as u16 + 1);
                w.string(remark);
            }
            None => w.parameter(4, 0),
        }
    }

    #[inline]
    fn decode(&mut self, r: &mut Reader) -> Result<(), Malformed> {
        r.bounded_string(&mut self.from_unit, 8)?;
        r.align(4);
        r.bounded_string(&mut self.to_unit, 8)?;
        r.align(4);
        self.state = state(r.scalar::<i32>()?)?;
        self.boundary.decode(r)?;
        match r.parameter(4)? {
            0 => self.remark = None,
            _ => r.bounded_string(self.remark.get_or_insert_default(), 64)?,
        }
        Ok(())
    }

    fn bound(&self) -> usize {
        let remark = self.remark.as_deref().map_or(0, string_bound);
        2 * FIELD + string_bound(&self.from_unit) + string_bound(&self.to_unit) + self.boundary.bound() + remark
    }
}

impl Cdr for Meteo {
    #[inline]
    fn encode(&self, w: &mut Writer) {
        w.scalar(self.temperature_c);
        w.align(4);
        w.scalar(self.direction_deg);
        let (gusts, speed) = match self.wind {
            Wind::GustKt(speed) => (1u8, speed),
            Wind::MeanKt(speed) => (0u8, speed),
        };
        w.scalar(gusts);
        w.align(4);
        w.scalar(speed);
    }

    #[inline]
    fn decode(&mut self, r: &mut Reader) -> Result<(), Malformed> {
        self.temperature_c = r.scalar::<i16>()?;
        r.align(4);
        self.direction_deg = r.scalar::<f32>()?;
        let gusts = r.boolean()?;
        r.align(4);
        let speed = r.scalar::<f32>()?;
        self.wind = if gusts { Wind::GustKt(speed) } else { Wind::MeanKt(speed) };
        Ok(())
    }

    fn bound(&self) -> usize {
        4 * FIELD
    }
}
