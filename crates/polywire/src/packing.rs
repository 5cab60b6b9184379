//! Compression of payloads: makes the object that packs or unpacks from the compressor that a wire
//! or an announcement names. The publisher and the node call this module, which reads only the file
//! of the dictionary.

use std::{
    fs::File,
    io::{self, Read as _},
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};
use polywire_core::{
    compress::{Compressor, Limits, Packer, Settings, UnpackError, Unpacker, announced_dictionary},
    envelope::Id128,
    frame,
    schema::DocumentHash,
};

use crate::{error::NodeError, wire::Choice};

/// Compresses the payloads of one publisher's channel.
pub(crate) struct Packing {
    packer: Packer,
    /// Output of the codec, before compression.
    encoded: Vec<u8>,
    /// Name, level and dictionary as the announcement spells them.
    pub(crate) announced: String,
}

/// The result of [`Packing::of`]: the packer, and the dictionary that peers must be able to fetch.
type Prepared = (Packing, Option<Vec<u8>>);

impl Packing {
    /// Prepares the compressor that a wire names, and reads its dictionary, which the caller has to
    /// publish as a document. Returns `None` for the compressor `none`. Fails if the options or the
    /// dictionary are invalid.
    pub(crate) fn of(compressor: &'static dyn Compressor, choice: &Choice) -> Result<Option<Prepared>, NodeError> {
        let settings = Settings::parse(&choice.options, compressor)?;
        if compressor.name() == "none" {
            return Ok(None);
        }
        let dictionary = settings.dictionary.as_deref().map(read).transpose()?;
        let packer = Packer::new(compressor, &settings, dictionary.as_deref().unwrap_or_default())?;
        let hash = dictionary.as_ref().map(|bytes| Id128(DocumentHash::of(bytes).to_bytes()));
        let hash = hash.as_ref().map(|hash| hash as &dyn std::fmt::Display);
        let announced = settings.announced(compressor, hash);
        Ok(Some((Packing { packer, encoded: Vec::new(), announced }, dictionary)))
    }

    /// Compresses what `encode` writes and appends it to `out`.
    #[inline]
    pub(crate) fn pack<E>(
        &mut self,
        out: &mut Vec<u8>,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.encoded.clear();
        encode(&mut self.encoded)?;
        self.packer.pack(&self.encoded, out);
        Ok(())
    }
}

/// Reads a dictionary. It may be as large as the largest document that peers accept.
fn read(path: &str) -> Result<Vec<u8>, NodeError> {
    let limit = frame::Limits::default().document_bytes;
    let failed = |cause| NodeError::Dictionary { path: path.into(), cause };
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(limit as u64 + 1).read_to_end(&mut bytes)).map_err(failed)?;
    match bytes.len() {
        0 => Err(failed(io::Error::new(io::ErrorKind::InvalidData, "the file is empty"))),
        len if len > limit => {
            let reason = format!("a dictionary has at most {limit} bytes");
            Err(failed(io::Error::new(io::ErrorKind::InvalidData, reason)))
        }
        _ => Ok(bytes),
    }
}

/// Decompresses the payloads of one channel. Clones share their state.
#[derive(Clone)]
pub(crate) struct Unpacking(Arc<Mutex<Unpacker>>);

impl Unpacking {
    /// Prepares the compressor of an announcement. `document` looks up the dictionary, which the
    /// caller has fetched before; no message may have more than `message_bytes` when unpacked.
    pub(crate) fn of(
        compressor: &'static dyn Compressor,
        announced: &str,
        document: impl FnOnce(Id128) -> Option<Arc<[u8]>>,
        message_bytes: usize,
    ) -> Result<Unpacking, String> {
        let dictionary = match announced_dictionary(announced) {
            None => Arc::default(),
            Some(text) => {
                let id = dictionary(announced).ok_or_else(|| format!("'{text}' is not the hash of a dictionary"))?;
                document(id).ok_or_else(|| format!("the dictionary {id} is unknown"))?
            }
        };
        let limits = Limits { message_bytes, ..Limits::default() };
        let unpacker = Unpacker::new(compressor, &dictionary, limits).map_err(|error| error.to_string())?;
        Ok(Unpacking(Arc::new(Mutex::new(unpacker))))
    }

    /// Unpacks a payload and calls `then` with it, or with the reason why that failed.
    #[inline]
    pub(crate) fn unpack(&self, packed: &[u8], then: impl FnOnce(Result<&[u8], UnpackError>)) {
        let mut unpacker: MutexGuard<'_, Unpacker> = self.0.lock();
        then(unpacker.unpack(packed));
    }
}

/// The compressor's name in an announcement; `None` if payloads are not compressed.
pub(crate) fn compressor_name(announced: &str) -> Option<&str> {
    announced.split(':').next().filter(|_| !announced.is_empty())
}

/// The dictionary that an announced compressor needs, by its hash.
pub(crate) fn dictionary(announced: &str) -> Option<Id128> {
    let hash: DocumentHash = announced_dictionary(announced)?.parse().ok()?;
    Some(Id128(hash.to_bytes()))
}
