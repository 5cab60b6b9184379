//! The seam to the compressors: what a wire and an announcement say of them becomes what packs and
//! unpacks payloads.

use std::{
    fs::File,
    io::{self, Read as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use polywire_core::{
    compress::{Compressor, Limits, NONE, Packer, Settings, UnpackError, Unpacker, announced_dictionary},
    envelope::Id128,
    frame,
    schema::DocumentHash,
};

use crate::{
    node::{Inner, NodeError},
    wire::Choice,
};

/// A publisher's end of a compressor.
pub(crate) struct Packing {
    packer: Packer,
    /// What the codec wrote, before it is compressed.
    encoded: Vec<u8>,
    /// As the announcement has it.
    pub(crate) announced: String,
}

impl Packing {
    /// What a wire asks for; none where that is no compression. The dictionary becomes a document
    /// of the node.
    pub(crate) fn of(node: &Inner, choice: Option<&Choice>) -> Result<Option<Packing>, NodeError> {
        let Some(choice) = choice else { return Ok(None) };
        let compressor = node.compressor(&choice.name)?;
        let settings = Settings::parse(&choice.options, compressor)?;
        if compressor.name() == NONE.name() {
            return Ok(None);
        }
        let dictionary = settings.dictionary.as_deref().map(read).transpose()?.unwrap_or_default();
        let packer = Packer::new(compressor, &settings, &dictionary)?;
        let hash = settings.dictionary.is_some().then(|| node.documents.publish_bytes(dictionary));
        let hash = hash.as_ref().map(|hash| hash as &dyn std::fmt::Display);
        Ok(Some(Packing { packer, encoded: Vec::new(), announced: settings.announced(compressor, hash) }))
    }

    /// Appends to `out` what is to be sent for what `encode` writes.
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

/// Peers take no larger document.
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

/// A subscriber's end of a compressor, for one channel.
#[derive(Clone)]
pub(crate) struct Unpacking(Arc<Mutex<Unpacker>>);

impl Unpacking {
    /// What an announcement asks for, with a dictionary that is there by now; none where payloads
    /// are not packed.
    pub(crate) fn of(node: &Inner, announced: &str) -> Result<Option<Unpacking>, String> {
        if announced.is_empty() {
            return Ok(None);
        }
        let name = announced.split(':').next().unwrap_or_default();
        let compressor: &dyn Compressor = node.compressor(name).map_err(|error| error.to_string())?;
        let dictionary = match announced_dictionary(announced) {
            None => Arc::default(),
            Some(text) => {
                let id = dictionary(announced).ok_or_else(|| format!("'{text}' is no hash of a dictionary"))?;
                node.documents.bytes(id).ok_or_else(|| format!("the dictionary {id} is unknown"))?
            }
        };
        let limits = Limits { message_bytes: node.config.engine.limits.frame_bytes, ..Limits::default() };
        let unpacker = Unpacker::new(compressor, &dictionary, limits).map_err(|error| error.to_string())?;
        Ok(Some(Unpacking(Arc::new(Mutex::new(unpacker)))))
    }

    /// Calls back with the payload that was packed.
    #[inline]
    pub(crate) fn unpack(&self, packed: &[u8], then: impl FnOnce(Result<&[u8], UnpackError>)) {
        let mut unpacker: MutexGuard<'_, Unpacker> = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        then(unpacker.unpack(packed));
    }
}

/// The document that an announced compressor needs.
pub(crate) fn dictionary(announced: &str) -> Option<Id128> {
    let hash: DocumentHash = announced_dictionary(announced)?.parse().ok()?;
    Some(Id128(hash.to_bytes()))
}
