//! Encodes and decodes payloads in any format, one request a line, for programs in other languages.
//!
//! `payloads FILE.idl` reads lines of fields with a tab between them from standard input, and
//! answers each with one line:
//!
//! | request | answer |
//! |---|---|
//! | `encode TYPE CODEC[:OPTIONS] JSON` | `ok HEX` |
//! | `decode TYPE CODEC[:OPTIONS] HEX` | `ok JSON` |
//! | `emit TYPE TARGET` | `ok HEX` of the source text: `idl`, `proto`, `rust` or `xsd` |
//!
//! An answer that is not `ok` is `error` and the reason. `conformance/foreign` uses it to compare
//! payloads with those of other people's libraries.

use std::{
    collections::HashMap,
    error::Error,
    io::{self, BufRead as _, Write as _},
    sync::Arc,
};

use polywire_core::{
    codec::{self, Decoder, Encoder, Options, json::JSON},
    layout::{Record, Shape},
};
use polywire_idl::{Compiler, Document, emit};

type Answer = Result<String, Box<dyn Error>>;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: payloads FILE.idl")?;
    let document = Compiler::new().parse_file(&path).map_err(|errors| errors.to_string())?;
    let mut payloads = Payloads { document, shapes: HashMap::new(), coders: HashMap::new() };
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        match payloads.answer(&line?) {
            Ok(text) => writeln!(out, "ok\t{text}")?,
            Err(error) => writeln!(out, "error\t{}", error.to_string().replace(['\n', '\t'], " "))?,
        }
        out.flush()?;
    }
    Ok(())
}

struct Payloads {
    document: Document,
    shapes: HashMap<String, Arc<Shape>>,
    /// By type, and format with its options.
    coders: HashMap<(String, String), Coder>,
}

impl Payloads {
    fn answer(&mut self, line: &str) -> Answer {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields[..] {
            ["encode", ty, format, json] => self.convert(ty, ("json", json.as_bytes()), format).map(|out| hex(&out)),
            ["decode", ty, format, text] => {
                let out = self.convert(ty, (format, &unhex(text)?), "json")?;
                Ok(String::from_utf8(out)?)
            }
            ["emit", ty, target] => {
                let emitter = emit::emitter(target).ok_or("there is no such target")?;
                let text = (emitter.emit)(&self.document.schema(ty)?, self.document.constants())?;
                Ok(hex(text.as_bytes()))
            }
            _ => Err("expected encode, decode or emit, and its fields, with a tab between them".into()),
        }
    }

    /// Decodes the bytes of one format and encodes the value in another.
    fn convert(&mut self, ty: &str, (from, bytes): (&str, &[u8]), to: &str) -> Result<Vec<u8>, Box<dyn Error>> {
        let reader = self.coder(ty, from)?;
        let mut value = Record::new(reader.decoder.shape());
        let used = reader.decoder.decode(bytes, &mut value)?;
        if used != bytes.len() {
            return Err(format!("the value ends after {used} of {} bytes", bytes.len()).into());
        }
        let mut out = Vec::new();
        self.coder(ty, to)?.encoder.encode(&value, &mut out)?;
        Ok(out)
    }

    fn coder(&mut self, ty: &str, format: &str) -> Result<&Coder, Box<dyn Error>> {
        let key = (ty.to_owned(), format.to_owned());
        if !self.coders.contains_key(&key) {
            let coder = Coder::new(&self.shape(ty)?, format)?;
            self.coders.insert(key.clone(), coder);
        }
        Ok(&self.coders[&key])
    }

    fn shape(&mut self, ty: &str) -> Result<Arc<Shape>, Box<dyn Error>> {
        if !self.shapes.contains_key(ty) {
            self.shapes.insert(ty.to_owned(), Shape::of(&self.document.schema(ty)?)?);
        }
        Ok(self.shapes[ty].clone())
    }
}

struct Coder {
    encoder: Encoder<Record>,
    decoder: Decoder<Record>,
}

impl Coder {
    fn new(shape: &Arc<Shape>, format: &str) -> Result<Coder, Box<dyn Error>> {
        let (name, options) = format.split_once(':').unwrap_or((format, ""));
        let codec = match name {
            "json" => &JSON,
            name => codec::find(name).ok_or_else(|| format!("there is no codec '{name}'"))?,
        };
        let options: Options = options.parse()?;
        Ok(Coder {
            encoder: Encoder::for_shape(codec, &options, shape)?,
            decoder: Decoder::for_shape(codec, &options, shape.schema(), shape)?,
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return Err("expected two hexadecimal digits for each byte".into());
    }
    let bytes = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16));
    bytes.collect::<Result<_, _>>().map_err(|_| "expected hexadecimal digits".into())
}
