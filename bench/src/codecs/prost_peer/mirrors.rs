//! The measured types for `prost`, as its generator makes them from the output of
//! `polywire idl proto`. Members without a tag are numbered in order, from 1.

use std::collections::BTreeMap;

use polywire_workloads::{
    CodecsTest10, CodecsTest50, CodecsTest100, CodecsTest250, CodecsTest500, FlightData, Floats, LinuxProcessorProbe,
    MarketData, ProcessorProbe,
};
use prost::{Message, Oneof};

use super::Mirrored;

macro_rules! mirrors {
    ($($workload:ident $mirror:ident;)+) => {$(
        impl Mirrored for $workload {
            type Mirror = $mirror;
        }
    )+};
}

mirrors! {
    MarketData Book;
    ProcessorProbe Probe;
    LinuxProcessorProbe LinuxProbe;
    FlightData Flight;
    Floats Cloud;
}

#[derive(Clone, PartialEq, Message)]
pub struct Book {
    #[prost(bool)]
    is_echo: bool,
    #[prost(uint32)]
    counter: u32,
    #[prost(uint32)]
    security_id: u32,
    #[prost(string)]
    appl_version_id: String,
    #[prost(string)]
    message_type: String,
    #[prost(string)]
    sender_comp_id: String,
    #[prost(uint32)]
    msg_seq_num: u32,
    #[prost(uint32)]
    sending_time: u32,
    #[prost(uint32)]
    trade_date: u32,
    #[prost(message, repeated)]
    md_entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(uint32)]
    md_update_action: u32,
    #[prost(uint32)]
    md_price_level: u32,
    #[prost(string)]
    md_entry_type: String,
    #[prost(uint32)]
    open_close_settle_flag: u32,
    #[prost(uint32)]
    security_id_source: u32,
    #[prost(uint32)]
    security_id: u32,
    #[prost(uint32)]
    rpt_seq: u32,
    #[prost(double)]
    md_entry_px: f64,
    #[prost(uint32)]
    md_entry_time: u32,
    #[prost(sint32)]
    md_entry_size: i32,
    #[prost(uint32)]
    number_of_orders: u32,
    #[prost(string)]
    trading_session_id: String,
    #[prost(double)]
    net_chg_prev_day: f64,
    #[prost(uint32)]
    trade_volume: u32,
    #[prost(string)]
    trade_condition: String,
    #[prost(string)]
    tick_direction: String,
    #[prost(string)]
    quote_condition: String,
    #[prost(uint32)]
    aggressor_side: u32,
    #[prost(string)]
    match_event_indicator: String,
}

macro_rules! codecs_test {
    (
        $workload:ident $mirror:ident
        $($bool:ident $string:ident $int8:ident $uint8:ident $int16:ident $uint16:ident
          $int32:ident $uint32:ident $int64:ident $uint64:ident;)+
    ) => {
        #[derive(Clone, PartialEq, Message)]
        pub struct $mirror {
            $(
                #[prost(bool)]
                $bool: bool,
                #[prost(string)]
                $string: String,
                #[prost(sint32)]
                $int8: i32,
                #[prost(uint32)]
                $uint8: u32,
                #[prost(sint32)]
                $int16: i32,
                #[prost(uint32)]
                $uint16: u32,
                #[prost(sint32)]
                $int32: i32,
                #[prost(uint32)]
                $uint32: u32,
                #[prost(sint64)]
                $int64: i64,
                #[prost(uint64)]
                $uint64: u64,
            )+
        }

        impl Mirrored for $workload {
            type Mirror = $mirror;
        }
    };
}

polywire_workloads::codecs_test_members! { 10 codecs_test { CodecsTest10 Test10 } }
polywire_workloads::codecs_test_members! { 50 codecs_test { CodecsTest50 Test50 } }
polywire_workloads::codecs_test_members! { 100 codecs_test { CodecsTest100 Test100 } }
polywire_workloads::codecs_test_members! { 250 codecs_test { CodecsTest250 Test250 } }
polywire_workloads::codecs_test_members! { 500 codecs_test { CodecsTest500 Test500 } }

#[derive(Clone, PartialEq, Message)]
pub struct Probe {
    #[prost(uint64)]
    idle_time: u64,
    #[prost(uint64)]
    system_time: u64,
    #[prost(uint64)]
    user_time: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Cloud {
    #[prost(uint64)]
    stamp: u64,
    #[prost(string)]
    frame_id: String,
    #[prost(uint32)]
    height: u32,
    #[prost(uint32)]
    width: u32,
    #[prost(float, repeated)]
    data: Vec<f32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct LinuxProbe {
    #[prost(uint64)]
    idle_time: u64,
    #[prost(uint64)]
    system_time: u64,
    #[prost(uint64)]
    user_time: u64,
    #[prost(uint64)]
    nice_time: u64,
    #[prost(uint64)]
    iowait_time: u64,
    #[prost(uint64)]
    irq_time: u64,
    #[prost(uint64)]
    soft_irq_time: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Flight {
    #[prost(string)]
    call_sign: String,
    #[prost(uint64)]
    flight_id: u64,
    #[prost(string)]
    departure: String,
    #[prost(string)]
    destination: String,
    #[prost(string, repeated)]
    alternates: Vec<String>,
    #[prost(string)]
    aircraft_type: String,
    #[prost(uint32)]
    wake_category: u32,
    #[prost(int32)]
    rules: i32,
    #[prost(uint32)]
    equipment: u32,
    #[prost(uint32)]
    ssr_code: u32,
    #[prost(bytes = "vec", optional)]
    mode_s_address: Option<Vec<u8>>,
    #[prost(uint64)]
    estimated_off_block_ns: u64,
    #[prost(message, repeated)]
    route: Vec<Waypoint>,
    #[prost(message, repeated)]
    trajectory: Vec<TrajectoryPoint>,
    #[prost(message, repeated)]
    coordinations: Vec<Coordination>,
    #[prost(message, repeated)]
    meteo: Vec<Meteo>,
    #[prost(btree_map = "string, string")]
    extensions: BTreeMap<String, String>,
    #[prost(bytes = "vec")]
    radar_image: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Waypoint {
    #[prost(string)]
    designator: String,
    #[prost(message, required)]
    position: Position,
    #[prost(sint32, optional)]
    level_ft: Option<i32>,
    #[prost(uint64)]
    estimated_time_over_ns: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Position {
    #[prost(double)]
    latitude_deg: f64,
    #[prost(double)]
    longitude_deg: f64,
}

#[derive(Clone, PartialEq, Message)]
struct TrajectoryPoint {
    #[prost(uint64)]
    time_ns: u64,
    #[prost(message, required)]
    position: Position,
    #[prost(float)]
    altitude_ft: f32,
    #[prost(float)]
    ground_speed_kt: f32,
    #[prost(float)]
    vertical_rate_ft_min: f32,
    #[prost(float)]
    heading_deg: f32,
}

#[derive(Clone, PartialEq, Message)]
struct Coordination {
    #[prost(string)]
    from_unit: String,
    #[prost(string)]
    to_unit: String,
    #[prost(int32)]
    state: i32,
    #[prost(message, required)]
    boundary: Waypoint,
    #[prost(string, optional)]
    remark: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Meteo {
    #[prost(sint32)]
    temperature_c: i32,
    #[prost(float)]
    direction_deg: f32,
    #[prost(message, required)]
    wind: Wind,
}

#[derive(Clone, PartialEq, Message)]
struct Wind {
    #[prost(sint64, optional)]
    discriminator: Option<i64>,
    #[prost(oneof = "Speed", tags = "2, 3")]
    speed: Option<Speed>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Speed {
    #[prost(float, tag = "2")]
    GustKt(f32),
    #[prost(float, tag = "3")]
    MeanKt(f32),
}
