//! Reads files of bare payloads. Each payload is a message of one codec; a framing, or the message
//! itself, shows where it ends.

use std::sync::Arc;

use polywire::{
    Record, Schema, Shape,
    codec::Decoder,
    extend::{
        envelope::{Announcement, ChannelId, Envelope, Id128},
        framing::Framing,
    },
};
use polywire_idl::Compiler;

use super::{
    format::{Format, end_of_json},
    message::{Foreign, Message, Next, Place},
};
use crate::{
    cut::{Input, MESSAGE_BYTES, Part, Parts, may_be_cut},
    outcome::Misuse,
    unknown::unknown_member,
};

/// Maximum number of zero bytes after a payload. They pad it to a multiple of four, as in RTPS.
const PADDING: usize = 3;

pub struct Payloads {
    parts: Parts,
    framing: Framing,
    schema: Schema,
    decoder: Decoder<Record>,
    record: Record,
    announced: Announcement,
    ends: Ends,
    /// Rejects members that the type does not have; only for JSON.
    strict: bool,
    /// The format is text, so blanks around a message have no meaning.
    text: bool,
    number: u64,
    sequence: u64,
}

/// How the end of a message is found.
enum Ends {
    /// By the framing.
    Framed,
    /// By decoding it. If it does not fit the type, the second decoder, if any, finds the end.
    Itself(Option<(Decoder<Record>, Record)>),
    /// By the syntax of JSON.
    Json,
    /// By the end of the file.
    File,
}

impl Payloads {
    pub fn new(
        input: Input,
        foreign: Foreign,
        schema: Schema,
        topic: Option<String>,
        lenient: bool,
    ) -> anyhow::Result<Payloads> {
        let Foreign { format, framing, port } = foreign;
        let properties = format.codec().properties();
        if framing == Framing::Lines && !properties.text {
            let text =
                format!("{} is not text, so lines cannot hold it: choose another --framing", format.codec().name());
            return Err(Misuse(text).into());
        }
        let shape = Shape::of(&schema)?;
        let ends = match framing {
            Framing::None if format.is_json() => Ends::Json,
            Framing::None if format.delimits_itself(&shape) => Ends::Itself(skipper(&format)),
            Framing::None => Ends::File,
            _ => Ends::Framed,
        };
        let announced = Announcement {
            topic: topic.unwrap_or_else(|| schema.name().replace("::", "/")),
            writer: Id128::ZERO,
            ..Announcement::default()
        };
        Ok(Payloads {
            parts: Parts::new(input, framing, port),
            framing,
            decoder: format.decoder(&schema, &shape)?,
            record: Record::new(&shape),
            announced,
            ends,
            strict: !lenient && format.is_json(),
            text: properties.text,
            schema,
            number: 0,
            sequence: 0,
        })
    }

    pub fn next(&mut self) -> anyhow::Result<Option<Next<'_>>> {
        let read = match self.ends {
            Ends::Framed => self.framed()?,
            Ends::Itself(_) => self.itself()?,
            Ends::Json => self.json()?,
            Ends::File => self.file()?,
        };
        let Some((offset, read)) = read else { return Ok(None) };
        let (file, number) = (self.parts.input.name.as_str(), self.number);
        let place = match self.framing {
            Framing::Lines => Place::Line { file, line: number },
            _ => Place::Message { file, number, offset },
        };
        if let Err(why) = read {
            return Ok(Some(Next::Bad(format!("{place}: {why}"))));
        }
        self.sequence += 1;
        let envelope = Envelope::data(ChannelId(1), self.sequence, 0);
        let value = Some(&self.record);
        Ok(Some(Next::Message(Message { stream: 0, announced: &self.announced, envelope, value, place })))
    }

    /// Reads the next frame that is not a blank line. Returns its offset, and whether it could be
    /// read.
    fn framed(&mut self) -> anyhow::Result<Option<(u64, Result<(), String>)>> {
        while let Some(part) = self.parts.next()? {
            let Part::Frame(frame) = part else { continue };
            if self.framing == Framing::Lines && frame.payload.trim_ascii().is_empty() {
                continue;
            }
            self.number = frame.number;
            return Ok(Some((frame.offset, self.whole(&frame.payload))));
        }
        Ok(None)
    }

    /// Reads a payload that is one message.
    fn whole(&mut self, payload: &[u8]) -> Result<(), String> {
        self.check(payload)?;
        let used = self.decoder.decode(payload, &mut self.record).map_err(|error| error.to_string())?;
        let rest = payload.get(used..).unwrap_or_default();
        let fits = match self.text {
            true => rest.trim_ascii().is_empty(),
            false => rest.len() <= PADDING && rest.iter().all(|byte| *byte == 0),
        };
        match fits {
            true => Ok(()),
            false => {
                Err(format!("the message ends at byte {used}, and {} more follow; is the framing right?", rest.len()))
            }
        }
    }

    /// Rejects members that the type does not have: in JSON that a person wrote, they are mistakes.
    fn check(&self, payload: &[u8]) -> Result<(), String> {
        let text = std::str::from_utf8(payload).ok().filter(|_| self.strict);
        text.and_then(|text| unknown_member(&self.schema, text)).map_or(Ok(()), Err)
    }

    /// Reads the whole file as one message.
    fn file(&mut self) -> anyhow::Result<Option<(u64, Result<(), String>)>> {
        if self.number > 0 {
            return Ok(None);
        }
        self.number = 1;
        if self.parts.input.fill(MESSAGE_BYTES + 1)? {
            let what = format!("the file is one message of more than {MESSAGE_BYTES} bytes; does it need a --framing?");
            return Err(self.parts.input.failed(0, &what));
        }
        let bytes = self.parts.input.rest().to_vec();
        self.parts.input.skip(bytes.len());
        Ok(Some((0, self.whole(&bytes))))
    }

    /// Reads the next message, which shows where it ends.
    fn itself(&mut self) -> anyhow::Result<Option<(u64, Result<(), String>)>> {
        let Payloads { parts, decoder, record, .. } = self;
        let input = &mut parts.input;
        if !input.fill(1)? {
            return Ok(None);
        }
        self.number += 1;
        let offset = input.offset();
        let read = input.message(|bytes| decoder.decode(bytes, record), may_be_cut)?;
        let used = match &read {
            Ok(used) => Some(*used),
            Err(_) => self.pass_over()?,
        };
        let Some(used) = used.filter(|used| *used > 0) else {
            let why = read.map_or_else(|error| error.to_string(), |_| "it has no bytes".into());
            return Err(self.lost(offset, &why));
        };
        self.parts.input.skip(used);
        Ok(Some((offset, read.map(|_| ()).map_err(|error| error.to_string()))))
    }

    /// Reads the next JSON text.
    fn json(&mut self) -> anyhow::Result<Option<(u64, Result<(), String>)>> {
        let input = &mut self.parts.input;
        skip_blanks(input)?;
        if !input.fill(1)? {
            return Ok(None);
        }
        self.number += 1;
        let offset = input.offset();
        match input.message(end_of_json, serde_json::Error::is_eof)? {
            Ok(used) => {
                let text = input.rest().get(..used).unwrap_or_default().to_vec();
                input.skip(used);
                Ok(Some((offset, self.whole(&text))))
            }
            Err(error) => Err(self.lost(offset, &error.to_string())),
        }
    }

    /// Returns the error if a message is damaged so that the next one cannot be found.
    fn lost(&self, offset: u64, why: &str) -> anyhow::Error {
        let what = format!("message {}: {why}; where the next one begins is not known", self.number);
        self.parts.input.failed(offset, &what)
    }

    /// Returns the length of a message that does not fit the type; `None` if the message is
    /// damaged.
    fn pass_over(&mut self) -> anyhow::Result<Option<usize>> {
        let Ends::Itself(Some((decoder, record))) = &mut self.ends else { return Ok(None) };
        let read = self.parts.input.message(|bytes| decoder.decode(bytes, record), may_be_cut)?;
        Ok(read.ok())
    }
}

fn skip_blanks(input: &mut Input) -> anyhow::Result<()> {
    while input.fill(1)? {
        let blanks = input.rest().iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        if blanks == 0 {
            break;
        }
        input.skip(blanks);
    }
    Ok(())
}

/// Returns a decoder that reads any message of a self-describing format and keeps nothing of it,
/// because its type has no members.
fn skipper(format: &Format) -> Option<(Decoder<Record>, Record)> {
    if !format.codec().properties().self_describing {
        return None;
    }
    let document = Compiler::new().parse_str("none.idl", "@mutable struct None {};").ok()?;
    let schema = document.schema("None").ok()?;
    let shape: Arc<Shape> = Shape::of(&schema).ok()?;
    Some((format.decoder(&schema, &shape).ok()?, Record::new(&shape)))
}
