//! A recording's messages as a topic over links that lose, in virtual time.

use anyhow::Context as _;
use polywire::{
    Record,
    codec::{
        DynDecoder, DynEncoder, find,
        stream::{Mode, StreamReader, StreamWriter},
    },
    envelope::{ChannelId, Envelope, Id128},
    frame::{DatagramDecoder, DatagramEncoder, Frame, Limits},
};
use polywire_instrument::netsim::Duplex;
use serde::Serialize;

use super::{NamedLink, formats::ends};
use crate::fast::codec::Codec;

const CHANNEL: ChannelId = ChannelId(1);
const SECOND: u64 = 1_000_000_000;
/// Requests for key frames are made and answered no more often than that.
const PAUSE: u64 = SECOND / 20;
/// The run's chances.
const SEED: u64 = 1;

/// What became of the messages on a link.
#[derive(Debug, Serialize)]
pub struct LinkFigures {
    pub link: String,
    pub wire: &'static str,
    pub sent: usize,
    pub delivered: usize,
    /// Delivered with another value than was sent; or what came whole could not be read.
    pub wrong: usize,
    /// Of a message, on average, without what frames it.
    pub bytes: f64,
}

/// Everything that the runs share.
pub struct Links {
    fast: (DynEncoder, DynDecoder),
    plain: (DynEncoder, DynDecoder),
    key: u64,
    gap: u64,
}

impl Links {
    pub fn new(codec: &Codec, key: u64, rate: u32) -> anyhow::Result<Links> {
        let plain = ends(find("cdr").context("it is in the table")?, codec.record().shape())?;
        Ok(Links { fast: codec.ends(), plain, key, gap: SECOND / u64::from(rate) })
    }

    /// Sends the messages over a link: as a chain, with anchors, as plain CDR.
    pub fn over(&self, link: &NamedLink, messages: &[&Record]) -> anyhow::Result<[LinkFigures; 3]> {
        Ok([
            self.run(link, "fast:mode=chained", Some(Mode::Chained), messages)?,
            self.run(link, "fast:mode=anchored", Some(Mode::Anchored), messages)?,
            self.run(link, "cdr", None, messages)?,
        ])
    }

    fn run(
        &self,
        NamedLink { name, model }: &NamedLink,
        wire: &'static str,
        mode: Option<Mode>,
        messages: &[&Record],
    ) -> anyhow::Result<LinkFigures> {
        let (encoder, decoder) = if mode.is_some() { &self.fast } else { &self.plain };
        let state = || encoder.state().zip(decoder.state()).context("FAST keeps a state");
        let mut stream = match mode {
            Some(mode) => {
                let (writing, reading) = state()?;
                Some((StreamWriter::new(writing, mode, self.key), StreamReader::new(reading)))
            }
            None => None,
        };
        let mut frames = (DatagramEncoder::new(Id128([1; 16]), 1, Limits::default()), DatagramDecoder::default());
        let mut link = Duplex::new(model, SEED);
        let (mut asks_from, mut answers_from) = (0, 0);
        let mut back = messages.first().map(|first| Record::new(first.shape())).context("there are messages")?;
        let (mut bytes, mut delivered, mut wrong) = (0, 0, 0);
        let mut came = vec![false; messages.len()];
        let (mut now, mut next) = (0, 0);
        while next < messages.len() || link.next().is_some() {
            if let Some(message) = messages.get(next) {
                next += 1;
                let mut payload = Vec::new();
                let anchor = match &mut stream {
                    Some((writer, _)) => writer
                        .write(next as u64, |state, keep| encoder.encode_with(state, keep, message, &mut payload))?,
                    None => {
                        encoder.encode(message, &mut payload)?;
                        None
                    }
                };
                bytes += payload.len();
                let envelope = Envelope { anchor, ..Envelope::data(CHANNEL, next as u64, 0) };
                let mut datagram = Vec::new();
                frames.0.begin(&mut datagram);
                frames.0.data(&envelope, &payload, &mut datagram)?;
                frames.0.finish(&mut datagram);
                link.there.push(now, datagram);
                now += self.gap;
            } else {
                now = now.max(link.next().unwrap_or(now));
            }
            while let Some(arrival) = link.there.pop(now) {
                // What was damaged on its way is known by its checksum.
                let Ok(datagram) = frames.1.open(&arrival.packet) else { continue };
                for frame in datagram {
                    let Ok(Frame::Data(envelope, payload)) = frame else { continue };
                    let read = match &mut stream {
                        Some((_, reader)) => {
                            let decode = |state: &mut _, keep| decoder.decode_with(state, keep, payload, &mut back);
                            match reader.read(envelope.sequence, envelope.anchor, decode) {
                                Err(polywire::codec::stream::StreamError::Decode(_)) => Some(false),
                                read => read.ok().map(|_| true),
                            }
                        }
                        None => Some(decoder.decode(payload, &mut back).is_ok()),
                    };
                    let Some(is_read) = read else { continue };
                    let at = envelope.sequence as usize - 1;
                    let is_right = is_read && messages.get(at).is_some_and(|sent| **sent == back);
                    wrong += usize::from(!is_right);
                    // What comes twice is delivered once.
                    delivered += usize::from(!std::mem::replace(&mut came[at], true) && is_right);
                }
                let wants_key = stream.as_ref().is_some_and(|(_, reader)| reader.wants_key());
                if wants_key && arrival.at >= asks_from {
                    link.back.push(now, vec![1]);
                    asks_from = arrival.at + PAUSE;
                }
            }
            while link.back.pop(now).is_some() {
                if let Some((writer, _)) = stream.as_mut().filter(|_| now >= answers_from) {
                    writer.ask_for_key();
                    answers_from = now + PAUSE;
                }
            }
        }
        let bytes = bytes as f64 / messages.len() as f64;
        Ok(LinkFigures { link: name.clone(), wire, sent: messages.len(), delivered, wrong, bytes })
    }
}
