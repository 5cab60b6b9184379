//! Compares the hand-written CDR of MarketData with a golden vector of Cyclone DDS.

use polywire_workloads::{Cdr, MarketData, cdr_decode, cdr_encode};

const VECTORS: &str = include_str!("../../conformance/cdr/vectors.jsonl");

/// The payload of a golden vector, without the encapsulation header and without the padding that
/// the header counts.
fn payload(name: &str) -> Vec<u8> {
    let line = VECTORS.lines().find(|line| line.contains(&format!("\"name\": \"{name}\""))).expect("the vector exists");
    let (_, rest) = line.split_once("\"hex\": \"").expect("a vector has hex");
    let (digits, _) = rest.split_once('"').expect("the hex ends with a quote");
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hex consists of digits");
    let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
    bytes[4..bytes.len() - usize::from(bytes[3] & 3)].to_vec()
}

#[test]
fn market_data_is_read_and_written_alike() {
    let (theirs, mut message, mut ours) =
        (payload("market_data/market-data.xcdr1.le"), MarketData::default(), Vec::new());
    cdr_decode(&theirs, &mut message).unwrap();
    assert_eq!((message.counter, message.trade_date, message.md_entries.len()), (1, 20120301, 2));
    assert_eq!(message.md_entries[1].md_entry_px, 9427.5);
    assert_eq!(message.md_entries[1].trade_condition, "WX");
    // SAFETY: the bound is that of this message.
    unsafe { cdr_encode(&message, message.bound(), &mut ours) };
    assert_eq!(ours, theirs);
}
