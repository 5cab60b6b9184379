//! What an update of a cell costs, and a sample of each probe of the system. `sysinfo` takes the
//! same figures for comparison.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use polywire_telemetry::{
    Clocks, Counter, Gauge, Histogram, Settings,
    system::{Host, PROBES},
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

fn main() {
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
