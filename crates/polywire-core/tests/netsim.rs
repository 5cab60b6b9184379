//! The emulated link behaves like its model: statistics of long runs, order, limits, and the same
//! run for the same seed.
#![cfg(feature = "std")]

use polywire_core::netsim::{Duplex, Fate, Link, Loss, Model, PROFILES};

const MILLISECOND: u64 = 1_000_000;

fn model(text: &str) -> Model {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// Sends `n` packets of `len` bytes, one each `gap`. Returns which were lost.
fn losses(text: &str, n: u64, len: usize, gap: u64) -> Vec<bool> {
    let mut link = Link::new(&model(text), 42);
    (0..n).map(|i| link.push(i * gap, vec![0; len]) == Fate::Lost).collect()
}

/// The part that was lost, and the mean length of a burst.
fn figures(lost: &[bool]) -> (f64, f64) {
    let count = lost.iter().filter(|lost| **lost).count();
    let starts = (0..lost.len()).filter(|i| lost[*i] && (*i == 0 || !lost[i - 1])).count();
    (count as f64 / lost.len() as f64, count as f64 / starts.max(1) as f64)
}

fn close(what: &str, found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() <= tolerance * expected, "{what}: {found}, not about {expected}");
}

#[test]
fn losses_come_at_the_rate_and_in_the_bursts_that_were_asked_for() {
    // With these numbers, the standard deviation of the estimates is at most a tenth of the
    // tolerance.
    for (text, rate, burst) in [
        ("loss=5%", 0.05, 1.0 / 0.95),
        ("loss=gilbert:5.05%:1.44", 0.0505, 1.44),
        ("loss=gilbert:30%:3", 0.3, 3.0),
        // Bursts shorter than a packet count as one packet long: never two losses in a row.
        ("loss=gilbert:1.35%:0.59", 0.0135, 1.0),
        ("loss=elliott:1%:10%:0%:100%", 0.01 / 0.11, 10.0),
        ("loss=elliott:1%:10%:1%:50%", (0.1 * 0.01 + 0.01 * 0.5) / 0.11, f64::NAN),
        ("loss=pattern:0010", 0.25, 1.0),
        ("loss=burst:100:5", 0.05, 5.0),
        ("loss=none", 0.0, 0.0),
    ] {
        let found = figures(&losses(text, 150_000, 100, MILLISECOND));
        close(&format!("rate of {text}"), found.0, rate, 0.05);
        if !burst.is_nan() {
            close(&format!("bursts of {text}"), found.1, burst, 0.05);
        }
    }
}

#[test]
fn a_packet_is_lost_with_any_of_its_fragments() {
    let whole = figures(&losses("loss=1%,mtu=1500", 200_000, 1500, MILLISECOND)).0;
    let ten = figures(&losses("loss=1%,mtu=1500", 200_000, 15_000, MILLISECOND)).0;
    close("one fragment", whole, 0.01, 0.1);
    close("ten fragments", ten, 1.0 - 0.99f64.powi(10), 0.05);
    let mut narrow = Link::new(&model("largest=100"), 1);
    assert_eq!(narrow.push(0, vec![0; 101]), Fate::TooLong);
    assert_eq!(narrow.push(0, vec![0; 100]), Fate::Arrives(0));
}

#[test]
fn jitter_has_the_mean_and_the_spread_that_were_asked_for() {
    for (text, mean, deviation) in [
        ("delay=20ms,jitter=uniform:6ms", 20.0, 6.0 / 3f64.sqrt()),
        ("delay=20ms,jitter=normal:2ms", 20.0, 2.0),
        // Pareto of shape a and mean m, from 0: its deviation is m * sqrt(a / (a - 2)), but
        // converges slowly.
        ("delay=20ms,jitter=pareto:4ms", 24.0, f64::NAN),
    ] {
        let mut link = Link::new(&model(text), 3);
        let delays: Vec<f64> = (0..200_000u64)
            .map(|i| match link.push(i * MILLISECOND, Vec::new()) {
                Fate::Arrives(at) => (at - i * MILLISECOND) as f64 / MILLISECOND as f64,
                fate => panic!("{fate:?}"),
            })
            .collect();
        let found = delays.iter().sum::<f64>() / delays.len() as f64;
        close(text, found, mean, 0.02);
        let spread = (delays.iter().map(|delay| (delay - found).powi(2)).sum::<f64>() / delays.len() as f64).sqrt();
        if !deviation.is_nan() {
            close(text, spread, deviation, 0.02);
        }
    }
}

#[test]
fn order_is_kept_where_it_is_to_be_and_only_there() {
    for (text, kept) in [("delay=20ms,jitter=normal:5ms,order=keep", true), ("delay=20ms,jitter=normal:5ms", false)] {
        let mut link = Link::new(&model(text), 9);
        for i in 0..1000 {
            link.push(i * MILLISECOND, i.to_le_bytes().to_vec());
        }
        let mut numbers = Vec::new();
        let mut before = 0;
        while let Some(time) = link.next() {
            assert!(time >= before, "time runs forward");
            assert_eq!(link.pop(time - 1), None, "nothing comes before its time");
            before = time;
            let arrival = link.pop(time).unwrap();
            assert_eq!(arrival.packet, arrival.number.to_le_bytes());
            numbers.push(arrival.number);
        }
        assert_eq!(numbers.len(), 1000);
        assert_eq!(numbers.is_sorted(), kept, "{text}");
        assert_eq!(link.stats().reordered == 0, kept);
    }
}

#[test]
fn a_line_carries_its_rate_and_drops_what_its_queue_cannot_hold() {
    // 1000 bytes a millisecond; ten fit into the queue.
    let mut link = Link::new(&model("rate=8mbit,queue=10kB,delay=5ms"), 1);
    let fates: Vec<Fate> = (0..15).map(|_| link.push(0, vec![0; 1000])).collect();
    for (i, fate) in fates.iter().enumerate().take(10) {
        assert_eq!(*fate, Fate::Arrives((i as u64 + 1 + 5) * MILLISECOND));
    }
    assert!(fates[10..].iter().all(|fate| *fate == Fate::Dropped), "{fates:?}");
    assert_eq!(link.push(3 * MILLISECOND, vec![0; 1000]), Fate::Arrives(16 * MILLISECOND), "there is room again");
    // Tokens that have accumulated may be spent at once.
    let mut bucket = Link::new(&model("rate=8mbit,burst=3kB"), 1);
    let times: Vec<Fate> = (0..5).map(|_| bucket.push(0, vec![0; 1000])).collect();
    assert_eq!(times, [0, 0, 0, 1, 2].map(|ms| Fate::Arrives(ms * MILLISECOND)));
    assert_eq!(bucket.push(100 * MILLISECOND, vec![0; 3000]), Fate::Arrives(100 * MILLISECOND), "it has filled up");
}

#[test]
fn blackouts_let_nothing_in() {
    let mut link = Link::new(&model("delay=1ms,down=10ms..20ms,down=30ms..31ms"), 1);
    let fates: Vec<bool> = (0..40).map(|i| link.push(i * MILLISECOND, vec![1]) == Fate::BlackedOut).collect();
    let down: Vec<usize> = (0..40).filter(|i| fates[*i]).collect();
    assert_eq!(down, (10..20).chain([30]).collect::<Vec<_>>());
    assert_eq!(link.stats().blacked_out, 11);
}

#[test]
fn copies_and_flipped_bits_come_at_their_rates() {
    let mut link = Link::new(&model("duplicate=10%,corrupt=20%"), 5);
    for i in 0..100_000 {
        link.push(i, vec![0; 16]);
    }
    let (mut arrived, mut damaged) = (0u32, 0u32);
    while let Some(time) = link.next() {
        let arrival = link.pop(time).unwrap();
        arrived += 1;
        let flipped: u32 = arrival.packet.iter().map(|byte| byte.count_ones()).sum();
        assert!(flipped <= 1);
        damaged += flipped;
    }
    close("copies", f64::from(arrived) / 100_000.0, 1.1, 0.01);
    close("damage", f64::from(damaged) / 100_000.0, 0.2, 0.03);
    let stats = link.stats();
    assert_eq!(
        (stats.delivered, stats.duplicated, stats.corrupted),
        (arrived.into(), u64::from(arrived) - 100_000, damaged.into())
    );
}

#[test]
fn the_same_seed_is_the_same_run_and_another_is_another() {
    let run = |seed, text: &str| {
        let mut link = Link::new(&model(text), seed);
        (0..500).map(|i| link.push(i * MILLISECOND, vec![7; 700])).collect::<Vec<_>>()
    };
    for profile in PROFILES {
        assert_eq!(run(1, profile.name), run(1, profile.name), "{}", profile.name);
    }
    assert_ne!(run(1, "lossy-30"), run(2, "lossy-30"));
    // Jitter does not change which packets are lost.
    let lost = |fates: Vec<Fate>| fates.into_iter().map(|fate| fate == Fate::Lost).collect::<Vec<_>>();
    assert_eq!(lost(run(1, "loss=20%")), lost(run(1, "loss=20%,delay=3ms,jitter=normal:1ms")));
}

#[test]
fn both_directions_have_losses_of_their_own() {
    let mut path = Duplex::new(&model("loss=50%,delay=1ms"), 4);
    let there: Vec<Fate> = (0..64).map(|i| path.there.push(i, vec![0])).collect();
    let back: Vec<Fate> = (0..64).map(|i| path.back.push(i, vec![0])).collect();
    assert_ne!(there, back);
    let first = path.next().unwrap();
    assert!(path.there.pop(first).is_some() || path.back.pop(first).is_some());
}

#[test]
fn models_have_a_text_form_and_errors_explain_it() {
    for profile in PROFILES {
        let found = Model::profile(profile.name).unwrap();
        assert_eq!(model(&found.to_string()), found, "{}", profile.name);
        assert_eq!(model(profile.name), found);
    }
    let high = model("wan-high,rate=2mbit,down=2s..4s");
    assert_eq!(high.rate.unwrap().get(), 2_000_000);
    assert_eq!(high.loss, Loss::Gilbert { plr: 5.05 / 100.0, abl: 1.44 });
    assert_eq!(high.down, [(2_000_000_000, 4_000_000_000)]);
    assert_eq!(model(""), Model::default());
    for (text, said) in [
        ("wan-hihg", "profiles lan, wan-low"),
        ("delay=20", "a number with a unit is expected: ns, us, ms, s"),
        ("loss=120%", "a part of the whole"),
        ("loss=gilbert:5%", "gilbert:PLR:ABL"),
        ("loss=gilbert:100%:2", "less than all"),
        ("speed=1", "there is no such key"),
        ("delay=1ms,lan", "a profile comes first"),
        ("down=4s..2s", "ends before it begins"),
        ("rate=0mbit", "at least one bit"),
        ("delay=-1ms", "out of range"),
        ("delay=NaNms", "a number with a unit"),
        ("rate=1e300gbit", "out of range"),
    ] {
        let error = text.parse::<Model>().expect_err(text).to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
}
