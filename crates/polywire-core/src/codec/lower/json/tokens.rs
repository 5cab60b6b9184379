//! The tokens of JSON (RFC 8259): white space, strings, literals, numbers, and skipped values. The
//! kernels of this folder and the codecs `json` and `yaml` call it. It is independent of types, and
//! touches an [`Input`] and an [`Output`] only.
//!
//! Each function that reads skips the white space *in front of* its token and stops directly behind
//! the token.

use alloc::string::String;

use crate::program::{
    FaultKind, Input, Output, Status,
    kernels::{
        copy::{put_line, put_quoted, replace_by_rest},
        float::{Decimal, NotANumber, decimal},
        scan,
        utf8::Passed,
    },
};

pub(crate) use crate::program::kernels::{fail_at, unexpected};

/// The deepest nesting of brackets in a skipped value, even if the
/// [`Limits`](crate::program::Limits) allow more.
pub(crate) const MAX_DEPTH: u32 = 1024;

/// Fails because the next value has another kind than the type, or is missing.
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
    input.advance(len);
    rest.get(len).copied()
}

/// Skips a byte that must come.
#[inline]
pub(crate) fn expect(input: &mut Input<'_>, byte: u8) -> Status {
    if peek(input) != Some(byte) {
        return unexpected(input, byte);
    }
    input.advance(1);
    Status::Ok
}

/// Skips a byte if it comes.
#[inline]
pub(crate) fn accept(input: &mut Input<'_>, byte: u8) -> bool {
    let comes = peek(input) == Some(byte);
    if comes {
        input.advance(1);
    }
    comes
}

/// Skips `null`, `true` or `false` if it comes.
#[inline]
pub(crate) fn accept_word(input: &mut Input<'_>, word: &[u8]) -> bool {
    if peek(input) != word.first().copied() || !input.rest().starts_with(word) {
        return false;
    }
    // `nullx` is refused when the delimiter behind the value is read.
    input.advance(word.len());
    true
}

/// Reads a number at the position. White space was skipped before: callers use [`peek`] to tell
/// numbers from strings.
#[inline(always)]
pub(crate) fn number<'a>(input: &mut Input<'a>) -> Result<(Decimal, &'a [u8]), Status> {
    let text = input.rest();
    match decimal(text) {
        Ok(number) => {
            input.advance(number.len);
            Ok((number, text))
        }
        Err(NotANumber(0)) => Err(wrong_kind(input)),
        Err(NotANumber(at)) => {
            input.advance(at);
            Err(unexpected(input, b'0'))
        }
    }
}

/// A string as written between its quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw<'a> {
    /// All escapes in it are valid.
    text: &'a str,
    escaped: bool,
}

/// Reads a string and checks it.
#[inline(always)]
pub(crate) fn string<'a>(input: &mut Input<'a>) -> Result<Raw<'a>, Status> {
    if peek(input) != Some(b'"') {
        return Err(wrong_kind(input));
    }
    let [_, rest @ ..] = input.rest() else { return Err(wrong_kind(input)) };
    let clean = scan::clean(rest);
    if let Some(text) = clean.as_ascii()
        && clean.rest().first() == Some(&b'"')
    {
        input.advance(text.len() + 2);
        return Ok(Raw { text, escaped: false });
    }
    other_string(input, Passed::begin(clean))
}

/// Reads the rest of a string that has escapes or is not ASCII. The bytes in front of the first
/// escape were passed, if they are UTF-8.
#[inline(never)]
fn other_string<'a>(input: &mut Input<'a>, passed: Result<Passed<'a>, usize>) -> Result<Raw<'a>, Status> {
    input.advance(1);
    let mut passed = passed.map_err(|good| fail_at(input, good, FaultKind::BadText, 0, 0))?;
    let mut escaped = false;
    loop {
        let (at, rest) = (passed.len(), passed.rest());
        let escape = match rest.first() {
            Some(b'"') => break,
            Some(b'\\') => unescape(rest),
            Some(control) => return Err(fail_at(input, at, FaultKind::Syntax, b'"'.into(), (*control).into())),
            None => return Err(fail_at(input, at, FaultKind::Truncated, 1, 0)),
        };
        let bad_text = |good| (good, FaultKind::BadText);
        if let Err((ahead, kind)) = escape.and_then(|(_, len)| passed.pass(len).map_err(bad_text)) {
            return Err(fail_at(input, at + ahead, kind, 0, rest.get(ahead).copied().unwrap_or(0).into()));
        }
        if let Err(good) = passed.pass_clean() {
            return Err(fail_at(input, passed.len() + good, FaultKind::BadText, 0, 0));
        }
        escaped = true;
    }
    let text = passed.text();
    input.advance(text.len() + 1);
    Ok(Raw { text, escaped })
}

/// Decodes an escape: returns the character, and the length of the escape. The error has the offset
/// and the kind of fault.
#[inline(always)]
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
    /// The text with its escapes.
    pub(crate) fn as_str(self) -> &'a str {
        self.text
    }

    /// True if there are escapes in the text.
    pub(crate) fn is_escaped(self) -> bool {
        self.escaped
    }

    /// The characters.
    pub(crate) fn chars(self) -> impl Iterator<Item = char> + 'a {
        let mut rest = self.text;
        core::iter::from_fn(move || {
            let first = rest.chars().next()?;
            let (c, len) = if first == '\\' { unescape(rest.as_bytes()).ok()? } else { (first, first.len_utf8()) };
            rest = rest.get(len..)?;
            Some(c)
        })
    }

    /// The unescaped string: the text itself, or written to `buffer`. None if the buffer is too
    /// short.
    pub(crate) fn plain<'b>(self, buffer: &'b mut [u8]) -> Option<&'b [u8]>
    where
        'a: 'b,
    {
        if !self.escaped {
            return Some(self.text.as_bytes());
        }
        let mut len = 0;
        for c in self.chars() {
            let room = buffer.get_mut(len..len + c.len_utf8())?;
            len += c.encode_utf8(room).len();
        }
        buffer.get(..len)
    }

    /// Replaces the content of `target`, charging for its growth.
    #[inline]
    pub(crate) fn copy_to(self, input: &mut Input<'_>, target: &mut String) -> Status {
        match self.text {
            // An empty string needs no memory.
            "" => {
                target.clear();
                Status::Ok
            }
            _ if self.escaped => self.copy_escaped(input, target),
            text => input.set_text(target, text),
        }
    }

    #[cold]
    fn copy_escaped(self, input: &mut Input<'_>, target: &mut String) -> Status {
        // An unescaped text is never longer than the escaped one.
        if input.make_room(target, self.text.len()) == Status::Failed {
            return Status::Failed;
        }
        let mut rest = self.text;
        while let Some(at) = rest.as_bytes().iter().position(|b| *b == b'\\') {
            let (plain, from) = rest.split_at(at);
            target.push_str(plain);
            let Ok((c, len)) = unescape(from.as_bytes()) else { break };
            target.push(c);
            let Some(more) = from.get(len..) else { break };
            rest = more;
        }
        target.push_str(rest);
        Status::Ok
    }
}

/// Writes a string with its quotes and escapes.
#[inline]
pub(crate) fn put_string(output: &mut Output<'_>, text: &str) -> Status {
    let bytes = text.as_bytes();
    if scan::is_clean(bytes) { put_quoted(output, b'"', bytes) } else { put_escaped(output, bytes) }
}

#[cold]
fn put_escaped(output: &mut Output<'_>, bytes: &[u8]) -> Status {
    let mut rest = bytes;
    let mut status = output.put(b"\"");
    while status == Status::Ok {
        let clean = scan::clean(rest).len();
        status = output.put(&rest[..clean]);
        let Some(byte) = rest.get(clean).filter(|_| status == Status::Ok) else { break };
        status = put_escape(output, *byte);
        rest = &rest[clean + 1..];
    }
    status.then(|| output.put(b"\""))
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

/// Skips a value of any kind, and checks all of it: grammar of RFC 8259, UTF-8, surrogate pairs.
pub(crate) fn skip(input: &mut Input<'_>) -> Status {
    let deepest = input.levels_left().min(MAX_DEPTH);
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

/// Skips a value, or the beginning of an array or object: true if a value follows inside.
fn skip_begin(input: &mut Input<'_>, open: &mut Brackets, deepest: u32) -> Result<bool, Status> {
    let close = match peek(input) {
        Some(b'{') => b'}',
        Some(b'[') => b']',
        _ => return skip_scalar(input).map(|()| false),
    };
    if open.depth >= deepest {
        return Err(input.fail(FaultKind::TooDeep, deepest.into(), u64::from(deepest) + 1));
    }
    input.advance(1);
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

/// Reads a member's name and the colon behind it.
#[inline]
pub(crate) fn member_name<'a>(input: &mut Input<'a>) -> Result<Raw<'a>, Status> {
    if peek(input) != Some(b'"') {
        return Err(unexpected(input, b'"'));
    }
    let name = string(input)?;
    expect(input, b':').ok().map(|()| name)
}

/// The stack of open brackets: a bit for each, set for `{`.
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

/// Checks that only white space follows.
pub(crate) fn end(input: &mut Input<'_>) -> Status {
    match peek(input) {
        None => Status::Ok,
        Some(_) => {
            let left = input.remaining() as u64;
            input.fail(FaultKind::Trailing, 0, left)
        }
    }
}

/// Rewrites the output from `start` on, which has no white space, with line breaks and two blanks
/// of indentation per level.
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
            b'{' | b'[' | b',' => {
                depth += usize::from(byte != b',');
                output.put(&[byte]).then(|| put_line(output, depth))
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                put_line(output, depth).then(|| output.put(&[byte]))
            }
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
    replace_by_rest(output, start, end);
    Status::Ok
}

#[cfg(test)]
mod tests {
    use alloc::{string::String, vec::Vec};

    use super::*;
    use crate::program::Limits;

    #[test]
    fn each_token_is_read_and_written() {
        let limits = Limits::default();
        Input::lend(br#" {"a\u0062": [1, true], "n": 2.5e0} "#, &limits, |input| {
            assert_eq!((expect(input, b'{'), peek(input)), (Status::Ok, Some(b'"')));
            let name: Raw = member_name(input).unwrap();
            assert!(name.is_escaped() && name.chars().eq("ab".chars()) && name.as_str().len() == 7);
            assert_eq!(name.plain(&mut [0; 8]), Some(&b"ab"[..]));
            assert_eq!(skip(input), Status::Ok);
            assert!(accept(input, b','));
            let n = member_name(input).unwrap();
            let mut text = String::new();
            assert_eq!((n.copy_to(input, &mut text), text.as_str()), (Status::Ok, "n"));
            assert_eq!(peek(input), Some(b'2'));
            let (number, digits) = number(input).unwrap();
            assert_eq!(number.to_f64(digits), 2.5);
            assert_eq!((expect(input, b'}'), end(input)), (Status::Ok, Status::Ok));
        });
        Input::lend(b"null x", &limits, |input| {
            assert!(accept_word(input, b"null") && string(input).is_err());
            assert_eq!(unexpected(input, b','), Status::Failed);
            assert_eq!(wrong_kind(input), Status::Failed);
            assert_eq!(fail_at(input, 1, FaultKind::Syntax, 0, 0), Status::Failed);
        });

        let mut bytes = Vec::new();
        let _ = Output::lend(&mut bytes, &limits, |output| {
            assert_eq!(put_string(output, "a\"b"), Status::Ok);
            assert_eq!(output.written(), br#""a\"b""#);
            output.truncate(0);
            assert_eq!(output.put(b"[1]"), Status::Ok);
            indent(output, 0)
        });
        assert_eq!(bytes, b"[\n  1\n]");
    }
}
