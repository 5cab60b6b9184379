//! The workload FlightData of `avenue.idl`: about 100 KB per message. It uses nearly every feature
//! of the type system.

use std::collections::BTreeMap;

use polywire_core::layout::Char8;
use polywire_derive::Message;

mod by_hand;
#[cfg(feature = "serde")]
mod peers;
mod values;

/// The rules that the flight follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Message)]
#[polywire(name = "Avenue::FlightRules")]
#[repr(i32)]
#[expect(missing_docs, reason = "the names in the IDL are self-explanatory")]
pub enum FlightRules {
    #[polywire(name = "VISUAL")]
    #[default]
    Visual = 0,
    #[polywire(name = "INSTRUMENT")]
    Instrument = 1,
    #[polywire(name = "VISUAL_THEN_INSTRUMENT")]
    VisualThenInstrument = 2,
    #[polywire(name = "INSTRUMENT_THEN_VISUAL")]
    InstrumentThenVisual = 3,
}

/// The state of a flight's transfer from one unit to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Message)]
#[polywire(name = "Avenue::CoordinationState")]
#[repr(i32)]
#[expect(missing_docs, reason = "the names in the IDL are self-explanatory")]
pub enum CoordinationState {
    #[polywire(name = "INITIAL")]
    #[default]
    Initial = 0,
    #[polywire(name = "NOTIFIED")]
    Notified = 1,
    #[polywire(name = "COORDINATED")]
    Coordinated = 2,
    #[polywire(name = "TRANSFERRED")]
    Transferred = 3,
    #[polywire(name = "REDUNDANT")]
    Redundant = 4,
}

/// The surveillance equipment of an aircraft. From the lowest bit: `MODE_A`, `MODE_C`, `MODE_S`,
/// `ADS_B` and `ADS_C`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Message)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[polywire(
    name = "Avenue::SurveillanceEquipment",
    bitmask(bit_bound = 32, MODE_A = 0, MODE_C = 1, MODE_S = 2, ADS_B = 3, ADS_C = 4)
)]
#[repr(transparent)]
pub struct SurveillanceEquipment(pub u32);

/// A position on the earth.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[polywire(name = "Avenue::Position")]
#[repr(C)]
#[expect(missing_docs, reason = "the names in the IDL are self-explanatory")]
pub struct Position {
    pub latitude_deg: f64,
    pub longitude_deg: f64,
}

/// A waypoint of the route.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[polywire(name = "Avenue::Waypoint")]
#[repr(C)]
#[expect(missing_docs, reason = "the names in the IDL are self-explanatory")]
pub struct Waypoint {
    #[polywire(idl = "string<11>")]
    pub designator: String,
    pub position: Position,
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub level_ft: Option<i32>,
    pub estimated_time_over_ns: u64,
}

/// Position and motion of the aircraft at a time.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[polywire(name = "Avenue::TrajectoryPoint")]
#[repr(C)]
#[expect(missing_docs, reason = "the names in the IDL are self-explanatory")]
pub struct TrajectoryPoint {
    pub time_ns: u64,
    pub position: Position,
    pub altitude_ft: f32,
    pub ground_speed_kt: f32,
    pub vertical_rate_ft_min: f32,
    pub heading_deg: f32,
}

/// The coordination of a transfer between two units.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[polywire(name = "Avenue::Coordination")]
#[repr(C)]
#[expect(missing_docs, reason = "the names in the IDL are self-explanatory")]
pub struct Coordination {
    #[polywire(idl = "string<8>")]
    pub from_unit: String,
    #[polywire(idl = "string<8>")]
    pub to_unit: String,
    pub state: CoordinationState,
    pub boundary: Waypoint,
    #[polywire(idl = "string<64>")]
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub remark: Option<String>,
}

/// The speed of the wind: of gusts or on average.
#[derive(Clone, Debug, PartialEq, Message)]
#[polywire(name = "Avenue::Wind", switch = "boolean")]
#[expect(missing_docs, reason = "the names in the IDL are self-explanatory")]
pub enum Wind {
    #[polywire(case(1), name = "gust_kt")]
    GustKt(f32),
    #[polywire(case(0), name = "mean_kt")]
    MeanKt(f32),
}

impl Default for Wind {
    fn default() -> Self {
        Self::GustKt(0.0)
    }
}

/// The weather at a point of the route.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[polywire(name = "Avenue::Meteo")]
#[repr(C)]
#[expect(missing_docs, reason = "the names in the IDL are self-explanatory")]
pub struct Meteo {
    pub temperature_c: i16,
    pub direction_deg: f32,
    pub wind: Wind,
}

/// The data of a flight.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[polywire(name = "Avenue::FlightData")]
#[repr(C)]
#[expect(missing_docs, reason = "the names in the IDL are self-explanatory")]
pub struct FlightData {
    #[polywire(key, idl = "string<7>")]
    pub call_sign: String,
    #[polywire(key)]
    pub flight_id: u64,
    #[polywire(idl = "string<4>")]
    pub departure: String,
    #[polywire(idl = "string<4>")]
    pub destination: String,
    #[polywire(idl = "sequence<string<4>, 4>")]
    pub alternates: Vec<String>,
    #[polywire(idl = "string<4>")]
    pub aircraft_type: String,
    #[cfg_attr(feature = "serde", serde(with = "peers::character"))]
    pub wake_category: Char8,
    pub rules: FlightRules,
    pub equipment: SurveillanceEquipment,
    pub ssr_code: u16,
    #[polywire(idl = "octet[3]")]
    #[cfg_attr(feature = "serde", serde(with = "peers::address", default, skip_serializing_if = "Option::is_none"))]
    pub mode_s_address: Option<[u8; 3]>,
    pub estimated_off_block_ns: u64,
    pub route: Vec<Waypoint>,
    pub trajectory: Vec<TrajectoryPoint>,
    pub coordinations: Vec<Coordination>,
    #[polywire(idl = "sequence<Avenue::Meteo, 32>")]
    pub meteo: Vec<Meteo>,
    pub extensions: BTreeMap<String, String>,
    #[polywire(idl = "sequence<octet>")]
    #[cfg_attr(feature = "serde", serde(with = "peers::octets"))]
    pub radar_image: Vec<u8>,
}
