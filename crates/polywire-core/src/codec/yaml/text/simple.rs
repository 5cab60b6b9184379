//! Reads, without allocating, the part of YAML that we write ourselves: block and flow collections
//! indented by blanks, strings in double quotes, plain scalars of letters, digits, blanks and
//! `_-./+`. Whatever else comes is left to a parser of all of YAML, so that nothing is decided here
//! that could be decided otherwise there.

use super::{Either, MAX_DEPTH, put_plain};
use crate::program::{Output, Status, adapter::PositionMap};

/// Writes the message as JSON. None if something in it is unusual; what was written then is of no
/// use. The text is printable UTF-8.
pub(crate) fn read(
    text: &str,
    either: Either,
    output: &mut Output<'_>,
    positions: &mut PositionMap<'_>,
) -> Option<Status> {
    let levels = [(0, Kind::Sequence); MAX_DEPTH];
    let mut reader = Reader { text: text.as_bytes(), either, at: 0, levels, depth: 0, output, positions };
    match reader.document() {
        Ok(()) => Some(Status::Ok),
        Err(Stop::Failed) => Some(Status::Failed),
        Err(Stop::Unusual) => None,
    }
}

/// Why it does not go on.
enum Stop {
    Unusual,
    Failed,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sequence,
    Mapping,
}

impl Kind {
    fn close(self) -> u8 {
        if self == Kind::Mapping { b'}' } else { b']' }
    }
}

struct Reader<'r, 'v, 'e> {
    text: &'r [u8],
    either: Either,
    at: usize,
    /// Collections that are open, and the column of their entries.
    levels: [(usize, Kind); MAX_DEPTH],
    depth: usize,
    output: &'r mut Output<'v>,
    positions: &'r mut PositionMap<'e>,
}

/// Longer keys are not simple.
const LONGEST_KEY: usize = 1000;

impl Reader<'_, '_, '_> {
    fn document(&mut self) -> Result<(), Stop> {
        if self.text.starts_with(b"---") || self.text.starts_with(b"...") || self.text.starts_with(b" ") {
            return Err(Stop::Unusual);
        }
        // A value is to come on the next line.
        let mut pending = self.node(0)?;
        while self.at < self.text.len() {
            let column = self.blanks();
            while let Some((open, kind)) = self.innermost().filter(|(open, _)| *open > column) {
                if pending && open > column {
                    return Err(Stop::Unusual);
                }
                self.depth -= 1;
                self.put(&[kind.close()])?;
            }
            let (open, kind) = self.innermost().ok_or(Stop::Unusual)?;
            pending = match (pending, column > open) {
                (true, true) => self.node(column)?,
                (false, false) => self.entry(column, kind)?,
                _ => return Err(Stop::Unusual),
            };
        }
        while let Some((_, kind)) = self.innermost() {
            self.depth -= 1;
            self.put(&[kind.close()])?;
        }
        if pending { Err(Stop::Unusual) } else { Ok(()) }
    }

    fn innermost(&self) -> Option<(usize, Kind)> {
        self.levels.get(self.depth.checked_sub(1)?).copied()
    }

    fn push(&mut self, column: usize, kind: Kind) -> Result<(), Stop> {
        *self.levels.get_mut(self.depth).ok_or(Stop::Unusual)? = (column, kind);
        self.depth += 1;
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        done(self.output.put(bytes))
    }

    /// Records that what is written next comes from `source`.
    fn note(&mut self, source: usize) {
        self.positions.note(self.output, source);
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn comes(&self, bytes: &[u8]) -> bool {
        self.text.get(self.at..).is_some_and(|rest| rest.starts_with(bytes))
    }

    fn blanks(&mut self) -> usize {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let blanks = rest.iter().take_while(|b| **b == b' ').count();
        self.at += blanks;
        blanks
    }

    /// A value that begins in this column; true if what belongs to it is to come on the next line.
    fn node(&mut self, mut column: usize) -> Result<bool, Stop> {
        while self.comes(b"- ") {
            self.push(column, Kind::Sequence)?;
            self.note(self.at);
            self.put(b"[")?;
            self.at += 2;
            column += 2;
        }
        if matches!(self.peek(), Some(b'{' | b'[')) {
            self.flow()?;
            return self.line_end();
        }
        let scalar = self.scalar()?;
        if self.is_key() {
            self.push(column, Kind::Mapping)?;
            self.note(scalar.start);
            self.put(b"{")?;
            return self.member(scalar);
        }
        self.put_scalar(scalar)?;
        self.line_end()
    }

    /// Another entry of the innermost collection.
    fn entry(&mut self, column: usize, kind: Kind) -> Result<bool, Stop> {
        self.put(b",")?;
        if kind == Kind::Sequence {
            if !self.comes(b"- ") {
                return Err(Stop::Unusual);
            }
            self.at += 2;
            return self.node(column + 2);
        }
        let key = self.scalar()?;
        if !self.is_key() {
            return Err(Stop::Unusual);
        }
        self.member(key)
    }

    fn is_key(&self) -> bool {
        self.comes(b": ") || self.comes(b":\n")
    }

    fn member(&mut self, key: Scalar) -> Result<bool, Stop> {
        self.put_key(key)?;
        self.at += 1;
        if self.comes(b"\n") {
            self.at += 1;
            return Ok(true);
        }
        self.at += 1;
        self.inline()?;
        self.line_end()
    }

    /// A value that ends on the same line.
    fn inline(&mut self) -> Result<(), Stop> {
        if matches!(self.peek(), Some(b'{' | b'[')) {
            return self.flow();
        }
        let scalar = self.scalar()?;
        self.put_scalar(scalar)
    }

    fn line_end(&mut self) -> Result<bool, Stop> {
        match self.peek() {
            None => Ok(false),
            Some(b'\n') => {
                self.at += 1;
                Ok(false)
            }
            Some(_) => Err(Stop::Unusual),
        }
    }

    /// A collection in brackets.
    fn flow(&mut self) -> Result<(), Stop> {
        let outside = self.depth;
        loop {
            // In front of a value.
            let kind = match self.peek() {
                Some(b'{') => Some(Kind::Mapping),
                Some(b'[') => Some(Kind::Sequence),
                _ => None,
            };
            if let Some(kind) = kind {
                let open = if kind == Kind::Mapping { b'{' } else { b'[' };
                self.note(self.at);
                self.at += 1;
                self.put(&[open])?;
                self.push(usize::MAX, kind)?;
                if self.peek() != Some(kind.close()) {
                    self.flow_key(kind)?;
                    continue;
                }
            } else {
                let scalar = self.scalar()?;
                self.put_scalar(scalar)?;
            }
            // Behind a value, or where an empty collection ends.
            loop {
                if self.depth == outside {
                    return Ok(());
                }
                let (_, kind) = self.innermost().ok_or(Stop::Unusual)?;
                match self.peek() {
                    Some(b',') => {
                        self.at += 1;
                        self.blanks();
                        self.put(b",")?;
                        self.flow_key(kind)?;
                        break;
                    }
                    Some(byte) if byte == kind.close() => {
                        self.at += 1;
                        self.depth -= 1;
                        self.put(&[byte])?;
                    }
                    _ => return Err(Stop::Unusual),
                }
            }
        }
    }

    /// A member's key up to its value; nothing in a sequence.
    fn flow_key(&mut self, kind: Kind) -> Result<(), Stop> {
        if kind == Kind::Sequence {
            return Ok(());
        }
        let key = self.scalar()?;
        if !self.comes(b": ") {
            return Err(Stop::Unusual);
        }
        self.at += 2;
        self.put_key(key)
    }

    /// Passes over a scalar.
    fn scalar(&mut self) -> Result<Scalar, Stop> {
        let start = self.at;
        match self.peek() {
            Some(b'"') => self.quoted()?,
            _ => self.plain()?,
        }
        Ok(Scalar { start, end: self.at })
    }

    /// With escapes that JSON has as well, on one line.
    fn quoted(&mut self) -> Result<(), Stop> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let mut len = 1;
        loop {
            len += match rest.get(len..).unwrap_or_default() {
                [b'"', ..] => break,
                [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => 2,
                [b'\\', b'u', a, b, c, d, ..]
                    if [a, b, c, d].iter().all(|digit| digit.is_ascii_hexdigit()) && !matches!(a, b'd' | b'D') =>
                {
                    6
                }
                [b' '..=b'!' | b'#'..=b'[' | b']'..=b'~', ..] => 1,
                // Characters that some take for line breaks or positions.
                [0xC2, 0x80..=0x9F, ..] | [0xE2, 0x80, 0xA8..=0xA9, ..] | [0xEF, 0xBB | 0xBF, ..] => {
                    return Err(Stop::Unusual);
                }
                [byte, ..] if *byte >= 0x80 => 1,
                _ => return Err(Stop::Unusual),
            };
        }
        self.at += len + 1;
        Ok(())
    }

    fn plain(&mut self) -> Result<(), Stop> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let stands = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'/' | b'+' | b' ');
        let len = rest.iter().position(|b| !stands(b)).unwrap_or(rest.len());
        let unusual = match rest.get(..len) {
            Some([b' ', ..] | [.., b' '] | [] | [b'-'] | [b'-', b' ', ..]) | None => true,
            // It would go on after a colon without a blank.
            _ => rest.get(len) == Some(&b':') && !matches!(rest.get(len + 1), Some(b' ' | b'\n')),
        };
        if unusual {
            return Err(Stop::Unusual);
        }
        self.at += len;
        Ok(())
    }

    fn put_key(&mut self, key: Scalar) -> Result<(), Stop> {
        if key.end - key.start > LONGEST_KEY {
            return Err(Stop::Unusual);
        }
        let text = self.text.get(key.start..key.end).unwrap_or_default();
        self.note(key.start);
        match text.first() {
            Some(b'"') => self.put(text)?,
            _ => {
                self.put(b"\"")?;
                self.put(text)?;
                self.put(b"\"")?;
            }
        }
        self.put(b":")
    }

    fn put_scalar(&mut self, scalar: Scalar) -> Result<(), Stop> {
        let text = self.text.get(scalar.start..scalar.end).unwrap_or_default();
        self.note(scalar.start);
        if text.first() == Some(&b'"') {
            return self.put(text);
        }
        // A plain scalar is ASCII.
        done(put_plain(self.output, core::str::from_utf8(text).unwrap_or_default(), self.either))
    }
}

/// Where a scalar stands, quotes included.
#[derive(Clone, Copy)]
struct Scalar {
    start: usize,
    end: usize,
}

fn done(status: Status) -> Result<(), Stop> {
    match status {
        Status::Ok => Ok(()),
        Status::Failed => Err(Stop::Failed),
    }
}
