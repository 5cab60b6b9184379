//! Members that a writer leaves out, few or many in succession: absent optional members, and the
//! zero and empty values that Protobuf omits.
#![forbid(unsafe_code)]

use polywire_core::{layout::Message, program::Limits};
use polywire_derive::Message;
use polywire_testing::plain_wires;

/// Number of members.
const MEMBERS: usize = 20;

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Sparse {
    a: u32,
    b: Option<u32>,
    c: String,
    d: Option<String>,
    e: Vec<u16>,
    f: Option<bool>,
    g: f64,
    h: Option<f64>,
    i: bool,
    j: Option<i64>,
    k: i16,
    l: Option<u8>,
    m: String,
    n: Option<Vec<u32>>,
    o: u64,
    p: Option<i32>,
    q: u32,
    r: Option<String>,
    s: Vec<String>,
    t: Option<u64>,
}

impl Sparse {
    /// The members whose index `holds` have a value.
    fn with(holds: impl Fn(usize) -> bool) -> Sparse {
        let number = |at| if holds(at) { at as u32 + 1 } else { 0 };
        let text = |at| if holds(at) { format!("member {at}") } else { String::new() };
        let some = |at| holds(at).then_some(at as u32);
        Sparse {
            a: number(0),
            b: some(1),
            c: text(2),
            d: holds(3).then(|| text(3)),
            e: vec![4; number(4) as usize],
            f: holds(5).then_some(true),
            g: number(6).into(),
            h: some(7).map(f64::from),
            i: holds(8),
            j: some(9).map(i64::from),
            k: number(10) as i16,
            l: some(11).map(|number| number as u8),
            m: text(12),
            n: some(13).map(|number| vec![number; 3]),
            o: number(14).into(),
            p: some(15).map(|number| -(number as i32)),
            q: number(16),
            r: holds(17).then(|| text(17)),
            s: vec![text(18); number(18) as usize],
            t: some(19).map(u64::from),
        }
    }
}

#[test]
fn members_left_out_in_succession_come_back_as_they_were() {
    let shape = Sparse::shape();
    for wire in plain_wires() {
        let decoders = wire.decoders::<Sparse>(shape.schema(), Limits::default());
        for first in [0, 1, 6, 11] {
            for end in first..=MEMBERS {
                let value = Sparse::with(|at| !(first..end).contains(&at));
                let bytes = wire.encode(&value).expect("it is encoded");
                let before = Sparse::with(|at| at % 3 > 0);
                let back = decoders.decode_all(&bytes, || before.clone());
                assert_eq!(back.as_ref(), Ok(&value), "{}, without {first}..{end}", wire.codec.name());
            }
        }
    }
}
