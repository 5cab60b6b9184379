//! What an update of a cell costs, a sample of each probe of the system, its packaging beside CDR
//! alone, and a sample's way to a collector. `sysinfo` takes the same figures for comparison.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use polywire::{
    Message,
    codec::{Encoder, Options, cdr::CDR},
    coding::Typed,
};
use polywire_telemetry::{
    Clocks, Counter, Gauge, Histogram, Instrument, Moment, Probe, Settings, Uuid,
    intake::{Intake, IntakeLimits},
    packet::{PacketReply, StreamDescription},
    system::{Core, Host, Load, PROBES, Processor},
    uplink::{Files, Memory, Rule, Storage, Uplink, UplinkOptions},
};
use sysinfo::{Networks, System};

/// Runs a piece of work for about half a second, and returns the nanoseconds that one run takes.
fn cost(mut work: impl FnMut()) -> f64 {
    let (mut runs, mut spent) = (1_u64, Duration::ZERO);
    while spent < Duration::from_millis(250) {
        runs *= 2;
        let start = Instant::now();
        (0..runs).for_each(|_| work());
        spent = start.elapsed();
    }
    spent.as_nanos() as f64 / runs as f64
}

/// What it costs to keep samples of 100 bytes until a collector has them, in nanoseconds a sample:
/// offered, read again, put into packets of 256 KiB, accepted and acknowledged.
fn kept(storage: Box<dyn Storage>) -> [f64; 2] {
    let (node, clocks) = (Uuid::random(), Clocks::new());
    let mut uplink = Uplink::new(node, 1, storage, UplinkOptions::default(), clocks.now()).expect("an uplink");
    let description = StreamDescription { schema: Load::shape().schema().to_bytes(), ..StreamDescription::default() };
    let description = StreamDescription { instance: "load".into(), codec: "cdr".into(), ..description };
    let stream = uplink.open(description, Rule::default()).expect("a stream");
    let (samples, payload) = (200_000_u32, [7; 100]);
    let per_sample = |start: Instant| start.elapsed().as_nanos() as f64 / f64::from(samples);
    let start = Instant::now();
    (0..samples).for_each(|_| uplink.offer(stream, black_box(&payload), clocks.now()));
    let offered = per_sample(start);
    let (start, mut intake) = (Instant::now(), Intake::new(IntakeLimits::default()));
    while let Some(packet) = uplink.poll(clocks.now()) {
        let accepted = intake.take(&packet, Some(node)).expect("accepted");
        intake.stored(black_box(accepted).ticket);
        uplink.handle_reply(packet.number, &PacketReply::default());
    }
    assert_eq!((uplink.status().acknowledged, intake.status().samples), (samples.into(), samples.into()));
    [offered, per_sample(start)]
}

/// What it costs to put a sample into a data packet's payload, and what the codec alone takes for
/// the same value, in nanoseconds.
fn packaging<T: Message + Clone + Send + 'static>(value: &T) -> [f64; 2] {
    let (mut out, options) = (Vec::new(), Options::default());
    let sample = value.clone();
    let measure = move |_: Moment, latest: &mut T| {
        latest.clone_from(&sample);
        Ok(())
    };
    let mut probe = Instrument::new(Typed::<T>::default(), measure);
    probe.set_format(&CDR, &options).expect("a format");
    probe.sample(Moment::default()).expect("a sample");
    let (probe, encoder): (Box<dyn Probe>, _) =
        (Box::new(probe), Encoder::<T>::new(&CDR, &options).expect("an encoder"));
    let packaged = cost(|| {
        out.clear();
        assert!(black_box(&probe).encode(&mut out).expect("encoded"));
    });
    let encoded = cost(|| {
        out.clear();
        encoder.encode(black_box(value), &mut out).expect("encoded");
    });
    [packaged, encoded]
}

fn main() {
    let folder = std::env::temp_dir().join(format!("polywire-cost-{}", std::process::id()));
    let storages: [(&str, Box<dyn Storage>); 2] =
        [("memory", Box::new(Memory::default())), ("files", Box::new(Files::open(&folder).expect("a folder")))];
    for (name, storage) in storages {
        let [offered, carried] = kept(storage);
        println!("keep in {name:12}{offered:8.1} ns, send and take in {carried:.1} ns");
    }
    std::fs::remove_dir_all(folder).expect("removed");
    let (gauge, counter, histogram) = (Gauge::<f64>::default(), Counter::default(), Histogram::default());
    let mut number = 0;
    println!("Gauge::set          {:8.1} ns", cost(|| black_box(&gauge).set(black_box(1.5))));
    println!("Counter::add        {:8.1} ns", cost(|| black_box(&counter).add(black_box(1))));
    println!(
        "Histogram::observe  {:8.1} ns",
        cost(|| {
            number += 7;
            black_box(&histogram).observe(black_box(number & 0xffff));
        })
    );
    let core = Core { busy_percent: 12.5, ..Core::default() };
    let processor = Processor { cores: vec![core; 8], ..Processor::default() };
    for (name, [packaged, encoded]) in
        [("Load", packaging(&Load::default())), ("Processor, 8 cores", packaging(&processor))]
    {
        println!("package {name:20}{packaged:8.1} ns, CDR alone {encoded:.1} ns");
    }
    let clocks = Clocks::new();
    for probe in PROBES {
        match (probe.open)(&Host::this(), &Settings::default()) {
            Ok(mut open) => {
                let nanoseconds = cost(|| open.sample(clocks.now()).expect("a sample"));
                println!("{:20}{:8.1} us", probe.name, nanoseconds / 1e3);
            }
            Err(error) => println!("{:20}not here: {error}", probe.name),
        }
    }
    let (mut system, mut networks) = (System::new(), Networks::new_with_refreshed_list());
    println!("sysinfo processor   {:8.1} us", cost(|| system.refresh_cpu_usage()) / 1e3);
    println!("sysinfo memory      {:8.1} us", cost(|| system.refresh_memory()) / 1e3);
    println!("sysinfo network     {:8.1} us", cost(|| networks.refresh(true)) / 1e3);
}
