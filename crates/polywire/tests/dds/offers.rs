//! DDS programs that change what they offer.

use polywire::{
    Node,
    qos::{InstanceState, Qos},
};
use polywire_core::qos::{Offer, Ownership};

use crate::{
    Pump,
    program::{SOON, domain},
    python, wire,
};

#[test]
fn a_new_offer_of_a_dds_program_applies_and_its_samples_go_on() {
    let (domain, node) = (domain(), Node::new());
    let subscribe = node.subscribe::<Pump>("plant/pumps", Some(&wire("auto", domain))).expect("a place");
    let exclusive: Qos = "ownership=exclusive".parse().expect("policies");
    let pumps = subscribe.qos(exclusive).expect("valid policies").instances().open();
    let Some(_program) = python("rise", domain, "plant/pumps", "Pump") else { return };
    let (mut numbers, mut strengths) = (Vec::<u64>::new(), Vec::<i32>::new());
    while strengths.iter().filter(|strength| **strength == 2).count() < 50 {
        let sample = pumps.recv_timeout(SOON).expect("a sample");
        assert_eq!(sample.info.instance, Some(InstanceState::Alive), "its instance stays");
        let offer = Offer::parse(&sample.info.source.announcement.offer).expect("an offer");
        let Ownership::Exclusive { strength } = offer.qos.ownership else { panic!("{offer:?}") };
        numbers.push(sample.info.sequence);
        strengths.push(strength);
        assert!(numbers.len() < 3000, "the offer stays the same");
    }
    assert!(numbers.is_sorted_by(|one, next| one + 1 == *next), "{numbers:?}");
    strengths.dedup();
    assert_eq!((strengths, pumps.lost()), (vec![1, 2], 0));
}
