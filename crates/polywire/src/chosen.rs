//! Looks up the settings of the codec that a wire or an announcement names: its options, the
//! settings of stateful formats, and the template document that configures it. The node calls this
//! module, which reads only the file of the template.

use std::{
    fs::File,
    io::{self, Read as _},
    ops::Deref,
    sync::Arc,
};

use polywire_core::{
    codec::{Codec, LowerError, Options, stateful::Mode},
    frame,
};

use crate::error::NodeError;

/// The option that names the file of a template document.
const TEMPLATE: &str = "template";
/// The default number of messages from one key frame to the next.
const KEY_INTERVAL: u64 = 100;

/// A codec and its settings.
pub(crate) struct Chosen {
    pub(crate) codec: Configured,
    /// Options that the codec gets and the announcement repeats to readers.
    pub(crate) options: Options,
    /// Whether messages of a stateful format refer to the previous message or to a key frame;
    /// `None` if the engine's properties decide.
    pub(crate) mode: Option<Mode>,
    /// The number of messages from one key frame to the next.
    pub(crate) key_interval: u64,
}

/// One of the node's codecs, or a codec that was made from a template document.
pub(crate) enum Configured {
    Listed(&'static dyn Codec),
    Own(Arc<dyn Codec>),
}

impl Deref for Configured {
    type Target = dyn Codec;

    fn deref(&self) -> &(dyn Codec + 'static) {
        match self {
            Configured::Listed(codec) => *codec,
            Configured::Own(codec) => &**codec,
        }
    }
}

impl Chosen {
    /// The codec of a wire, whose options have been checked. Reads the template file that the wire
    /// names. Fails if the file cannot be read or the codec rejects it.
    pub(crate) fn of_wire(codec: &'static dyn Codec, options: Options) -> Result<Chosen, NodeError> {
        let configured = match options.value(TEMPLATE) {
            None => Configured::Listed(codec),
            Some(path) => {
                let failed = |error: LowerError| NodeError::Codec {
                    codec: codec.name().into(),
                    cause: LowerError::Option(format!("'{path}': {error}")).into(),
                };
                Configured::Own(codec.configured(&read(path)?).map_err(failed)?)
            }
        };
        let mode = options.value("mode").map(|mode| if mode == "chained" { Mode::Chained } else { Mode::Anchored });
        let key_interval = options.value("key_interval").and_then(|number| number.parse().ok()).unwrap_or(KEY_INTERVAL);
        let options = [TEMPLATE, "mode", "key_interval"].iter().fold(options, |options, name| options.without(name));
        Ok(Chosen { codec: configured, options, mode, key_interval })
    }

    /// The codec of an announcement; `configured` is the codec made from its document.
    pub(crate) fn announced(codec: &'static dyn Codec, options: Options, configured: Option<Arc<dyn Codec>>) -> Chosen {
        let codec = configured.map_or(Configured::Listed(codec), Configured::Own);
        Chosen { codec, options, mode: None, key_interval: KEY_INTERVAL }
    }
}

/// Reads a template document. It may be as large as the largest document that peers accept.
fn read(path: &str) -> Result<Vec<u8>, NodeError> {
    let limit = frame::Limits::default().document_bytes;
    let failed = |cause| NodeError::Template { path: path.into(), cause };
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(limit as u64 + 1).read_to_end(&mut bytes)).map_err(failed)?;
    match bytes.len() {
        len if len > limit => {
            let reason = format!("a template document has at most {limit} bytes");
            Err(failed(io::Error::new(io::ErrorKind::InvalidData, reason)))
        }
        _ => Ok(bytes),
    }
}
