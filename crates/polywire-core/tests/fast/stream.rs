//! Delta streams over a lossy link, in virtual time, with losses, repeats, reordering, damage,
//! restarts and late joiners. A reader gets no wrong value, and in anchored mode it gets every
//! intact message whose key frame it has.
//!
//! `POLYWIRE_TEST_SEEDS=100 cargo test --release -p polywire-core --test fast stream:: --
//! --nocapture` runs a hundred times as many seeds as the usual ten thousand, and prints the table.
#![cfg(feature = "std")]

use polywire_testing::seeds;
use std::collections::{BTreeMap, BTreeSet};

use polywire_core::{
    codec::{
        self, Decoder, Encoder, Options,
        fast::FAST,
        stateful::{Mode, StatefulError, StatefulReader, StatefulWriter},
    },
    envelope::{ChannelId, Envelope, Id128},
    frame::{DatagramDecoder, DatagramEncoder, Frame, Limits},
    netsim::{Duplex, Model},
    program::Backend,
    schema::arbitrary::Random,
};
use polywire_derive::Message;

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Level {
    price: f64,
    size: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Book {
    symbol: String,
    number: u64,
    last: f64,
    traded: i64,
    halted: bool,
    levels: Vec<Level>,
}

impl Book {
    fn new() -> Book {
        let levels = (0..4).map(|i| Level { price: 100.0 + f64::from(i), size: 10 }).collect();
        Book { symbol: "POLYWIRE".into(), last: 100.25, levels, ..Book::default() }
    }

    fn walk(&mut self, random: &mut Random) {
        self.number += 1;
        self.traded += random.below(500) as i64;
        self.last += (random.below(9) as f64 - 4.0) / 4.0;
        self.halted ^= random.one_in(50);
        if random.one_in(20) {
            self.symbol = ["POLYWIRE", "POLY", ""][random.below(3)].into();
        }
        let level = random.below(4);
        if let Some(level) = self.levels.get_mut(level) {
            level.price += 0.25;
            level.size = random.below(1000) as u32;
        }
        if random.one_in(10) {
            self.levels.truncate(2);
        } else if self.levels.len() < 4 {
            self.levels.push(Level { price: self.last, size: 1 });
        }
    }
}

const MILLISECOND: u64 = 1_000_000;
const MESSAGES: u64 = 60;
/// From one message to the next.
const GAP: u64 = 10 * MILLISECOND;
/// Messages from one key frame to the next.
const KEYS: u64 = 20;
const CHANNEL: ChannelId = ChannelId(1);

/// What everybody needs, made once.
struct Codecs {
    encoder: Encoder<Book>,
    decoder: Decoder<Book>,
    cdr: Encoder<Book>,
}

impl Codecs {
    fn new() -> Codecs {
        let options = Options::default();
        let encoder = Encoder::with_backend(&FAST, &options, Backend::Auto).unwrap();
        let decoder = Decoder::with_backend(&FAST, &options, encoder.schema(), Backend::Auto).unwrap();
        Codecs { encoder, decoder, cdr: Encoder::new(codec::find("cdr").unwrap(), &options).unwrap() }
    }
}

/// A writing node; it restarts now and then.
struct Writer {
    frames: DatagramEncoder,
    stream: StatefulWriter,
    incarnation: u64,
    sequence: u64,
    /// No key frame is sent on request before this.
    answers_from: u64,
}

impl Writer {
    fn new(codecs: &Codecs, mode: Mode, incarnation: u64) -> Writer {
        let stream = StatefulWriter::new(codecs.encoder.state().unwrap(), mode, KEYS);
        let frames = DatagramEncoder::new(Id128([1; 16]), incarnation, Limits::default());
        Writer { frames, stream, incarnation, sequence: 0, answers_from: 0 }
    }

    /// A datagram with the value, and the bytes of its payload.
    fn write(&mut self, codecs: &Codecs, book: &Book) -> (Vec<u8>, usize) {
        self.sequence += 1;
        let mut payload = Vec::new();
        let encode = |state: &mut _, keep| codecs.encoder.encode_with(state, keep, book, &mut payload);
        let anchor = self.stream.write(self.sequence, encode).unwrap();
        let envelope = Envelope { anchor, ..Envelope::data(CHANNEL, self.sequence, 0) };
        let mut datagram = Vec::new();
        self.frames.begin(&mut datagram);
        self.frames.data(&envelope, &payload, &mut datagram).unwrap();
        self.frames.finish(&mut datagram);
        (datagram, payload.len())
    }

    /// Requests are answered by one key frame for all of them, not more often than each 50 ms.
    fn asked(&mut self, now: u64) {
        if now >= self.answers_from {
            self.stream.request_key_frame();
            self.answers_from = now + 50 * MILLISECOND;
        }
    }
}

/// A reading node.
struct Reader {
    frames: DatagramDecoder,
    stream: StatefulReader,
    incarnation: u64,
    /// Key frames it has read in this incarnation.
    keys: Vec<u64>,
    book: Book,
    asked_until: u64,
}

/// The outcome of a datagram.
enum Outcome {
    /// A value: of which incarnation and sequence number.
    Value(u64, u64),
    /// Nothing: it was damaged, old, or refers to a message that is missing.
    Nothing,
}

impl Reader {
    fn new(codecs: &Codecs) -> Reader {
        let stream = StatefulReader::new(codecs.decoder.state().unwrap());
        let (frames, book) = (DatagramDecoder::default(), Book::default());
        Reader { frames, stream, incarnation: 0, keys: Vec::new(), book, asked_until: 0 }
    }

    fn read(&mut self, codecs: &Codecs, packet: &[u8]) -> Outcome {
        let Ok(datagram) = self.frames.open(packet) else { return Outcome::Nothing };
        if datagram.restarted {
            self.stream = StatefulReader::new(codecs.decoder.state().unwrap());
            self.keys.clear();
        }
        self.incarnation = datagram.incarnation;
        let mut outcome = Outcome::Nothing;
        for frame in datagram {
            let Frame::Data(envelope, payload) = frame.unwrap() else { panic!("only data was sent") };
            let book = &mut self.book;
            let decode = |state: &mut _, keep| codecs.decoder.decode_with(state, keep, payload, book);
            let (sequence, anchor) = (envelope.sequence, envelope.anchor);
            let read = self.stream.read(sequence, anchor, decode);
            let has_key = anchor.is_some_and(|anchor| anchor == sequence || self.keys.contains(&anchor));
            match read {
                Ok(_) => outcome = Outcome::Value(self.incarnation, sequence),
                Err(StatefulError::Decode(error)) => panic!("message {sequence} came whole: {error}"),
                Err(error) => assert!(!has_key, "message {sequence} refers to {anchor:?}, which is here: {error}"),
            }
            if anchor == Some(sequence) {
                self.keys.retain(|key| *key != sequence);
                self.keys.push(sequence);
                self.keys.sort_unstable();
                // As many as a reader promises to keep.
                let surplus = self.keys.len().saturating_sub(4);
                self.keys.drain(..surplus);
            }
        }
        outcome
    }
}

/// The same messages as CDR, over a link of their own with the same chances.
struct Plain {
    link: Duplex,
    writer: DatagramEncoder,
    reader: DatagramDecoder,
    came: BTreeSet<u64>,
}

impl Plain {
    fn new(model: &Model, seed: u64) -> Plain {
        let writer = DatagramEncoder::new(Id128([1; 16]), 1, Limits::default());
        Plain { link: Duplex::new(model, seed), writer, reader: DatagramDecoder::default(), came: BTreeSet::new() }
    }

    /// Sends a message, and returns its size in bytes.
    fn write(&mut self, codecs: &Codecs, now: u64, book: &Book) -> usize {
        let (mut payload, mut datagram) = (Vec::new(), Vec::new());
        codecs.cdr.encode(book, &mut payload).unwrap();
        self.writer.begin(&mut datagram);
        self.writer.data(&Envelope::data(CHANNEL, book.number, 0), &payload, &mut datagram).unwrap();
        self.writer.finish(&mut datagram);
        self.link.there.push(now, datagram);
        payload.len()
    }

    /// Reads the intact datagrams that have arrived and were sent at `from` or later.
    fn read(&mut self, now: u64, from: u64) {
        while let Some(arrival) = self.link.there.pop(now) {
            let Ok(datagram) = self.reader.open(&arrival.packet) else { continue };
            for frame in datagram.filter(|_| arrival.sent_at >= from) {
                let Frame::Data(envelope, _) = frame.unwrap() else { panic!("only data was sent") };
                self.came.insert(envelope.sequence);
            }
        }
    }
}

/// Sums over many runs.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    published: u64,
    delivered: u64,
    bytes: u64,
    /// As CDR.
    cdr_delivered: u64,
    cdr_bytes: u64,
}

/// Runs a writer and a reader that joins late over a link, and checks all that the reader gets.
fn run(codecs: &Codecs, model: &Model, mode: Mode, seed: u64, totals: &mut Totals) {
    let mut random = Random::new(seed);
    let mut link = Duplex::new(model, seed);
    let (joins, restarts) = (random.below(10) as u64, random.one_in(3).then(|| 10 + random.below(40) as u64));
    let (mut writer, mut reader) = (Writer::new(codecs, mode, 1), Reader::new(codecs));
    let (mut book, mut published, mut plain) = (Book::new(), BTreeMap::new(), Plain::new(model, seed));
    for tick in 0..MESSAGES + 20 {
        let now = tick * GAP;
        if restarts == Some(tick) {
            writer = Writer::new(codecs, mode, 2);
        }
        if tick < MESSAGES {
            book.walk(&mut random);
            let (datagram, payload) = writer.write(codecs, &book);
            let as_cdr = plain.write(codecs, now, &book);
            published.insert((writer.incarnation, writer.sequence), book.clone());
            link.there.push(now, datagram);
            if tick >= joins {
                totals.published += 1;
                totals.bytes += payload as u64;
                totals.cdr_bytes += as_cdr as u64;
            }
        }
        plain.read(now, joins * GAP);
        while let Some(arrival) = link.there.pop(now) {
            if arrival.sent_at < joins * GAP {
                continue;
            }
            if let Outcome::Value(incarnation, sequence) = reader.read(codecs, &arrival.packet) {
                assert_eq!(reader.book, published[&(incarnation, sequence)], "seed {seed}: a wrong value");
                totals.delivered += 1;
            }
            if reader.stream.needs_key_frame() && arrival.at >= reader.asked_until {
                link.back.push(now, vec![1]);
                reader.asked_until = now + 30 * MILLISECOND;
            }
        }
        while link.back.pop(now).is_some() {
            writer.asked(now);
        }
    }
    totals.cdr_delivered += plain.came.len() as u64;
}

/// What a stream has to live with.
const LINKS: &[&str] = &[
    "lossy-30",
    "wan-high,corrupt=2%",
    "delay=20ms,jitter=uniform:20ms,reorder=10%,duplicate=20%,loss=10%",
    // A queue that drops: a third of the packets does not fit.
    "rate=30kbit,queue=1kB,delay=5ms",
    "delay=15ms,loss=2%,down=150ms..350ms",
];

#[test]
fn no_reader_ever_gets_a_wrong_value() {
    let codecs = Codecs::new();
    let mut table: BTreeMap<(&str, &str), Totals> = BTreeMap::new();
    for seed in seeds(10_000) {
        let text = LINKS[seed as usize % LINKS.len()];
        let model: Model = text.parse().unwrap();
        run(&codecs, &model, Mode::Anchored, seed, table.entry((text, "anchored")).or_default());
        // A chain on such a link is what the anchors are for: it delivers little, but nothing
        // wrong.
        if seed % 4 == 0 {
            run(&codecs, &model, Mode::Chained, seed, table.entry((text, "chained")).or_default());
        }
    }
    println!("{:<70} {:<9} {:>9} {:>6} {:>10} {:>6}", "link", "mode", "delivered", "cdr", "bytes each", "cdr");
    for ((link, mode), Totals { published, delivered, bytes, cdr_delivered, cdr_bytes }) in &table {
        let [part, plain] = [delivered, cdr_delivered].map(|count| 100.0 * *count as f64 / *published as f64);
        let [each, as_cdr] = [bytes, cdr_bytes].map(|bytes| *bytes as f64 / *published as f64);
        println!("{link:<70} {mode:<9} {part:>8.1}% {plain:>5.1}% {each:>10.1} {as_cdr:>6.1}");
    }
    for link in LINKS {
        let (anchored, chained) = (table[&(*link, "anchored")], table.get(&(*link, "chained")));
        assert!(anchored.bytes * 2 < anchored.cdr_bytes, "{link}: deltas pay: {anchored:?}");
        let part = |totals: &Totals| totals.delivered as f64 / totals.published as f64;
        if let Some(chained) = chained.filter(|chained| chained.published > 10_000) {
            assert!(part(&anchored) > part(chained), "{link}: {anchored:?} {chained:?}");
        }
    }
}

#[test]
fn a_chain_on_a_reliable_link_delivers_everything() {
    let codecs = Codecs::new();
    let model: Model = "rate=8mbit,delay=5ms".parse().unwrap();
    let mut totals = Totals::default();
    for seed in 0..200 {
        run(&codecs, &model, Mode::Chained, seed, &mut totals);
    }
    // Who joins late waits for a key frame, which it asks for.
    assert!(totals.delivered as f64 > 0.9 * totals.published as f64, "{totals:?}");
    let (mut writer, mut reader) = (Writer::new(&codecs, Mode::Chained, 1), Reader::new(&codecs));
    let (mut random, mut book) = (Random::new(1), Book::new());
    for _ in 0..500 {
        book.walk(&mut random);
        let (datagram, _) = writer.write(&codecs, &book);
        let Outcome::Value(..) = reader.read(&codecs, &datagram) else { panic!("nothing was lost") };
        assert_eq!(reader.book, book);
    }
}
