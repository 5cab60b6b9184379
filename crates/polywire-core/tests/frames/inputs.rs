//! Frames for all kinds of input. They round-trip however they are split; a damaged frame is an
//! error or another valid frame, never a panic.

use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, ExtensionsBuf, Id128, Kind},
    frame::{
        Answer, DatagramDecoder, DatagramEncoder, Frame, FrameError, Hello, Limits, STEADY_OVERHEAD, Start, Step,
        StreamDecoder, StreamEncoder, payload_offset,
    },
};
use proptest::{collection::vec, option, prelude::*, sample::Index};

/// A message without its borrowed parts.
#[derive(Clone, Debug)]
struct Message {
    channel: usize,
    step: u64,
    timestamp_ns: i64,
    kind: Kind,
    key: Option<[u8; 16]>,
    anchor: Option<u64>,
    extensions: Vec<(u32, Vec<u8>)>,
    payload: Vec<u8>,
}

fn message() -> impl Strategy<Value = Message> {
    let times = prop_oneof![any::<i64>(), 0..1_000_000_i64];
    let steps = prop_oneof![Just(1), 1..1_000_000_u64];
    let kinds = (0..Kind::ALL.len()).prop_map(|i| Kind::ALL[i]);
    // Many have nothing unusual.
    let extensions = prop_oneof![3 => Just(Vec::new()), 1 => vec((any::<u32>(), vec(any::<u8>(), 0..20)), 1..3)];
    (
        0..3_usize,
        steps,
        times,
        kinds,
        option::weighted(0.2, any::<[u8; 16]>()),
        option::weighted(0.2, any::<u64>()),
        extensions,
        vec(any::<u8>(), 0..300),
    )
        .prop_map(|(channel, step, timestamp_ns, kind, key, anchor, extensions, payload)| Message {
            channel,
            step,
            timestamp_ns,
            kind,
            key,
            anchor,
            extensions,
            payload,
        })
}

fn announcement(topic: &str) -> Announcement {
    Announcement { topic: topic.into(), codec: "json".into(), ..Announcement::default() }
}

/// A stream of three channels with these messages, and each frame as text.
fn stream(messages: &[Message]) -> (Vec<u8>, Vec<String>) {
    let (mut encoder, mut bytes, mut frames) = (StreamEncoder::default(), Vec::new(), Vec::new());
    let hello = Hello { node: Id128([9; 16]), incarnation: u64::MAX };
    encoder.hello(&hello, &mut bytes);
    frames.push(format!("{:?}", Frame::Hello(hello)));
    for topic in ["a", "b", "c"] {
        let announcement = announcement(topic);
        let start = Start { sequence: 5, timestamp_ns: -1 };
        let channel = encoder.announce(&announcement, start, &mut bytes).expect("fits");
        frames.push(format!("{:?}", Frame::Announce { channel, start, announcement: Box::new(announcement) }));
    }
    let mut sequences = [5_u64; 3];
    for message in messages {
        sequences[message.channel] += message.step;
        let mut extensions = ExtensionsBuf::default();
        message.extensions.iter().for_each(|(id, bytes)| extensions.push(*id, bytes));
        let envelope = Envelope {
            channel: ChannelId(message.channel as u32 + 1),
            sequence: sequences[message.channel],
            timestamp_ns: message.timestamp_ns,
            kind: message.kind,
            key_hash: message.key.map(Id128),
            anchor: message.anchor,
            extensions: extensions.as_extensions(),
        };
        let at = bytes.len();
        encoder.data(&envelope, message.payload.len(), &mut bytes).expect("fits");
        assert_eq!(payload_offset(&bytes[at..]), Some(bytes.len() - at));
        bytes.extend_from_slice(&message.payload);
        frames.push(format!("{:?}", Frame::Data(envelope, &message.payload)));
    }
    (bytes, frames)
}

/// Feeds the decoder in pieces of the given sizes, over and over. With `short`, the decoder reads
/// small plain messages together.
fn decode_in_pieces(bytes: &[u8], pieces: &[usize], short: bool) -> Result<Vec<String>, FrameError> {
    let (mut decoder, mut frames, mut start, mut end) = (StreamDecoder::default(), Vec::new(), 0, 0);
    for piece in pieces.iter().cycle() {
        end = (end + piece).min(bytes.len());
        loop {
            if short {
                let mut messages = Vec::new();
                start += decoder.messages(&bytes[start..end], 3, 200, &mut messages);
                assert!(messages.len() <= 3 && messages.iter().all(|(_, payload)| payload.len() <= 200));
                let frame = |(envelope, payload)| format!("{:?}", Frame::Data(envelope, payload));
                frames.extend(messages.into_iter().map(frame));
            }
            match decoder.step(&bytes[start..end])? {
                Step::Need(need) => {
                    assert!(need > end - start);
                    break;
                }
                Step::Frame { frame, used } => {
                    frames.push(format!("{frame:?}"));
                    start += used;
                }
            }
        }
        if end == bytes.len() {
            break;
        }
    }
    assert_eq!(start, end, "nothing left over");
    Ok(frames)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn streams_read_back_in_any_pieces(messages in vec(message(), 0..12), pieces in vec(1..40_usize, 1..10)) {
        let (bytes, frames) = stream(&messages);
        for short in [false, true] {
            let decoded = decode_in_pieces(&bytes, &pieces, short);
            prop_assert_eq!(decoded.as_ref(), Ok(&frames));
        }
    }

    #[test]
    fn a_flipped_bit_never_panics(messages in vec(message(), 1..6), at in any::<Index>(), bit in 0..8_u8) {
        let (mut bytes, _) = stream(&messages);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let ends = [false, true].map(|short| {
            let (mut decoder, mut input) = (StreamDecoder::default(), &bytes[..]);
            loop {
                if short {
                    input = &input[decoder.messages(input, 3, 200, &mut Vec::new())..];
                }
                let Ok(Step::Frame { used, .. }) = decoder.step(input) else { break input.len() };
                assert!(used > 0 && used <= input.len());
                input = &input[used..];
            }
        });
        prop_assert_eq!(ends[0], ends[1]);
    }

    #[test]
    fn garbage_never_panics(bytes in vec(any::<u8>(), 0..200)) {
        let mut decoder = StreamDecoder::default();
        let mut hello = Vec::new();
        StreamEncoder::default().hello(&Hello { node: Id128::ZERO, incarnation: 0 }, &mut hello);
        prop_assert!(decoder.step(&hello).is_ok());
        let mut input = &bytes[..];
        while let Ok(Step::Frame { used, .. }) = decoder.step(input) {
            input = &input[used..];
        }
        let _ = payload_offset(&bytes);
        prop_assert!(DatagramDecoder::default().open(&bytes).is_err());
    }

    #[test]
    fn damaged_datagrams_are_refused(payload in vec(any::<u8>(), 0..100), at in any::<Index>(), bit in 0..8_u8) {
        let mut bytes = datagram(3, &payload);
        let decoded: Vec<_> = DatagramDecoder::default().open(&bytes).expect("whole").collect();
        prop_assert_eq!(decoded.len(), 2);
        prop_assert_eq!(&decoded[1], &Ok(Frame::Data(Envelope::data(ChannelId(1), 7, 8), &payload[..])));
        for len in 0..bytes.len() {
            prop_assert!(DatagramDecoder::default().open(&bytes[..len]).is_err());
        }
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(DatagramDecoder::default().open(&bytes).is_err());
    }
}

fn datagram(incarnation: u64, payload: &[u8]) -> Vec<u8> {
    let mut encoder = DatagramEncoder::new(Id128([4; 16]), incarnation, Limits::default());
    let (channel, mut bytes) = (encoder.open().expect("the first"), Vec::new());
    encoder.begin(&mut bytes);
    encoder.announce(channel, Start::default(), &announcement("a"), &mut bytes);
    encoder.data(&Envelope::data(channel, 7, 8), payload, &mut bytes).expect("fits");
    encoder.finish(&mut bytes);
    bytes
}

/// A decoder that has seen a hello and channel 1.
fn greeted(limits: Limits) -> (StreamDecoder, StreamEncoder) {
    let (mut encoder, mut bytes) = (StreamEncoder::default(), Vec::new());
    encoder.hello(&Hello { node: Id128::ZERO, incarnation: 1 }, &mut bytes);
    encoder.announce(&announcement("t"), Start::default(), &mut bytes).expect("fits");
    let mut decoder = StreamDecoder::new(limits);
    let mut input = &bytes[..];
    while let Step::Frame { used, .. } = decoder.step(input).expect("valid") {
        input = &input[used..];
    }
    (decoder, encoder)
}

#[test]
fn the_overhead_of_a_steady_stream_keeps_its_promise() {
    let (_, mut encoder) = greeted(Limits::default());
    for (payload, gap_ns, most) in
        [(1000, 1_000_000, 7), (1000, 17_000_000_000, 9), (2_000_000, 17_000_000_000, STEADY_OVERHEAD)]
    {
        let mut last = Start { sequence: 100, timestamp_ns: 1_800_000_000_000_000_000 };
        encoder.position(ChannelId(1), last, 0, &mut Vec::new()).expect("open");
        for _ in 0..10 {
            last = Start { sequence: last.sequence + 1, timestamp_ns: last.timestamp_ns + gap_ns };
            let mut out = Vec::new();
            encoder
                .data(&Envelope::data(ChannelId(1), last.sequence, last.timestamp_ns), payload, &mut out)
                .expect("fits");
            assert!(out.len() <= most, "{} bytes in front of {payload}", out.len());
        }
    }
}

#[test]
fn foreign_streams_are_refused_by_name() {
    let step = |bytes: &[u8]| StreamDecoder::default().step(bytes).err();
    let Some(http) = step(b"GET / HTTP/1.1\r\n") else { panic!("HTTP") };
    assert_eq!(http.to_string(), "not a Polywire peer: it begins with 'GET / ', so another program speaks there");
    assert!(matches!(step(b"\x16\x03\x01"), Some(FrameError::NotPolywire { .. })));
    assert!(matches!(step(&[0xFF, 0xFF]), Some(FrameError::NotPolywire { .. })));
    let mut hello = Vec::new();
    StreamEncoder::default().hello(&Hello { node: Id128::ZERO, incarnation: 0 }, &mut hello);
    for len in 0..hello.len() {
        assert!(matches!(StreamDecoder::default().step(&hello[..len]), Ok(Step::Need(_))), "{len}");
    }
    hello[6] = 2;
    assert_eq!(step(&hello), Some(FrameError::UnsupportedVersion { got: 2, supported: 1 }));
}

#[test]
fn what_a_version_does_not_know_is_refused_by_name() {
    let cases: [(&[u8], FrameError); 18] = [
        (&[0], FrameError::Empty),
        (&[1, 0x2A], FrameError::UnknownFrame { head: 0x2A }),
        (&[3, 0x87, 1, 0], FrameError::UnknownKind { number: 7 }),
        (&[3, 0x80, 2, 0], FrameError::UnknownChannel(ChannelId(2))),
        (&[3, 0x03, 1, 9], FrameError::UnknownAnswer { number: 9 }),
        (&[2, 0x04, 9], FrameError::UnknownChannel(ChannelId(9))),
        (&[1, 0x45], FrameError::UnknownFrame { head: 0x45 }),
        (&[3, 0x43, 1, 21], FrameError::Extension { offset: 2 }),
        (&[5, 0x03, 1, 0, 7, 0], FrameError::UnknownExtension { id: 7 }),
        (&[6, 0x03, 1, 0, 2, 1, 0], FrameError::Number { field: "count of subscribers", offset: 3 }),
        (&[7, 0x03, 1, 0, 2, 2, 0x80, 0], FrameError::Number { field: "count of subscribers", offset: 3 }),
        (&[4, 0x03, 1, 1, 2], FrameError::Extension { offset: 3 }),
        (&[2, 0x08, 0], FrameError::Trailing { offset: 1, left: 1 }),
        (&[2, 0x80, 1], FrameError::Truncated { field: "time stamp", offset: 2 }),
        (&[5, 0x80, 1, 0x80, 0x80, 0], FrameError::Number { field: "time stamp", offset: 2 }),
        (&[5, 0xC0, 1, 0, 1, 5], FrameError::Extension { offset: 4 }),
        (&[5, 0x03, 1, 2, 1, 0xFF], FrameError::Text { field: "reason", offset: 4 }),
        (&[0xFF, 0xFF, 0xFF, 0xFF, 0x7F], FrameError::TooLong { what: "frame", got: 0x7_FFFF_FFFF, limit: 64 << 20 }),
    ];
    for (bytes, expected) in cases {
        let (mut decoder, _) = greeted(Limits::default());
        assert_eq!(decoder.step(bytes), Err(expected), "{bytes:02x?}");
    }
}

#[test]
fn ids_are_unique_and_sequence_numbers_never_decrease() {
    let (mut decoder, mut encoder) = greeted(Limits::default());
    let mut bytes = Vec::new();
    encoder.retire(ChannelId(1), &mut bytes).expect("open");
    assert!(matches!(decoder.step(&bytes), Ok(Step::Frame { .. })));
    assert_eq!(decoder.step(&[3, 0x80, 1, 0]), Err(FrameError::UnknownChannel(ChannelId(1))));
    let again = StreamEncoder::default().announce(&announcement("t"), Start::default(), &mut Vec::new());
    assert_eq!(again, Ok(ChannelId(1)));
    let mut reused = Vec::new();
    StreamEncoder::default().announce(&announcement("t"), Start::default(), &mut reused).expect("fits");
    let expected = FrameError::ChannelOrder { got: ChannelId(1), expected: ChannelId(2) };
    assert_eq!(decoder.step(&reused), Err(expected));

    let (mut decoder, mut encoder) = greeted(Limits::default());
    encoder.data(&Envelope::data(ChannelId(1), 4, 0), 0, &mut Vec::new()).expect("ascends");
    let refused = encoder.data(&Envelope::data(ChannelId(1), 4, 0), 0, &mut Vec::new());
    assert_eq!(refused, Err(FrameError::Sequence { channel: ChannelId(1), last: 4, got: 4 }));
    let beyond = [&[13, 0x88, 1][..], &[0xFF; 9], &[1, 0]].concat();
    assert!(matches!(decoder.step(&beyond), Err(FrameError::Sequence { .. })));
}

#[test]
fn limits_hold() {
    let limits =
        Limits { frame_bytes: 100, channels: 1, announcement_bytes: 100, document_bytes: 8, ..Limits::default() };
    let (mut decoder, encoder) = greeted(limits);
    assert!(matches!(decoder.step(&[101]), Err(FrameError::TooLong { what: "frame", got: 101, limit: 100 })));
    let mut out = Vec::new();
    encoder.control(&Frame::Document { document: Id128::ZERO, bytes: Some(&[0; 9]) }, &mut out);
    assert_eq!(decoder.step(&out), Err(FrameError::TooLong { what: "document", got: 9, limit: 8 }));
    let mut second = Vec::new();
    let mut other = greeted(Limits::default()).1;
    other.announce(&announcement("t"), Start::default(), &mut second).expect("fits");
    assert_eq!(decoder.step(&second), Err(FrameError::TooManyChannels { limit: 1 }));
    let long = announcement(&"x".repeat(100));
    assert!(matches!(
        StreamEncoder::new(limits).announce(&long, Start::default(), &mut out),
        Err(FrameError::TooLong { .. })
    ));
}

#[test]
fn every_control_frame_reads_back() {
    let (mut decoder, encoder) = greeted(Limits::default());
    let frames = [
        Frame::Answer { channel: ChannelId(300), answer: Answer::Decline },
        Frame::Answer { channel: ChannelId(1), answer: Answer::Partial(1, "one of two".into()) },
        Frame::Answer { channel: ChannelId(1), answer: Answer::Partial(300, "some of them".into()) },
        Frame::Answer { channel: ChannelId(1), answer: Answer::Accept(1) },
        Frame::Answer { channel: ChannelId(1), answer: Answer::Accept(u32::MAX) },
        Frame::Answer { channel: ChannelId(1), answer: Answer::Renew(2) },
        Frame::Want { document: Id128([1; 16]) },
        Frame::Document { document: Id128([2; 16]), bytes: Some(b"doc") },
        Frame::Document { document: Id128([2; 16]), bytes: None },
        Frame::Heartbeat,
        Frame::Bye,
        Frame::Taken { messages: u64::MAX },
        Frame::Lease { milliseconds: u64::MAX },
        Frame::Relay,
    ];
    for frame in frames {
        let mut out = Vec::new();
        encoder.control(&frame, &mut out);
        for len in 0..out.len() {
            assert!(matches!(decoder.step(&out[..len]), Ok(Step::Need(_))));
        }
        assert_eq!(decoder.step(&out), Ok(Step::Frame { frame, used: out.len() }));
    }
}

#[test]
fn what_a_later_version_may_add_is_passed_over() {
    let (mut decoder, _) = greeted(Limits::default());
    let frame = Frame::Unknown { head: 0x44 };
    assert_eq!(decoder.step(&[3, 0x44, 9, 9]), Ok(Step::Frame { frame, used: 4 }));
    // An answer with an extension that nobody knows yet, after the one that is known.
    let frame = Frame::Answer { channel: ChannelId(1), answer: Answer::Accept(3) };
    let bytes = [9, 0x03, 1, 0, 2, 1, 3, 8, 1, 0xFF];
    assert_eq!(decoder.step(&bytes), Ok(Step::Frame { frame, used: bytes.len() }));
}

#[test]
fn datagrams_of_an_earlier_incarnation_are_refused() {
    let mut decoder = DatagramDecoder::default();
    let (old, new) = (datagram(5, b"x"), datagram(6, b"x"));
    assert!(decoder.open(&old).expect("the first").restarted);
    assert!(!decoder.open(&old).expect("the same").restarted);
    assert!(decoder.open(&new).expect("newer").restarted);
    assert_eq!(decoder.open(&old).err(), Some(FrameError::Incarnation { expected: 6, got: 5 }));
}

#[test]
fn unknown_extensions_are_told_apart() {
    let mut extensions = ExtensionsBuf::default();
    extensions.push(2, b"may be ignored");
    assert_eq!(extensions.as_extensions().not_understood(&[]), None);
    extensions.push(3, b"must not");
    assert_eq!(extensions.as_extensions().not_understood(&[]), Some(3));
    assert_eq!(extensions.as_extensions().not_understood(&[3]), None);
}
