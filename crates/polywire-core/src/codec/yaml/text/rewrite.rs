//! JSON, as the walk writes it, made to YAML. Numbers that are not finite come as the bare words
//! `NaN`, `Infinity` and `-Infinity`, which tells them from strings.

use super::{MAX_DEPTH, is_plain};
use crate::program::{
    FaultKind, Output, Status,
    kernels::copy::{put_again, put_line, replace_by_rest},
};

/// Keys that are longer stand behind a question mark: a simple key has at most 1024 characters
/// (YAML 1.2.2, section 7.4).
const LONGEST_KEY: usize = 1000;

/// Writes again in block style, a line for each member and element, what was written from `start`
/// on. Sequences of scalars stay on their line.
pub(crate) fn block(output: &mut Output<'_>, start: usize) -> Status {
    rewrite(output, start, true)
}

/// Writes again in flow style, all on one line, what was written from `start` on.
pub(crate) fn flow(output: &mut Output<'_>, start: usize) -> Status {
    rewrite(output, start, false)
}

fn rewrite(output: &mut Output<'_>, start: usize, block: bool) -> Status {
    let end = output.position();
    let mut writer = Writer { output, at: start, end, block, levels: [Level::Flow; MAX_DEPTH], depth: 0, columns: 0 };
    if writer.value(true) == Status::Failed {
        return Status::Failed;
    }
    while writer.at < end {
        if writer.next() == Status::Failed {
            return Status::Failed;
        }
    }
    replace_by_rest(output, start, end);
    Status::Ok
}

/// A collection that is open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    /// In brackets.
    Flow,
    /// In lines.
    Block,
}

struct Writer<'o, 'v> {
    output: &'o mut Output<'v>,
    /// The JSON that is left: from here up to `end`.
    at: usize,
    end: usize,
    block: bool,
    levels: [Level; MAX_DEPTH],
    depth: usize,
    /// Collections in lines that are open; each indents its entries by two blanks.
    columns: usize,
}

impl Writer<'_, '_> {
    fn peek(&mut self) -> u8 {
        let at = self.at;
        self.output.written().get(at).copied().filter(|_| at < self.end).unwrap_or(0)
    }

    fn put(&mut self, bytes: &[u8]) -> Status {
        self.output.put(bytes)
    }

    fn in_block(&self) -> bool {
        self.depth.checked_sub(1).and_then(|last| self.levels.get(last)) == Some(&Level::Block)
    }

    /// What follows a value: a comma, a bracket.
    fn next(&mut self) -> Status {
        let byte = self.peek();
        self.at += 1;
        match byte {
            b',' => self.entry(),
            _ => {
                let in_block = self.in_block();
                self.depth = self.depth.saturating_sub(1);
                self.columns -= usize::from(in_block);
                if in_block { Status::Ok } else { self.put(&[byte]) }
            }
        }
    }

    /// Another entry of the same collection.
    fn entry(&mut self) -> Status {
        // What is a key is told from what is an element by the colon behind it.
        let status = if self.in_block() { self.line() } else { self.put(b",") };
        if status == Status::Ok { self.entry_here() } else { status }
    }

    fn entry_here(&mut self) -> Status {
        match self.key_len() {
            Some(len) => self.member(len),
            None if self.in_block() => {
                let status = self.put(b"- ");
                if status == Status::Ok { self.value(true) } else { status }
            }
            None => self.value(true),
        }
    }

    /// Bytes of the JSON string that comes, quotes included, if a colon follows.
    fn key_len(&mut self) -> Option<usize> {
        let len = self.string_len()?;
        let at = self.at + len;
        (self.output.written().get(at) == Some(&b':') && at < self.end).then_some(len)
    }

    fn string_len(&mut self) -> Option<usize> {
        let (at, end) = (self.at, self.end);
        let text = self.output.written().get(at..end)?;
        let mut len = 1;
        if text.first() != Some(&b'"') {
            return None;
        }
        loop {
            match text.get(len)? {
                b'"' => return Some(len + 1),
                b'\\' => len += 2,
                _ => len += 1,
            }
        }
    }

    fn member(&mut self, key_len: usize) -> Status {
        let long = key_len > LONGEST_KEY;
        let mut status = if long { self.put(b"? ") } else { Status::Ok };
        if status == Status::Ok {
            status = self.string(key_len);
        }
        self.at += 1;
        if status == Status::Ok && long {
            status = if self.in_block() { self.line() } else { self.put(b" ") };
        }
        if status == Status::Ok {
            status = self.put(b":");
        }
        if status == Status::Ok { self.value(false) } else { status }
    }

    /// A value, behind a dash or at the beginning (`here`), or behind a colon.
    fn value(&mut self, here: bool) -> Status {
        let byte = self.peek();
        let blank = |writer: &mut Self| if here { Status::Ok } else { writer.put(b" ") };
        if !matches!(byte, b'{' | b'[') {
            let status = blank(self);
            return if status == Status::Ok { self.scalar(byte) } else { status };
        }
        self.at += 1;
        let first = self.peek();
        if matches!(first, b'}' | b']') {
            self.at += 1;
            let status = blank(self);
            return if status == Status::Ok { self.put(&[byte, first]) } else { status };
        }
        let in_lines =
            self.block && (self.depth == 0 || self.in_block()) && (byte == b'{' || matches!(first, b'{' | b'['));
        let level = if in_lines { Level::Block } else { Level::Flow };
        let Some(slot) = self.levels.get_mut(self.depth) else {
            return self.output.fail(FaultKind::TooDeep, MAX_DEPTH as u64, MAX_DEPTH as u64 + 1);
        };
        *slot = level;
        self.depth += 1;
        let status = match in_lines {
            true => {
                self.columns += 1;
                if here { Status::Ok } else { self.line() }
            }
            false => {
                let status = blank(self);
                if status == Status::Ok { self.put(&[byte]) } else { status }
            }
        };
        if status == Status::Ok { self.entry_here() } else { status }
    }

    /// A new line, up to the column of the innermost collection's entries.
    fn line(&mut self) -> Status {
        put_line(self.output, self.columns.saturating_sub(1))
    }

    fn scalar(&mut self, first: u8) -> Status {
        if first == b'"' {
            let len = self.string_len().unwrap_or(1);
            return self.string(len);
        }
        let (at, end) = (self.at, self.end);
        let text = self.output.written().get(at..end).unwrap_or_default();
        let len = text.iter().position(|b| matches!(b, b',' | b']' | b'}')).unwrap_or(text.len());
        let named: Option<&[u8]> = match text.get(..len) {
            Some(b"NaN") => Some(b".nan"),
            Some(b"Infinity") => Some(b".inf"),
            Some(b"-Infinity") => Some(b"-.inf"),
            _ => None,
        };
        self.at += len;
        match named {
            Some(name) => self.put(name),
            None => self.number(at, len),
        }
    }

    /// A number, `null`, `true` or `false`. YAML 1.1 takes a number with an exponent for one only
    /// if it has a point, and a sign behind the `e`.
    fn number(&mut self, at: usize, len: usize) -> Status {
        let text = self.output.written().get(at..at + len).unwrap_or_default();
        let exponent =
            text.iter().position(|b| *b == b'e').filter(|_| text.first().is_some_and(|b| *b != b't' && *b != b'f'));
        let Some(mantissa) = exponent else { return put_again(self.output, at..at + len) };
        let has_point = text[..mantissa].contains(&b'.');
        let has_sign = matches!(text.get(mantissa + 1), Some(b'+' | b'-'));
        let middle: &[u8] = match (has_point, has_sign) {
            (true, true) => b"e",
            (true, false) => b"e+",
            (false, true) => b".0e",
            (false, false) => b".0e+",
        };
        let mut status = put_again(self.output, at..at + mantissa);
        if status == Status::Ok {
            status = self.put(middle);
        }
        if status == Status::Ok { put_again(self.output, at + mantissa + 1..at + len) } else { status }
    }

    /// A JSON string: without its quotes if it can be, else with more escapes than JSON asks for.
    fn string(&mut self, len: usize) -> Status {
        let at = self.at;
        self.at += len;
        let text = self.output.written().get(at..at + len).unwrap_or_default();
        if text.get(1..len.saturating_sub(1)).is_some_and(is_plain) {
            return put_again(self.output, at + 1..at + len - 1);
        }
        let (mut done, mut from) = (at, at);
        while let Some(unprintable) = self.unprintable(from, at + len) {
            let (place, bytes, code) = unprintable;
            const HEX: &[u8; 16] = b"0123456789abcdef";
            let digit = |shift: u32| HEX[(code >> shift) as usize & 15];
            let escape = [b'\\', b'u', digit(12), digit(8), digit(4), digit(0)];
            if put_again(self.output, done..place) == Status::Failed || self.put(&escape) == Status::Failed {
                return Status::Failed;
            }
            (done, from) = (place + bytes, place + bytes);
        }
        put_again(self.output, done..at + len)
    }

    /// The next character that YAML wants escaped, or that some take for a line break: where, its
    /// bytes, its code.
    fn unprintable(&mut self, from: usize, to: usize) -> Option<(usize, usize, u32)> {
        let text = self.output.written().get(from..to)?;
        let mut at = 0;
        loop {
            at += text.get(at..)?.iter().position(|b| matches!(b, 0x7F | 0xC2 | 0xE2 | 0xEF))?;
            let (bytes, code) = match text.get(at..)? {
                [0x7F, ..] => (1, 0x7F),
                [0xC2, b @ 0x80..=0x9F, ..] => (2, u32::from(*b)),
                [0xE2, 0x80, b @ 0xA8..=0xA9, ..] => (3, 0x2000 + u32::from(*b) - 0x80),
                [0xEF, 0xBB, 0xBF, ..] => (3, 0xFEFF),
                [0xEF, 0xBF, b @ 0xBE..=0xBF, ..] => (3, 0xFF40 + u32::from(*b)),
                _ => {
                    at += 1;
                    continue;
                }
            };
            return Some((from + at, bytes, code));
        }
    }
}
