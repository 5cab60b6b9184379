//! The format of a stream's samples, derived from a wire.

use std::{fs::File, io::Read as _, sync::Arc};

use polywire::{
    NodeError, Wire,
    codec::{self, Codec, Options},
    wire::AUTO,
};

use crate::packet::{MAX_DOCUMENT_BYTES, StreamDescription};

/// The option that names the file of a template document.
const TEMPLATE: &str = "template";

/// The options of messages that refer to earlier ones. They are removed, because each kept sample
/// is decoded independently.
const OF_SEQUENCES: [&str; 2] = ["mode", "key_interval"];

/// A codec with its options and its configuration document.
pub struct Format {
    codec: Configured,
    options: Options,
    document: Vec<u8>,
}

enum Configured {
    Listed(&'static dyn Codec),
    Own(Arc<dyn Codec>),
}

impl Format {
    /// Returns the format of a wire; CDR if the wire does not specify one. Reads the template file
    /// that the wire names, and fails if the file cannot be read.
    pub fn of(wire: &Wire) -> Result<Format, NodeError> {
        let name = if wire.codec.name == AUTO { codec::cdr::CDR.name() } else { &wire.codec.name };
        let wrong = |cause: codec::LowerError| NodeError::Codec { codec: name.to_owned(), cause: cause.into() };
        let unknown =
            || wrong(codec::LowerError::Option("only formats that every collector has can be kept".to_owned()));
        let listed = codec::find(name).ok_or_else(unknown)?;
        let options: Options = wire.codec.options.parse().map_err(wrong)?;
        options.check(listed).map_err(wrong)?;
        let (codec, document) = match options.value(TEMPLATE) {
            None => (Configured::Listed(listed), Vec::new()),
            Some(path) => {
                let document = read(path)?;
                (Configured::Own(listed.configured(&document).map_err(wrong)?), document)
            }
        };
        let options = options.without(TEMPLATE);
        let options = OF_SEQUENCES.iter().fold(options, |options, name| options.without(name));
        Ok(Format { codec, options, document })
    }

    /// Returns the codec.
    pub fn codec(&self) -> &dyn Codec {
        match &self.codec {
            Configured::Listed(codec) => *codec,
            Configured::Own(codec) => &**codec,
        }
    }

    /// Returns the options of the codec.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Writes the format into the description of a stream.
    pub fn describe(&self, stream: &mut StreamDescription) {
        stream.codec = self.codec().name().to_owned();
        stream.options = self.options.to_string();
        stream.configuration.clone_from(&self.document);
    }
}

fn read(path: &str) -> Result<Vec<u8>, NodeError> {
    let failed = |cause| NodeError::Template { path: path.into(), cause };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_DOCUMENT_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > MAX_DOCUMENT_BYTES {
        return Err(failed(std::io::Error::other(format!(
            "a template document has at most {MAX_DOCUMENT_BYTES} bytes"
        ))));
    }
    Ok(bytes)
}
