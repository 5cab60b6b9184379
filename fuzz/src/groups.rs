//! The target for packets of multicast groups and pairs, whose receivers anybody can reach.

use polywire_core::{
    multicast::{Admission, Config, Event, Gate, Member, Reliability},
    schema::arbitrary::Random,
};
use polywire_testing::mutated;
use std::time::Duration;

/// Two members exchange packets; the input has those of the first, damaged, each with its length in
/// front. The checksum is mostly right, so that the code behind its check runs.
pub fn group_packets(random: &mut Random) -> Vec<u8> {
    let (mut one, mut other) = (member(1, false), member(2, false));
    let (mut now, mut packet, mut input) = (Duration::ZERO, Vec::new(), Vec::new());
    for _ in 0..30 {
        while one.poll_transmit(now, &mut packet) {
            // Without a packet now and then the other asks for it.
            if !random.one_in(4) {
                other.handle_datagram(&packet, now).expect("it is not damaged");
            }
            let mut damaged = packet.clone();
            if random.one_in(2) {
                let body = packet.get(..packet.len() - 4).unwrap_or_default();
                damaged = mutated(random, body);
                let sum = polywire_core::frame::crc32c(&damaged);
                damaged.extend(sum.to_le_bytes());
            }
            input.extend((damaged.len() as u16).to_le_bytes());
            input.extend(damaged);
        }
        while other.poll_transmit(now, &mut packet) {
            one.handle_datagram(&packet, now).expect("it is not damaged");
        }
        for member in [&mut one, &mut other] {
            while member.poll_event(now).is_some() {}
            let reliability = if random.one_in(2) { Reliability::Reliable } else { Reliability::BestEffort };
            let longest = if random.one_in(5) { 5000 } else { 100 };
            let record = vec![7; random.below(longest)];
            member.send(None, reliability, &record, 1, now).expect("it is short enough");
        }
        now += Duration::from_millis(random.below(30) as u64);
    }
    input
}

/// A member of a group, one of a pair and a gate take the packets. None of them holds more than its
/// configuration says, and no answer is longer than twice the question.
pub fn read_group_packets(input: &[u8]) {
    let (gate, mut packet) = (Gate::new([7; 32]), Vec::new());
    let mut readers = [member(2, false), member(3, true), member(1, false)];
    let (mut now, mut rest) = (Duration::ZERO, input);
    while let Some((len, bytes)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes(*len)).min(bytes.len());
        let (datagram, others) = bytes.split_at(len);
        rest = others;
        now += Duration::from_millis(3);
        if let Admission::Challenge(answer) = gate.admit(b"somewhere", datagram, now) {
            assert!(answer.len() < 2 * datagram.len(), "it amplifies");
        }
        for reader in &mut readers {
            let _ = reader.handle_datagram(datagram, now);
            while let Some(event) = reader.poll_event(now) {
                if let Event::Records { batch, .. } = event {
                    assert!(batch.records().all(|record| record.len() <= LONGEST), "a record is too long");
                }
            }
            let mut answers = 0;
            while reader.poll_transmit(now, &mut packet) {
                answers += 1;
            }
            assert!(answers < 2 * WINDOW + 100, "{answers} packets for one");
            assert!(reader.held_bytes() < 8 * (BUFFER + LONGEST), "it holds {} bytes", reader.held_bytes());
        }
    }
}

const WINDOW: usize = 64;
const BUFFER: usize = 64 << 10;
const LONGEST: usize = 1 << 14;

fn member(seed: u64, is_pair: bool) -> Member {
    let config = Config {
        is_pair,
        window: WINDOW,
        retransmission_buffer: BUFFER,
        record_bytes: LONGEST,
        reassembly_bytes: 2 * LONGEST,
        peers: 4,
        ..Config::default()
    };
    Member::new(config, Default::default(), seed)
}
