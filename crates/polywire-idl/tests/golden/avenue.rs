// Written by Polywire from IDL; changes here will be lost.

pub mod avenue {
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd, polywire::Message)]
    #[polywire(name = "Avenue::FlightRules")]
    #[repr(i32)]
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

    #[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd, polywire::Message)]
    #[polywire(name = "Avenue::CoordinationState")]
    #[repr(i32)]
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

    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq, polywire::Message)]
    #[polywire(name = "Avenue::SurveillanceEquipment", bitmask(bit_bound = 32, MODE_A = 0, MODE_C = 1, MODE_S = 2, ADS_B = 3, ADS_C = 4))]
    pub struct SurveillanceEquipment(pub u32);

    impl SurveillanceEquipment {
        /// `MODE_A`
        pub const MODE_A: Self = Self(1 << 0);
        /// `MODE_C`
        pub const MODE_C: Self = Self(1 << 1);
        /// `MODE_S`
        pub const MODE_S: Self = Self(1 << 2);
        /// `ADS_B`
        pub const ADS_B: Self = Self(1 << 3);
        /// `ADS_C`
        pub const ADS_C: Self = Self(1 << 4);

        /// True if all flags of `other` are set.
        pub const fn contains(self, other: Self) -> bool {
            self.0 & other.0 == other.0
        }
    }

    #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    #[polywire(name = "Avenue::Position")]
    pub struct Position {
        pub latitude_deg: f64,
        pub longitude_deg: f64,
    }

    #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    #[polywire(name = "Avenue::Waypoint")]
    pub struct Waypoint {
        #[polywire(idl = "string<11>")]
        pub designator: String,
        pub position: Position,
        pub level_ft: Option<i32>,
        pub estimated_time_over_ns: u64,
    }

    #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    #[polywire(name = "Avenue::TrajectoryPoint")]
    pub struct TrajectoryPoint {
        pub time_ns: u64,
        pub position: Position,
        pub altitude_ft: f32,
        pub ground_speed_kt: f32,
        pub vertical_rate_ft_min: f32,
        pub heading_deg: f32,
    }

    #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    #[polywire(name = "Avenue::Coordination")]
    pub struct Coordination {
        #[polywire(idl = "string<8>")]
        pub from_unit: String,
        #[polywire(idl = "string<8>")]
        pub to_unit: String,
        pub state: CoordinationState,
        pub boundary: Waypoint,
        #[polywire(idl = "string<64>")]
        pub remark: Option<String>,
    }

    #[derive(Clone, Debug, PartialEq, polywire::Message)]
    #[polywire(name = "Avenue::Wind", switch = "boolean")]
    pub enum Wind {
        #[polywire(case(1), name = "gust_kt")]
        GustKt(f32),
        #[polywire(case(0), name = "mean_kt")]
        MeanKt(f32),
    }

    impl Default for Wind {
        fn default() -> Self {
            polywire::extend::layout::MessageField::default_value()
        }
    }

    #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    #[polywire(name = "Avenue::Meteo")]
    pub struct Meteo {
        pub temperature_c: i16,
        pub direction_deg: f32,
        pub wind: Wind,
    }

    #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    #[polywire(name = "Avenue::FlightData")]
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
        pub wake_category: polywire::Char8,
        pub rules: FlightRules,
        pub equipment: SurveillanceEquipment,
        pub ssr_code: u16,
        #[polywire(idl = "octet[3]")]
        pub mode_s_address: Option<[u8; 3]>,
        pub estimated_off_block_ns: u64,
        pub route: Vec<Waypoint>,
        pub trajectory: Vec<TrajectoryPoint>,
        pub coordinations: Vec<Coordination>,
        #[polywire(idl = "sequence<Avenue::Meteo, 32>")]
        pub meteo: Vec<Meteo>,
        pub extensions: std::collections::BTreeMap<String, String>,
        #[polywire(idl = "sequence<octet>")]
        pub radar_image: Vec<u8>,
    }
}
