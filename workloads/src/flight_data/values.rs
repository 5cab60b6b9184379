//! Generates the values of FlightData: successive reports of one flight, with the sequence lengths
//! that `avenue.idl` states, about 100 KB each.

use polywire_core::layout::Char8;

use super::{
    Coordination, CoordinationState, FlightData, FlightRules, Meteo, Position, SurveillanceEquipment, TrajectoryPoint,
    Waypoint, Wind,
};
use crate::{Rng, Workload};

const START_NS: u64 = 1_700_000_000_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;

impl Workload for FlightData {
    const NAME: &'static str = "FlightData";
    const MESSAGES: usize = 4;

    fn generate(n: usize) -> Vec<Self> {
        let mut rng = Rng(2008);
        let mut flight = first_flight(&mut rng);
        (0..n)
            .map(|_| {
                change(&mut flight, &mut rng);
                flight.clone()
            })
            .collect()
    }
}

fn first_flight(rng: &mut Rng) -> FlightData {
    FlightData {
        call_sign: "DLH4AB".into(),
        flight_id: 4_711_000_815,
        departure: "EDDM".into(),
        destination: "LPPT".into(),
        alternates: ["LPPR", "LPFR", "LEMD"].map(String::from).to_vec(),
        aircraft_type: "A21N".into(),
        wake_category: Char8(b'M'),
        rules: FlightRules::Instrument,
        equipment: SurveillanceEquipment(0b01111),
        ssr_code: 0o4721,
        mode_s_address: Some([0x3C, 0x65, 0x1F]),
        estimated_off_block_ns: START_NS,
        route: (0..120).map(|i| waypoint(i, rng)).collect(),
        trajectory: (0..2000).map(|i| point(i, rng)).collect(),
        coordinations: (0..24).map(|i| coordination(i, rng)).collect(),
        meteo: (0..32).map(|i| meteo(i, rng)).collect(),
        extensions: (1..=8).map(|i| (format!("extension_{i}"), format!("Stand B{}", rng.range(10, 99)))).collect(),
        radar_image: (0..8192).map(|_| rng.range(0, 256) as u8).collect(),
    }
}

/// The position on a line from Munich to Lisbon after `share` thousandths of the distance.
fn position(share: i64) -> Position {
    Position { latitude_deg: 48.35 - 0.00957 * share as f64, longitude_deg: 11.79 - 0.02092 * share as f64 }
}

fn waypoint(i: i64, rng: &mut Rng) -> Waypoint {
    let letter = |rng: &mut Rng| char::from(b'A' + rng.range(0, 26) as u8);
    Waypoint {
        designator: (0..5).map(|_| letter(rng)).collect(),
        position: position(i * 1000 / 120),
        level_ft: rng.chance(75).then(|| 1000 * rng.range(290, 390) as i32 / 10),
        estimated_time_over_ns: START_NS + i as u64 * 90 * SECOND_NS,
    }
}

fn point(i: i64, rng: &mut Rng) -> TrajectoryPoint {
    TrajectoryPoint {
        time_ns: START_NS + i as u64 * 5 * SECOND_NS,
        position: position(i / 2),
        altitude_ft: 35_000.0 + rng.range(-100, 101) as f32 * 0.25,
        ground_speed_kt: 450.0 + rng.range(-40, 41) as f32 * 0.125,
        vertical_rate_ft_min: rng.range(-64, 65) as f32,
        heading_deg: 242.0 + rng.range(-20, 21) as f32 * 0.1,
    }
}

fn coordination(i: i64, rng: &mut Rng) -> Coordination {
    Coordination {
        from_unit: format!("EDMM{i:02}"),
        to_unit: format!("LSAZ{i:02}"),
        state: CoordinationState::Notified,
        boundary: waypoint(i * 5, rng),
        remark: rng.chance(50).then(|| format!("requests FL{} at boundary", rng.range(290, 390))),
    }
}

fn meteo(i: i64, rng: &mut Rng) -> Meteo {
    let speed = rng.range(0, 200) as f32 * 0.5;
    Meteo {
        temperature_c: -56 + (i % 7) as i16,
        direction_deg: rng.range(0, 3600) as f32 * 0.1,
        wind: if rng.chance(30) { Wind::GustKt(speed) } else { Wind::MeanKt(speed) },
    }
}

/// Makes the next report of the flight: times advance, and other values change a little.
fn change(flight: &mut FlightData, rng: &mut Rng) {
    for waypoint in &mut flight.route {
        waypoint.estimated_time_over_ns += rng.range(0, 3) as u64 * SECOND_NS;
    }
    for point in &mut flight.trajectory {
        point.time_ns += 5 * SECOND_NS;
        point.position.latitude_deg += rng.range(-8, 9) as f64 / 1024.0;
        point.position.longitude_deg += rng.range(-8, 9) as f64 / 1024.0;
        point.altitude_ft += rng.range(-4, 5) as f32 * 6.25;
        point.ground_speed_kt += rng.range(-2, 3) as f32 * 0.125;
        point.heading_deg += rng.range(-2, 3) as f32 * 0.125;
    }
    for coordination in &mut flight.coordinations {
        if rng.chance(20) {
            coordination.state = CoordinationState::Coordinated;
        }
    }
    for meteo in &mut flight.meteo {
        meteo.direction_deg = (meteo.direction_deg + rng.range(-4, 5) as f32 * 0.25).clamp(0.0, 360.0);
    }
    for _ in 0..256 {
        let at = rng.range(0, flight.radar_image.len() as i64) as usize;
        flight.radar_image[at] = rng.range(0, 256) as u8;
    }
}
