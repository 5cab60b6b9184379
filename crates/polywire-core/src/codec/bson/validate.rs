//! Validation of a complete document, independent of a type. Users call [`validate`]; no program
//! does. It reads bytes only.

use alloc::vec::Vec;

use super::kind::{self, MIN_DOCUMENT};
use crate::program::{FaultKind, Limits, io::CodecError};

/// Checks that `bytes` are exactly one well-formed document: lengths are consistent, documents end
/// where they say, all text is UTF-8, and every element has a kind of BSON 1.1. Decoding does not
/// check all of this in elements that it skips.
///
/// ```
/// use polywire_core::{codec::bson, program::Limits};
///
/// let document = b"\x16\0\0\0\x10system_time\0\x41\x05\0\0\0";
/// assert!(bson::validate(document, &Limits::default()).is_ok());
/// assert!(bson::validate(&document[..21], &Limits::default()).is_err());
/// ```
pub fn validate(bytes: &[u8], limits: &Limits) -> Result<(), CodecError> {
    if bytes.len() > limits.message_bytes {
        return Err(fault(FaultKind::Limit, 0, limits.message_bytes as u64, bytes.len() as u64));
    }
    let mut walk = Walk { bytes, at: 0, open: Vec::new(), depth: limits.depth as usize };
    walk.begin()?;
    while let Some(innermost) = walk.open.last().copied() {
        if walk.at + 1 < innermost.end {
            walk.element(innermost)?;
        } else {
            walk.end(innermost)?;
        }
    }
    match bytes.len() - walk.at {
        0 => Ok(()),
        left => Err(fault(FaultKind::Trailing, walk.at, 0, left as u64)),
    }
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    open: Vec<Open>,
    depth: usize,
}

/// A document that is not finished.
#[derive(Clone, Copy)]
struct Open {
    end: usize,
    /// End of the code element, if the document is its scope.
    code_end: Option<usize>,
}

type Done<T = ()> = Result<T, CodecError>;

impl<'a> Walk<'a> {
    /// Enters a document.
    fn begin(&mut self) -> Done {
        if self.open.len() >= self.depth {
            return Err(fault(FaultKind::TooDeep, self.at, self.depth as u64, self.depth as u64 + 1));
        }
        let start = self.at;
        let len = self.length(start, MIN_DOCUMENT, 4)?;
        self.open.push(Open { end: start + len, code_end: None });
        Ok(())
    }

    /// Leaves the innermost document.
    fn end(&mut self, innermost: Open) -> Done {
        match self.take(1)? {
            [0] => {}
            other => return Err(self.fault_before(1, FaultKind::BadTerminator, 0, u64::from(other[0]))),
        }
        self.open.pop();
        match innermost.code_end {
            Some(end) if end != self.at => Err(fault(FaultKind::BadLength, self.at, end as u64, self.at as u64)),
            _ => Ok(()),
        }
    }

    fn element(&mut self, inside: Open) -> Done {
        let kind = self.take(1)?[0];
        if kind == 0 {
            return Err(self.fault_before(1, FaultKind::BadTerminator, inside.end as u64, self.at as u64));
        }
        self.name()?;
        match kind {
            kind::UNDEFINED | kind::NULL | kind::MIN_KEY | kind::MAX_KEY => Ok(()),
            kind::INT32 => self.take(4).map(drop),
            kind::DOUBLE | kind::DATETIME | kind::TIMESTAMP | kind::INT64 => self.take(8).map(drop),
            kind::OBJECT_ID => self.take(12).map(drop),
            kind::DECIMAL128 => self.take(16).map(drop),
            kind::BOOLEAN => match self.take(1)? {
                [0 | 1] => Ok(()),
                other => Err(self.fault_before(1, FaultKind::BadBool, 1, u64::from(other[0]))),
            },
            kind::STRING | kind::CODE | kind::SYMBOL => self.string(),
            kind::DB_POINTER => {
                self.string()?;
                self.take(12).map(drop)
            }
            kind::REGEX => {
                self.name()?;
                self.name()
            }
            kind::BINARY => self.binary(),
            kind::DOCUMENT | kind::ARRAY => self.begin(),
            kind::CODE_WITH_SCOPE => self.code_with_scope(),
            other => Err(self.fault_before(0, FaultKind::Syntax, 0, other.into())),
        }
    }

    fn binary(&mut self) -> Done {
        let start = self.at;
        let len = self.length(start, 0, 0)?;
        let subtype = self.take(1)?[0];
        let inner = match subtype {
            kind::OLD_BINARY => {
                let inner = self.length(self.at, 0, 0)?;
                if inner + 4 != len {
                    return Err(self.fault_before(4, FaultKind::BadLength, len as u64, inner as u64));
                }
                inner
            }
            _ => len,
        };
        self.take(inner).map(drop)
    }

    fn code_with_scope(&mut self) -> Done {
        let start = self.at;
        let len = self.length(start, 4 + 5 + MIN_DOCUMENT, 4)?;
        self.string()?;
        self.begin()?;
        if let Some(scope) = self.open.last_mut() {
            scope.code_end = Some(start + len);
        }
        Ok(())
    }

    fn string(&mut self) -> Done {
        let len = self.length(self.at, 1, 0)?;
        match self.take(len)?.split_last() {
            Some((0, text)) => self.utf8(text, 1),
            _ => Err(self.fault_before(1, FaultKind::BadTerminator, 0, 1)),
        }
    }

    fn name(&mut self) -> Done {
        let rest = self.rest();
        let Some(nul) = rest.iter().position(|byte| *byte == 0) else {
            return Err(fault(FaultKind::Truncated, self.at, rest.len() as u64 + 1, rest.len() as u64));
        };
        let name = self.take(nul)?;
        self.utf8(name, 0)?;
        self.take(1).map(drop)
    }

    /// Checks text that was just taken, with `behind` bytes after it.
    fn utf8(&self, text: &[u8], behind: usize) -> Done {
        core::str::from_utf8(text)
            .map(drop)
            .map_err(|error| self.fault_before(text.len() + behind - error.valid_up_to(), FaultKind::BadText, 0, 0))
    }

    /// Reads a length that counts `counted` bytes from `start`, and checks that the rest is
    /// present.
    fn length(&mut self, start: usize, min: usize, counted: usize) -> Done<usize> {
        let declared = match self.take(4)? {
            [a, b, c, d] => i32::from_le_bytes([*a, *b, *c, *d]),
            _ => 0,
        };
        let left = self.rest().len() + counted;
        match usize::try_from(declared) {
            Ok(len) if min <= len && len <= left => Ok(len),
            _ => Err(fault(FaultKind::BadLength, start, left as u64, declared as u64)),
        }
    }

    fn take(&mut self, n: usize) -> Done<&'a [u8]> {
        let rest = self.rest();
        let taken = rest.get(..n).ok_or_else(|| fault(FaultKind::Truncated, self.at, n as u64, rest.len() as u64))?;
        self.at += n;
        Ok(taken)
    }

    /// The rest of the innermost document.
    fn rest(&self) -> &'a [u8] {
        let end = self.open.last().map_or(self.bytes.len(), |open| open.end);
        self.bytes.get(self.at..end).unwrap_or(&[])
    }

    fn fault_before(&self, bytes: usize, kind: FaultKind, expected: u64, got: u64) -> CodecError {
        fault(kind, self.at.saturating_sub(bytes), expected, got)
    }
}

fn fault(kind: FaultKind, offset: usize, expected: u64, got: u64) -> CodecError {
    CodecError::plain(kind, offset, expected, got)
}
