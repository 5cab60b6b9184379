//! Whole sessions in virtual time: nodes that start late, restart, publish, retire, subscribe,
//! refuse and unsubscribe, over links that lose, repeat, reorder, damage and black out. Frames are
//! really encoded and decoded.
//!
//! For each seed: every channel reaches its matched state soon after the last change; every value
//! and document that arrives is the one that was sent; no queue grows beyond its limit.
//!
//! `POLYWIRE_TEST_SEEDS=N` runs N times as many seeds, `POLYWIRE_TEST_FIRST=SEED` begins at one.
#![cfg(feature = "std")]

mod session_support;

use polywire_testing::seeds;
use session_support::{Simulation, Wire};

/// Links from bad to worse; each loses 30 % in one direction at least.
const LOSSY: &[&str] = &[
    "loss=30%,delay=5ms",
    "loss=30%,delay=20ms,jitter=uniform:40ms,reorder=10%",
    "loss=30%,duplicate=20%,corrupt=3%,delay=1ms",
    "loss=gilbert:30%:3,delay=40ms",
];

#[test]
fn sessions_over_lossy_links_always_match() {
    let mut simulation = Simulation::new();
    for seed in seeds(300) {
        let model = LOSSY[seed as usize % LOSSY.len()];
        simulation.run(seed, Wire::Datagrams, model);
    }
    simulation.report();
    // Every situation that the simulation is meant to test has occurred.
    let seen = simulation.seen;
    for (what, count) in [
        ("restarts", seen.restarts),
        ("late nodes", seen.late),
        ("blackouts", seen.blackouts),
        ("retirements", seen.retired),
        ("refusals", seen.refused),
        ("values", seen.values),
        ("disposals", seen.disposed),
        ("unregistrations", seen.unregistered),
        ("requests", seen.requests),
        ("replies", seen.replies),
        ("key frames", seen.keys),
        ("anchored messages", seen.anchored),
        ("chained messages", seen.chained),
        ("documents", seen.documents),
        ("forged documents", seen.forged),
        ("repeated announcements", seen.repeated),
    ] {
        assert!(count > 0, "no {what} in all runs");
    }
}

#[test]
fn sessions_over_reliable_links_match_and_repeat_nothing() {
    let mut simulation = Simulation::new();
    for seed in seeds(100) {
        simulation.run(seed, Wire::Streams, "delay=5ms,jitter=uniform:5ms,order=keep");
    }
    let seen = simulation.seen;
    assert!(seen.late > 0 && seen.retired > 0 && seen.refused > 0 && seen.documents > 0 && seen.chained > 0);
    assert_eq!(seen.repeated, 0);
}
