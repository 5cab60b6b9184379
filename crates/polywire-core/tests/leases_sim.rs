//! Leases in virtual time, over links that lose: who asserts four times in a lease stays alive, and
//! who stops is not alive soon after.

use core::time::Duration;

use polywire_core::{
    envelope::Id128,
    netsim::{Link, Model},
    qos::Leases,
};

const WRITER: Id128 = Id128([1; 16]);
const LEASE: Duration = Duration::from_millis(1000);

/// The virtual times, in milliseconds, at which the writer was found not alive and alive again.
/// It asserts every 250 ms, except from 30 s to 40 s, for a minute.
fn changes(model: &Model, seed: u64) -> Vec<(u64, bool)> {
    let (mut link, mut leases, mut changes) = (Link::new(model, seed), Leases::default(), Vec::new());
    for ms in 0..60_000u64 {
        let (now, now_ns) = (Duration::from_millis(ms), ms * 1_000_000);
        if ms % 250 == 0 && !(30_000..40_000).contains(&ms) {
            link.push(now_ns, vec![0]);
        }
        while link.pop(now_ns).is_some() {
            if leases.heard(WRITER, LEASE, now) {
                changes.push((ms, true));
            }
        }
        changes.extend(leases.lapsed(now).iter().map(|_| (ms, false)));
        assert!(leases.alive() + leases.not_alive() <= 1);
    }
    changes
}

#[test]
fn a_writer_is_not_alive_for_as_long_as_it_is_silent() {
    for seed in 0..20 {
        let model: Model = "loss=2%,delay=50ms".parse().expect("a model");
        let found = changes(&model, seed);
        let states: Vec<bool> = found.iter().map(|(_, alive)| *alive).collect();
        assert_eq!(states, [true, false, true], "seed {seed}: {found:?}");
        assert!((30_000..31_001).contains(&found[1].0), "seed {seed}: {found:?}");
        assert!((40_000..41_000).contains(&found[2].0), "seed {seed}: {found:?}");
    }
}
