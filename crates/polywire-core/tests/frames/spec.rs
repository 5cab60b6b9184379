//! The examples of `spec/frame.md`: encoding produces these bytes, and decoding them the values in
//! the text.

use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128, Kind},
    frame::{
        Answer, DatagramDecoder, DatagramEncoder, Frame, FrameError, Hello, Limits, Start, Step, StreamDecoder,
        StreamEncoder,
    },
    qos::{Offer, Qos, Reliability},
};
use polywire_testing::{hex, spec_examples};

fn hello() -> Hello {
    Hello { node: Id128(core::array::from_fn(|i| i as u8 * 0x11)), incarnation: 7 }
}

fn announcement() -> Announcement {
    Announcement {
        topic: "t".into(),
        writer: Id128([1; 16]),
        incarnation: 1,
        type_name: "T".into(),
        type_hash: Id128([2; 16]),
        schema: Id128([3; 16]),
        codec: "cdr".into(),
        ..Announcement::default()
    }
}

/// Name, frame and payload of each example on a stream, in the order in which they can follow each
/// other.
fn stream_examples() -> Vec<(&'static str, Frame<'static>)> {
    let channel = ChannelId(1);
    let last = Start { sequence: 7, timestamp_ns: 1_000_001_000 };
    vec![
        ("hello", Frame::Hello(hello())),
        ("announce", Frame::Announce { channel, start: Start::default(), announcement: Box::new(announcement()) }),
        ("accept", Frame::Answer { channel, answer: Answer::Accept(1) }),
        ("accept-three", Frame::Answer { channel, answer: Answer::Accept(3) }),
        ("refuse", Frame::Answer { channel, answer: Answer::Refuse("no".into()) }),
        ("renew", Frame::Answer { channel, answer: Answer::Renew(1) }),
        ("data", Frame::Data(Envelope::data(channel, 1, 1000), b"hi")),
        (
            "dispose",
            Frame::Data(
                Envelope {
                    kind: Kind::Dispose,
                    key_hash: Some(Id128([0xAA; 16])),
                    ..Envelope::data(channel, 4, 1_000_001_000)
                },
                b"",
            ),
        ),
        ("position", Frame::Position { channel, start: last, lost: 3 }),
        ("taken", Frame::Taken { messages: 300 }),
        ("lease", Frame::Lease { milliseconds: 5000 }),
        ("relay", Frame::Relay),
        ("key", Frame::Data(Envelope { anchor: Some(8), ..Envelope::data(channel, 8, 1_000_001_000) }, b"hi")),
        ("anchored", Frame::Data(Envelope { anchor: Some(8), ..Envelope::data(channel, 9, 1_000_001_000) }, b"hi")),
    ]
}

fn encode(encoder: &mut StreamEncoder, frame: &Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    match frame {
        Frame::Data(envelope, payload) => {
            encoder.data(envelope, payload.len(), &mut out).expect("fits");
            out.extend_from_slice(payload);
        }
        Frame::Announce { start, announcement, .. } => {
            encoder.announce(announcement, *start, &mut out).expect("fits");
        }
        Frame::Position { channel, start, lost } => encoder.position(*channel, *start, *lost, &mut out).expect("open"),
        other => encoder.control(other, &mut out),
    }
    out
}

#[test]
fn the_stream_examples_are_exact() {
    let (mut examples, mut encoder, mut decoder) =
        (spec_examples("frame.md"), StreamEncoder::default(), StreamDecoder::default());
    for (name, frame) in stream_examples() {
        let bytes = examples.remove(name).unwrap_or_else(|| panic!("no example '{name}'"));
        let encoded = encode(&mut encoder, &frame);
        assert_eq!(hex(&encoded), hex(&bytes), "{name}");
        assert_eq!(decoder.step(&bytes), Ok(Step::Frame { frame, used: bytes.len() }), "{name}");
    }
    assert_eq!(examples.into_keys().collect::<Vec<_>>(), ["datagram", "offer", "offer-strict"]);
}

#[test]
fn offers_go_in_front_of_their_announcement() {
    let mut examples = spec_examples("frame.md");
    let (hello_bytes, announce) = (examples.remove("hello").expect("one"), examples.remove("announce").expect("one"));
    let reliable = Qos::default().reliability(Reliability::Reliable);
    for (name, qos) in [("offer", reliable), ("offer-strict", Qos::default().partition(["a"]))] {
        let offer = Offer { qos, ..Offer::default() }.to_bytes();
        let announcement = Announcement { offer: offer.clone(), ..announcement() };
        let example = examples.remove(name).expect(name);
        let both = [&example[..], &announce].concat();
        let (mut encoder, mut bytes) = (StreamEncoder::default(), Vec::new());
        let channel = encoder.announce(&announcement, Start::default(), &mut bytes).expect("fits");
        assert_eq!(hex(&bytes), hex(&both), "{name}");

        let mut decoder = StreamDecoder::default();
        decoder.step(&hello_bytes).expect("a hello");
        let frame = Frame::Offer { channel, offer: &offer };
        assert_eq!(decoder.step(&both), Ok(Step::Frame { frame, used: example.len() }));
        let announced = Box::new(announcement.clone());
        let frame = Frame::Announce { channel, start: Start::default(), announcement: announced };
        assert_eq!(decoder.step(&announce), Ok(Step::Frame { frame: frame.clone(), used: announce.len() }));

        // Nothing else may follow an offer.
        let mut decoder = StreamDecoder::default();
        decoder.step(&hello_bytes).expect("a hello");
        decoder.step(&example).expect("an offer");
        assert_eq!(decoder.step(&[1, 8]), Err(FrameError::StrayOffer(channel)));

        // Both are in one datagram, and are read as one.
        let Hello { node, incarnation } = hello();
        let (encoder, mut datagram) = (DatagramEncoder::new(node, incarnation, Limits::default()), Vec::new());
        encoder.begin(&mut datagram);
        encoder.announce(channel, Start::default(), &announcement, &mut datagram);
        encoder.control(&frame, &mut datagram);
        encoder.finish(&mut datagram);
        let mut decoder = DatagramDecoder::default();
        let frames: Vec<_> = decoder.open(&datagram).expect("whole").map(|frame| frame.expect("valid")).collect();
        let offered = Frame::Offer { channel, offer: &offer };
        assert_eq!(frames, [offered.clone(), frame.clone(), offered, frame]);
    }
    let huge = Announcement { offer: [50, 0].repeat(600), ..announcement() };
    let error = StreamEncoder::default().announce(&huge, Start::default(), &mut Vec::new());
    assert_eq!(error, Err(FrameError::TooLong { what: "offer", got: 1200, limit: 1 << 10 }));
}

#[test]
fn the_datagram_example_is_exact() {
    let bytes = spec_examples("frame.md").remove("datagram").expect("an example");
    let Hello { node, incarnation } = hello();
    let (mut encoder, mut out) = (DatagramEncoder::new(node, incarnation, Limits::default()), Vec::new());
    let channel = encoder.open().expect("the first");
    encoder.begin(&mut out);
    encoder.data(&Envelope::data(channel, 1, 1000), b"hi", &mut out).expect("fits");
    encoder.finish(&mut out);
    assert_eq!(hex(&out), hex(&bytes));
    let mut decoder = DatagramDecoder::default();
    let datagram = decoder.open(&bytes).expect("whole");
    assert_eq!((datagram.node, datagram.incarnation, datagram.restarted), (node, incarnation, true));
    assert_eq!(datagram.collect::<Vec<_>>(), [Ok(Frame::Data(Envelope::data(channel, 1, 1000), b"hi"))]);
}
