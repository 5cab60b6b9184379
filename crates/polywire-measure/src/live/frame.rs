//! The frames that `raw` sends over bare sockets and `bus` over other libraries: a header and an
//! encoded message. Encodes and decodes only; it does not touch sockets.

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use polywire::{Record, Shape};

use super::{
    receivers::{Arrivals, Ended, Receivers, Traffic, note},
    setup::{Setup, shapes},
};
use crate::{
    coding::{Coding, Reading, Wire, Writing},
    subject::Subject,
};

/// Size of the header, in bytes. It contains, in this order: the payload's length; the number of
/// the subscriber that sends the frame, 0 for the sender; the writer's sequence number; the
/// sequence number that the message refers to, or 0; the sequence number of the message that the
/// frame echoes, or 0.
pub const HEAD: usize = 32;

const FROM: usize = 4;
const SEQUENCE: usize = 8;
const ANCHOR: usize = 16;
const ECHOED: usize = 24;

/// Maximum bytes of a payload.
const LARGEST: usize = 64 << 20;

/// The payload's length from the header; `None` if it is too large.
pub fn payload_length(head: &[u8; HEAD]) -> Option<usize> {
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    (length <= LARGEST).then_some(length)
}

/// The sender, which writes messages and reads echoes.
pub struct Sender {
    writer: Writer,
    reader: Reader,
}

impl Sender {
    /// A sender of the case. It reads echoes in the readers' version of the type.
    pub fn new(setup: &Setup, subject: &Subject) -> Result<Sender, String> {
        let Subject { shape, reader, .. } = subject;
        let writer = Writer::new(coding(setup, shape, reader)?, 0);
        Ok(Sender { writer, reader: Reader::new(coding(setup, reader, reader)?, reader, setup.subscribers) })
    }

    /// Encodes a message as a frame.
    pub fn write(&mut self, record: &Record) -> Result<&[u8], String> {
        self.writer.write(record, 0)
    }

    /// Reads a frame; true if it is an echo of the message that was written last.
    pub fn is_echo(&mut self, frame: &[u8]) -> Result<bool, String> {
        let echoed = self.reader.read(frame)?.echoed;
        Ok(echoed == self.writer.writing.sequence())
    }
}

/// A subscriber, which reads messages and writes echoes.
pub struct Receiver {
    reader: Reader,
    writer: Writer,
    echo: bool,
    list: Arrivals,
    traffic: Arc<Traffic>,
    ended: Arc<AtomicBool>,
}

impl Receiver {
    /// The subscribers of a setup, in the order of their numbers, and their shared results.
    pub fn all(setup: &Setup) -> Result<(Vec<Receiver>, Receivers), String> {
        let (writer, reader) = shapes(setup)?;
        let (ended, traffic) = (Ended::default(), Arc::<Traffic>::default());
        let one = |number: u32| -> Result<Receiver, String> {
            Ok(Receiver {
                reader: Reader::new(coding(setup, &writer, &reader)?, &reader, 1),
                writer: Writer::new(coding(setup, &reader, &reader)?, number),
                echo: setup.echo,
                list: Arrivals::default(),
                traffic: traffic.clone(),
                ended: ended.flag(),
            })
        };
        let all: Vec<Receiver> = (0..setup.subscribers as u32).map(one).collect::<Result<_, _>>()?;
        let arrivals = all.iter().map(|receiver| receiver.list.clone()).collect();
        Ok((all, Receivers { arrivals, traffic, _held: vec![Box::new(ended)] }))
    }

    /// True when the case is over.
    pub fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Reads a frame. Returns its echo if the setup asks for echoes, and otherwise records the
    /// arrival. Ignores an unreadable frame, which then counts as lost.
    pub fn take(&mut self, frame: &[u8]) -> Option<&[u8]> {
        let sequence = self.reader.read(frame).ok()?.sequence;
        self.traffic.add(frame.len() - HEAD);
        if !self.echo {
            note(&self.list, sequence);
            return None;
        }
        self.writer.write(&self.reader.record, sequence).ok()
    }
}

fn coding(setup: &Setup, writer: &Arc<Shape>, reader: &Arc<Shape>) -> Result<Coding, String> {
    let folder = env::current_dir().unwrap_or_default();
    let Setup { codec, compressor, templates, .. } = setup;
    let wire = Wire { codec, compressor, templates: templates.as_deref(), folder: &folder };
    Coding::new(&wire, writer, reader).map_err(|error| error.to_string())
}

struct Writer {
    coding: Coding,
    writing: Writing,
    from: u32,
    message: Vec<u8>,
    frame: Vec<u8>,
}

impl Writer {
    fn new(coding: Coding, from: u32) -> Writer {
        let writing = coding.writing();
        Writer { coding, writing, from, message: Vec::new(), frame: Vec::new() }
    }

    fn write(&mut self, record: &Record, echoed: u64) -> Result<&[u8], String> {
        self.message.clear();
        let anchor = self.coding.encode(&mut self.writing, record, &mut self.message).map_err(|e| e.to_string())?;
        self.frame.clear();
        self.frame.resize(HEAD, 0);
        self.coding.pack(&self.message, &mut self.frame);
        let length = u32::try_from(self.frame.len() - HEAD).map_err(|_| "the message is too large".to_owned())?;
        self.frame[..FROM].copy_from_slice(&length.to_le_bytes());
        self.frame[FROM..SEQUENCE].copy_from_slice(&self.from.to_le_bytes());
        self.frame[SEQUENCE..ANCHOR].copy_from_slice(&self.writing.sequence().to_le_bytes());
        self.frame[ANCHOR..ECHOED].copy_from_slice(&anchor.unwrap_or(0).to_le_bytes());
        self.frame[ECHOED..HEAD].copy_from_slice(&echoed.to_le_bytes());
        Ok(&self.frame)
    }
}

struct Reader {
    coding: Coding,
    /// One per writer, because a writer's messages may refer to each other.
    readings: Vec<Reading>,
    message: Vec<u8>,
    record: Record,
}

/// Numbers of a frame that was read.
struct Numbers {
    sequence: u64,
    echoed: u64,
}

impl Reader {
    fn new(coding: Coding, shape: &Arc<Shape>, writers: usize) -> Reader {
        let readings = vec![coding.reading(); writers];
        Reader { coding, readings, message: Vec::new(), record: Record::new(shape) }
    }

    fn read(&mut self, frame: &[u8]) -> Result<Numbers, String> {
        let (head, payload) = frame.split_first_chunk::<HEAD>().ok_or("a frame is too short")?;
        let number = |at: usize| head.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
        let from = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let reading = self.readings.get_mut(from as usize).ok_or("a frame has the number of no subscriber")?;
        let (sequence, anchor) = (number(SEQUENCE), number(ANCHOR));
        let bytes = self.coding.unpack(payload).map_err(|error| error.to_string())?;
        self.message.clear();
        self.message.extend_from_slice(bytes);
        let anchor = (anchor != 0).then_some(anchor);
        self.coding
            .decode(reading, sequence, anchor, &self.message, &mut self.record)
            .map_err(|error| error.to_string())?;
        Ok(Numbers { sequence, echoed: number(ECHOED) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scenario, values::ValueModel};

    /// Both ends of a case with two subscribers, and its values.
    fn ends(codec: &str) -> (Sender, Vec<Receiver>, Receivers, Vec<Record>) {
        let text = format!("name = 'x'\n[[type]]\ncodecs_test = [10]\n[axes]\ncodec = ['{codec}']\nsubscribers = [2]");
        let scenario = Scenario::from_toml(&text).expect("valid");
        let case = &scenario.cases().expect("one")[0];
        let subject = Subject::of(&scenario, case).expect("a type");
        let setup = Setup::of(&scenario, case, &subject).expect("a setup");
        let values = ValueModel::parse("walking").expect("a model");
        let records = values.records(&subject.shape, 20, 1, &Default::default(), &scenario.folder).expect("values");
        let (receivers, told) = Receiver::all(&Setup { echo: true, ..setup.clone() }).expect("receivers");
        (Sender::new(&setup, &subject).expect("a sender"), receivers, told, records)
    }

    #[test]
    fn echoes_are_told_from_those_of_other_messages_though_some_were_lost() {
        for codec in ["cdr", "fast", "fast@anchored"] {
            let (mut sender, mut receivers, _told, records) = ends(codec);
            let mut late = None;
            for (i, record) in records.iter().enumerate() {
                let frame = sender.write(record).expect("a frame").to_vec();
                // The second subscriber loses every third message, so it sends fewer echoes.
                let hears = if i % 3 == 1 { 1 } else { 2 };
                for receiver in &mut receivers[..hears] {
                    let echo = receiver.take(&frame).expect("an echo").to_vec();
                    assert_eq!(sender.is_echo(&echo), Ok(true), "{codec}, message {i}");
                    late = late.or(Some(echo));
                }
            }
            let late = late.filter(|_| codec == "cdr").map(|late| sender.is_echo(&late));
            assert!(late.is_none_or(|late| late == Ok(false)), "{codec}");
        }
    }

    #[test]
    fn each_subscriber_has_a_stream_of_its_own() {
        let (mut sender, mut receivers, _told, records) = ends("fast@chained");
        for record in &records {
            let frame = sender.write(record).expect("a frame").to_vec();
            for receiver in &mut receivers {
                let echo = receiver.take(&frame).expect("an echo").to_vec();
                assert_eq!(sender.is_echo(&echo), Ok(true));
                assert_eq!(receiver.reader.record, *record);
            }
        }
    }

    #[test]
    fn frames_that_are_none_are_refused() {
        let (mut sender, mut receivers, _told, records) = ends("cdr");
        let frame = sender.write(&records[0]).expect("a frame").to_vec();
        let mut from_nobody = receivers[1].take(&frame).expect("an echo").to_vec();
        from_nobody[FROM] = 9;
        for wrong in [&frame[..HEAD - 1], &frame[..HEAD + 1], &from_nobody, &[]] {
            assert!(sender.is_echo(wrong).is_err());
        }
        assert!(receivers[0].take(&frame[..HEAD + 1]).is_none());
        assert_eq!(payload_length(&[255; HEAD]), None);
    }
}
