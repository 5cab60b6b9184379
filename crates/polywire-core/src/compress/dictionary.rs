//! Training of dictionaries: bytes that the messages of a topic are likely to share, for the
//! compressors that take one.

use alloc::{vec, vec::Vec};

use ::zstd::zstd_safe;

/// Bytes of a dictionary where nothing else is asked for: more hardly helps messages of a few
/// kilobytes.
pub const USUAL_BYTES: usize = 16 << 10;

/// Why there is no dictionary.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// Too few samples, or too little in them.
    #[error("{samples} samples of {bytes} bytes are too few to learn from ({reason})")]
    TooFew {
        /// How many there are.
        samples: usize,
        /// Bytes of all of them.
        bytes: usize,
        /// What the trainer said.
        reason: &'static str,
    },
}

/// Learns a dictionary of at most `bytes` from messages of a topic, as they are before compression.
/// A hundred times the dictionary's size is a good amount of samples. It is one of Zstandard's; LZ4
/// takes it as well.
///
/// ```
/// use polywire_core::compress::dictionary::{TrainError, train};
/// let samples: Vec<String> = (0..2000).map(|i| format!("{{\"station\":\"north\",\"reading\":{}}}", i * 37 % 1000)).collect();
/// assert!(train(&samples, 1024)?.len() <= 1024);
/// assert!(matches!(train(&samples[..1], 1024), Err(TrainError::TooFew { .. })));
/// # Ok::<(), TrainError>(())
/// ```
pub fn train<S: AsRef<[u8]>>(samples: &[S], bytes: usize) -> Result<Vec<u8>, TrainError> {
    let sizes: Vec<usize> = samples.iter().map(|sample| sample.as_ref().len()).collect();
    let all: Vec<u8> = samples.iter().flat_map(|sample| sample.as_ref().iter().copied()).collect();
    let too_few = |reason| TrainError::TooFew { samples: sizes.len(), bytes: all.len(), reason };
    // The trainer would divide by what there is.
    if all.len() < 8 || sizes.len() < 5 {
        return Err(too_few("at least 5 are needed"));
    }
    let mut dictionary = vec![0; bytes];
    let trained = zstd_safe::train_from_buffer(dictionary.as_mut_slice(), &all, &sizes);
    let len = trained.map_err(|code| too_few(zstd_safe::get_error_name(code)))?;
    dictionary.truncate(len);
    Ok(dictionary)
}
