//! Training of dictionaries. A dictionary contains bytes that the messages of a topic are likely to
//! share, for compressors that accept one.

use alloc::{vec, vec::Vec};

use ::zstd::zstd_safe;

/// The usual size of a dictionary in bytes. Larger ones hardly help with messages of a few
/// kilobytes.
pub const DEFAULT_BYTES: usize = 16 << 10;

/// Why no dictionary can be trained.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// The samples are too few or too short.
    #[error("{samples} samples of {bytes} bytes are too few to train a dictionary ({reason})")]
    TooFew {
        /// Number of samples.
        samples: usize,
        /// Size of all samples in bytes.
        bytes: usize,
        /// The trainer's reason.
        reason: &'static str,
    },
}

/// Trains a dictionary of at most `bytes` bytes from uncompressed messages of a topic. The samples
/// should have about a hundred times the dictionary's size. The dictionary is in Zstandard's
/// format; LZ4 accepts it, too.
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
    // The trainer would divide by zero.
    if all.len() < 8 || sizes.len() < 5 {
        return Err(too_few("at least 5 are needed"));
    }
    let mut dictionary = vec![0; bytes];
    let trained = zstd_safe::train_from_buffer(dictionary.as_mut_slice(), &all, &sizes);
    let len = trained.map_err(|code| too_few(zstd_safe::get_error_name(code)))?;
    dictionary.truncate(len);
    Ok(dictionary)
}
