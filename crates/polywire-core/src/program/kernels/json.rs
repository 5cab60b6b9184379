//! The tokens of JSON (RFC 8259): white space, strings, literals, numbers, and values to be passed
//! over.
//!
//! Each function that reads passes over white space *in front of* what it reads and stops right
//! behind it.

use alloc::string::String;

use super::{
    super::{FaultKind, Input, Output, Status},
    copy_short,
    float::{Decimal, NotANumber, decimal},
    scan,
};

/// Brackets inside each other that are passed over, whatever the [`Limits`](crate::program::Limits)
/// allow.
pub(crate) const MAX_DEPTH: u32 = 1024;

/// Fails `ahead` bytes from here.
#[cold]
pub(crate) fn fail_at(input: &mut Input<'_>, ahead: usize, kind: FaultKind, expected: u64, got: u64) -> Status {
    input.pos = input.pos.saturating_add(ahead).min(input.end);
    input.fail(kind, expected, got)
}

/// Something else comes than `expected`, or nothing.
#[cold]
pub(crate) fn unexpected(input: &mut Input<'_>, expected: u8) -> Status {
    match input.rest().first() {
        Some(got) => input.fail(FaultKind::Syntax, expected.into(), (*got).into()),
        None => input.fail(FaultKind::Truncated, 1, 0),
    }
}

/// A value of another kind comes than the type has, or none.
#[cold]
pub(crate) fn wrong_kind(input: &mut Input<'_>) -> Status {
    match input.rest().first() {
        Some(got @ (b'"' | b'{' | b'[' | b't' | b'f' | b'n' | b'-' | b'0'..=b'9')) => {
            input.fail(FaultKind::WrongKind, 0, (*got).into())
        }
        _ => unexpected(input, 0),
    }
}

/// The next byte that is no white space.
#[inline]
pub(crate) fn peek(input: &mut Input<'_>) -> Option<u8> {
    match input.rest().first() {
        Some(byte) if *byte > b' ' => Some(*byte),
        _ => behind_space(input),
    }
}

fn behind_space(input: &mut Input<'_>) -> Option<u8> {
    let rest = input.rest();
    let len = rest.iter().position(|b| !matches!(b, b' ' | b'\n' | b'\r' | b'\t')).unwrap_or(rest.len());
    input.pos += len;
    rest.get(len).copied()
}

/// Passes over a byte that must come.
#[inline]
pub(crate) fn expect(input: &mut Input<'_>, byte: u8) -> Status {
    if peek(input) != Some(byte) {
        return unexpected(input, byte);
    }
    input.pos += 1;
    Status::Ok
}

/// Passes over a byte if it comes.
#[inline]
pub(crate) fn accept(input: &mut Input<'_>, byte: u8) -> bool {
    let comes = peek(input) == Some(byte);
    input.pos += usize::from(comes);
    comes
}

/// Passes over `null`, `true` or `false` if it comes.
#[inline]
pub(crate) fn accept_word(input: &mut Input<'_>, word: &[u8]) -> bool {
    if peek(input) != word.first().copied() || !input.rest().starts_with(word) {
        return false;
    }
    // `nullx` is caught by whoever reads what must follow a value.
    input.pos += word.len();
    true
}

/// A number.
#[inline]
pub(crate) fn number<'a>(input: &mut Input<'a>) -> Result<(Decimal, &'a [u8]), Status> {
    match peek(input) {
        Some(b'-' | b'0'..=b'9') => {}
        _ => return Err(wrong_kind(input)),
    }
    let text = input.rest();
    match decimal(text) {
        Ok(number) => {
            input.pos += number.len;
            Ok((number, text))
        }
        Err(NotANumber(at)) => {
            input.pos += at;
            Err(unexpected(input, b'0'))
        }
    }
}

/// A string as it stands between its quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw<'a> {
    /// Valid UTF-8 with valid escapes: copying relies on it, so that only this module makes one.
    bytes: &'a [u8],
    escaped: bool,
}

/// A string, checked.
#[inline]
pub(crate) fn string<'a>(input: &mut Input<'a>) -> Result<Raw<'a>, Status> {
    if peek(input) != Some(b'"') {
        return Err(wrong_kind(input));
    }
    input.pos += 1;
    let rest = input.rest();
    let clean = scan::clean(rest);
    if rest.get(clean.len) == Some(&b'"') && clean.ascii {
        input.pos += clean.len + 1;
        return Ok(Raw { bytes: &rest[..clean.len], escaped: false });
    }
    long_string(input)
}

/// The same for strings that are not plain; the position is behind the opening quote.
#[inline(never)]
fn long_string<'a>(input: &mut Input<'a>) -> Result<Raw<'a>, Status> {
    let whole = input.rest();
    let (mut at, mut escaped) = (0, false);
    loop {
        let rest = &whole[at..];
        let clean = scan::clean(rest);
        if !clean.ascii
            && let Err(error) = core::str::from_utf8(&rest[..clean.len])
        {
            return Err(fail_at(input, at + error.valid_up_to(), FaultKind::BadText, 0, 0));
        }
        at += clean.len;
        match whole.get(at) {
            Some(b'"') => break,
            Some(b'\\') => match unescape(&whole[at..]) {
                Ok((_, len)) => at += len,
                Err((ahead, kind)) => {
                    let got = whole.get(at + ahead).copied().unwrap_or(0);
                    return Err(fail_at(input, at + ahead, kind, 0, got.into()));
                }
            },
            Some(control) => return Err(fail_at(input, at, FaultKind::Syntax, b'"'.into(), (*control).into())),
            None => return Err(fail_at(input, at, FaultKind::Truncated, 1, 0)),
        }
        escaped = true;
    }
    input.pos += at + 1;
    Ok(Raw { bytes: &whole[..at], escaped })
}

/// The character that an escape stands for, and its bytes. The error says where it is wrong, and
/// how.
fn unescape(bytes: &[u8]) -> Result<(char, usize), (usize, FaultKind)> {
    let short = |c| Ok((c, 2));
    match bytes.get(1) {
        Some(b'"') => short('"'),
        Some(b'\\') => short('\\'),
        Some(b'/') => short('/'),
        Some(b'b') => short('\u{8}'),
        Some(b'f') => short('\u{c}'),
        Some(b'n') => short('\n'),
        Some(b'r') => short('\r'),
        Some(b't') => short('\t'),
        Some(b'u') => code_point(bytes),
        Some(_) => Err((1, FaultKind::Syntax)),
        None => Err((1, FaultKind::Truncated)),
    }
}

fn code_point(bytes: &[u8]) -> Result<(char, usize), (usize, FaultKind)> {
    let first = hex4(bytes, 2)?;
    if let Some(c) = char::from_u32(first) {
        return Ok((c, 6));
    }
    // Half of a surrogate pair: the other half must follow.
    if first >= 0xDC00 || bytes.get(6..8) != Some(b"\\u") {
        return Err((0, FaultKind::BadText));
    }
    let second = hex4(bytes, 8)?;
    let low = second.checked_sub(0xDC00).filter(|low| *low < 0x400).ok_or((0, FaultKind::BadText))?;
    let c = char::from_u32(0x10000 + ((first - 0xD800) << 10) + low);
    c.map(|c| (c, 12)).ok_or((0, FaultKind::BadText))
}

fn hex4(bytes: &[u8], at: usize) -> Result<u32, (usize, FaultKind)> {
    (at..at + 4).try_fold(0, |value, at| match bytes.get(at) {
        Some(byte) => match char::from(*byte).to_digit(16) {
            Some(digit) => Ok(value << 4 | digit),
            None => Err((at, FaultKind::Syntax)),
        },
        None => Err((at, FaultKind::Truncated)),
    })
}

impl<'a> Raw<'a> {
    /// The bytes, escapes as they are.
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// There are escapes among the bytes.
    pub(crate) fn is_escaped(self) -> bool {
        self.escaped
    }

    /// The characters.
    pub(crate) fn chars(self) -> impl Iterator<Item = char> + 'a {
        let mut rest = self.bytes;
        core::iter::from_fn(move || {
            let (c, len) = match rest.first()? {
                b'\\' => unescape(rest).ok()?,
                first => {
                    let len = match first {
                        0..0x80 => 1,
                        0x80..0xE0 => 2,
                        0xE0..0xF0 => 3,
                        _ => 4,
                    };
                    (core::str::from_utf8(rest.get(..len)?).ok()?.chars().next()?, len)
                }
            };
            rest = rest.get(len..)?;
            Some(c)
        })
    }

    /// The string without escapes: as it stands, or written to `buffer`. None if that is too short.
    pub(crate) fn plain<'b>(self, buffer: &'b mut [u8]) -> Option<&'b [u8]>
    where
        'a: 'b,
    {
        if !self.escaped {
            return Some(self.bytes);
        }
        let mut len = 0;
        for c in self.chars() {
            let room = buffer.get_mut(len..len + c.len_utf8())?;
            len += c.encode_utf8(room).len();
        }
        buffer.get(..len)
    }

    /// Replaces `target`'s content, charging for what it grows by.
    #[inline]
    pub(crate) fn copy_to(self, input: &mut Input<'_>, target: &mut String) -> Status {
        target.clear();
        // Escapes only ever shrink.
        if self.bytes.len() > target.capacity() && grow(input, target, self.bytes.len()) == Status::Failed {
            return Status::Failed;
        }
        if self.escaped {
            return self.copy_escaped(target);
        }
        // SAFETY: `string` has found the bytes to be UTF-8; there is room for them, and they cannot
        // overlap a string borrowed mutably.
        unsafe {
            let vector = target.as_mut_vec();
            copy_short(self.bytes, vector.as_mut_ptr());
            vector.set_len(self.bytes.len());
        }
        Status::Ok
    }

    #[cold]
    fn copy_escaped(self, target: &mut String) -> Status {
        let mut rest = self.bytes;
        while !rest.is_empty() {
            let plain = rest.iter().position(|b| *b == b'\\').unwrap_or(rest.len());
            let (clean, more) = rest.split_at(plain);
            // SAFETY: `string` has found the bytes between escapes to be UTF-8.
            target.push_str(unsafe { core::str::from_utf8_unchecked(clean) });
            rest = more;
            if let Ok((c, len)) = unescape(more) {
                target.push(c);
                rest = &more[len..];
            }
        }
        Status::Ok
    }
}

#[cold]
fn grow(input: &mut Input<'_>, target: &mut String, len: usize) -> Status {
    if input.charge(len) == Status::Failed {
        return Status::Failed;
    }
    match target.try_reserve(len) {
        Ok(()) => Status::Ok,
        Err(_) => input.fail(FaultKind::OutOfMemory, len as u64, 0),
    }
}

/// Writes a string with its quotes and escapes.
#[inline]
pub(crate) fn put_string(output: &mut Output<'_>, text: &str) -> Status {
    let bytes = text.as_bytes();
    if output.reserve(bytes.len() + 2) == Status::Failed {
        return Status::Failed;
    }
    if clean_short(bytes) {
        // SAFETY: there is room for the text and two quotes.
        unsafe {
            let to = output.here();
            *to = b'"';
            copy_short(bytes, to.add(1));
            *to.add(bytes.len() + 1) = b'"';
        }
        output.pos += bytes.len() + 2;
        return Status::Ok;
    }
    put_escaped(output, bytes)
}

/// Nothing in it needs an escape. Two overlapping words see all of a short string.
#[inline]
fn clean_short(bytes: &[u8]) -> bool {
    let len = bytes.len();
    match len {
        0..8 => {
            let mut word = [b' '; 8];
            // SAFETY: fewer than eight bytes.
            unsafe { copy_short(bytes, word.as_mut_ptr()) };
            scan::stops(u64::from_le_bytes(word)) == 0
        }
        8..16 => {
            // SAFETY: eight bytes are there, from the start and up to the end.
            let (head, tail) = unsafe {
                (
                    bytes.as_ptr().cast::<u64>().read_unaligned(),
                    bytes.as_ptr().add(len - 8).cast::<u64>().read_unaligned(),
                )
            };
            scan::stops(head) | scan::stops(tail) == 0
        }
        _ => scan::clean(bytes).len == len,
    }
}

#[cold]
fn put_escaped(output: &mut Output<'_>, bytes: &[u8]) -> Status {
    let mut rest = bytes;
    let mut status = output.put(b"\"");
    while status == Status::Ok {
        let clean = scan::clean(rest).len;
        status = output.put(&rest[..clean]);
        let Some(byte) = rest.get(clean).filter(|_| status == Status::Ok) else { break };
        status = put_escape(output, *byte);
        rest = &rest[clean + 1..];
    }
    if status == Status::Ok { output.put(b"\"") } else { status }
}

fn put_escape(output: &mut Output<'_>, byte: u8) -> Status {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let short = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        0x0C => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        _ => {
            let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
            return output.put(&[b'\\', b'u', b'0', b'0', high, low]);
        }
    };
    output.put(&[b'\\', short])
}

/// Passes over a value of any kind, checking all of it: RFC 8259, UTF-8, escapes in pairs.
pub(crate) fn skip(input: &mut Input<'_>) -> Status {
    let deepest = input.depth_left.min(MAX_DEPTH);
    let mut open = Brackets::default();
    loop {
        match skip_begin(input, &mut open, deepest) {
            Ok(true) => continue,
            Ok(false) => {}
            Err(status) => return status,
        }
        loop {
            if open.depth == 0 {
                return Status::Ok;
            }
            let (close, next) = if open.is_object() { (b'}', b',') } else { (b']', b',') };
            if accept(input, next) {
                if open.is_object()
                    && let Err(status) = member_name(input)
                {
                    return status;
                }
                break;
            }
            if !accept(input, close) {
                return unexpected(input, close);
            }
            open.depth -= 1;
        }
    }
}

/// A value, or the beginning of one: true if another value comes inside.
fn skip_begin(input: &mut Input<'_>, open: &mut Brackets, deepest: u32) -> Result<bool, Status> {
    let close = match peek(input) {
        Some(b'{') => b'}',
        Some(b'[') => b']',
        _ => return skip_scalar(input).map(|()| false),
    };
    if open.depth >= deepest {
        return Err(input.fail(FaultKind::TooDeep, deepest.into(), u64::from(deepest) + 1));
    }
    input.pos += 1;
    if accept(input, close) {
        return Ok(false);
    }
    open.push(close == b'}');
    if close == b'}' {
        member_name(input)?;
    }
    Ok(true)
}

fn skip_scalar(input: &mut Input<'_>) -> Result<(), Status> {
    match peek(input) {
        Some(b'"') => string(input).map(|_| ()),
        Some(b'-' | b'0'..=b'9') => number(input).map(|_| ()),
        _ => {
            let known: [&[u8]; 3] = [b"null", b"true", b"false"];
            match known.iter().any(|word| accept_word(input, word)) {
                true => Ok(()),
                false => Err(unexpected(input, 0)),
            }
        }
    }
}

/// A member's name and the colon behind it.
#[inline]
pub(crate) fn member_name<'a>(input: &mut Input<'a>) -> Result<Raw<'a>, Status> {
    if peek(input) != Some(b'"') {
        return Err(unexpected(input, b'"'));
    }
    let name = string(input)?;
    match expect(input, b':') {
        Status::Ok => Ok(name),
        status => Err(status),
    }
}

/// Which brackets are open: a bit for each, set for `{`.
#[derive(Default)]
struct Brackets {
    objects: [u64; MAX_DEPTH as usize / 64],
    depth: u32,
}

impl Brackets {
    fn push(&mut self, object: bool) {
        let (word, bit) = (self.depth as usize / 64, self.depth % 64);
        self.objects[word] = self.objects[word] & !(1 << bit) | u64::from(object) << bit;
        self.depth += 1;
    }

    fn is_object(&self) -> bool {
        let last = self.depth - 1;
        self.objects[last as usize / 64] >> (last % 64) & 1 == 1
    }
}

/// Nothing but white space may follow.
pub(crate) fn end(input: &mut Input<'_>) -> Status {
    match peek(input) {
        None => Status::Ok,
        Some(_) => {
            let left = input.remaining() as u64;
            input.fail(FaultKind::Trailing, 0, left)
        }
    }
}

/// Writes again, with line breaks and two blanks of indentation a level, what was written without
/// blanks from `start` on.
pub(crate) fn indent(output: &mut Output<'_>, start: usize) -> Status {
    let end = output.position();
    let (mut depth, mut in_string, mut at) = (0usize, false, start);
    while at < end {
        let (byte, next) = (output.written()[at], output.written().get(at + 1).copied());
        at += 1;
        let status = match byte {
            _ if in_string => {
                in_string = byte != b'"';
                let escape = byte == b'\\' && at < end;
                at += usize::from(escape);
                if escape { output.put(&[byte, next.unwrap_or(0)]) } else { output.put(&[byte]) }
            }
            b'{' | b'[' if matches!(next, Some(b'}' | b']')) => {
                at += 1;
                output.put(&[byte, byte + 2])
            }
            b'{' | b'[' => {
                depth += 1;
                put_line(output, &[byte], depth, &[])
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                put_line(output, &[], depth, &[byte])
            }
            b',' => put_line(output, b",", depth, &[]),
            b':' => output.put(b": "),
            _ => {
                in_string = byte == b'"';
                output.put(&[byte])
            }
        };
        if status == Status::Failed {
            return status;
        }
    }
    let written = output.position();
    output.written().copy_within(end..written, start);
    output.truncate(start + (written - end));
    Status::Ok
}

fn put_line(output: &mut Output<'_>, before: &[u8], depth: usize, after: &[u8]) -> Status {
    let mut status = output.put(before);
    if status == Status::Ok {
        status = output.put(b"\n");
    }
    for _ in 0..depth {
        if status == Status::Ok {
            status = output.put(b"  ");
        }
    }
    if status == Status::Ok { output.put(after) } else { status }
}

#[cfg(test)]
mod tests {
    use alloc::{string::String, vec::Vec};

    use super::*;

    #[test]
    fn each_token_is_read_and_written() {
        use crate::program::{Limits, kernels::json};
        let limits = Limits::default();
        Input::lend(br#" {"a\u0062": [1, true], "n": 2.5e0} "#, &limits, |input| {
            assert_eq!((json::expect(input, b'{'), json::peek(input)), (Status::Ok, Some(b'"')));
            let name: Raw = json::member_name(input).unwrap();
            assert!(name.is_escaped() && name.chars().eq("ab".chars()) && name.bytes().len() == 7);
            assert_eq!(name.plain(&mut [0; 8]), Some(&b"ab"[..]));
            assert_eq!(json::skip(input), Status::Ok);
            assert!(json::accept(input, b','));
            let n = json::member_name(input).unwrap();
            let mut text = String::new();
            assert_eq!((n.copy_to(input, &mut text), text.as_str()), (Status::Ok, "n"));
            let (number, digits) = json::number(input).unwrap();
            assert_eq!(number.to_f64(digits), 2.5);
            assert_eq!((json::expect(input, b'}'), json::end(input)), (Status::Ok, Status::Ok));
        });
        Input::lend(b"null x", &limits, |input| {
            assert!(json::accept_word(input, b"null") && json::string(input).is_err());
            assert_eq!(json::unexpected(input, b','), Status::Failed);
            assert_eq!(json::wrong_kind(input), Status::Failed);
            assert_eq!(json::fail_at(input, 1, FaultKind::Syntax, 0, 0), Status::Failed);
        });

        let mut bytes = Vec::new();
        let _ = Output::lend(&mut bytes, &limits, |output| {
            assert_eq!(json::put_string(output, "a\"b"), Status::Ok);
            assert_eq!(output.written(), br#""a\"b""#);
            output.truncate(0);
            assert_eq!(output.put(b"[1]"), Status::Ok);
            json::indent(output, 0)
        });
        assert_eq!(bytes, b"[\n  1\n]");
    }
}
