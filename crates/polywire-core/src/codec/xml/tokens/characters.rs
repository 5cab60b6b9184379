//! Character data and attribute values.
//!
//! Characters that XML 1.0 has no way to say are written as `_xHHHH_`, and an underscore that would
//! begin such a thing as `_x005F_`: the rule of ISO/IEC 29500-1, 22.4.2.4, which leaves all
//! ordinary text alone.

use alloc::string::String;

use super::*;
use crate::program::{
    Limits, Output,
    kernels::{
        copy::put_short,
        scan::{self, Clean},
        utf8::Passed,
    },
};

/// The text of a value as it stands in the message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw<'a> {
    /// It is well-formed.
    text: &'a str,
    /// Byte of the message where it stands.
    start: usize,
    attribute: bool,
    /// There are references, comments, processing instructions or CDATA sections.
    markup: bool,
    /// It is not what it says: the above, line ends to be normalised, or characters that XML cannot
    /// say.
    special: bool,
}

/// The text of an element without children, or of an attribute, checked.
#[inline]
pub(crate) fn text<'a>(input: &mut Input<'a>) -> Result<Raw<'a>, Status> {
    match quote(input) {
        Some(quote) => attribute_text(input, quote),
        None => element_text(input),
    }
}

#[inline]
fn attribute_text<'a>(input: &mut Input<'a>, quote: u8) -> Result<Raw<'a>, Status> {
    let (clean, start) = (scan::markup(input.rest()), input.position());
    if let Some(text) = clean.as_ascii()
        && clean.rest().first() == Some(&quote)
    {
        input.advance(text.len() + 1);
        return Ok(Raw { text, start, attribute: true, markup: false, special: false });
    }
    let raw =
        long_text(Passed::begin(clean), clean.is_ascii(), start, Some(quote)).map_err(|wrong| wrong.report(input))?;
    input.advance(raw.text.len() + 1);
    Ok(raw)
}

#[inline]
fn element_text<'a>(input: &mut Input<'a>) -> Result<Raw<'a>, Status> {
    let name = own_name(input);
    if open(input)? {
        return Ok(Raw { text: "", start: input.position(), attribute: false, markup: false, special: false });
    }
    let (clean, start) = (scan::markup(input.rest()), input.position());
    let raw = match clean.as_ascii().filter(|_| clean.rest().starts_with(b"</")) {
        Some(text) => Raw { text, start, attribute: false, markup: false, special: false },
        None => text_without_children(input, clean, start)?,
    };
    input.advance(raw.text.len());
    close(input, name).ok().map(|()| raw)
}

/// The same for texts that are not plain.
fn text_without_children<'a>(input: &mut Input<'a>, clean: Clean<'a>, start: usize) -> Result<Raw<'a>, Status> {
    let raw = long_text(Passed::begin(clean), clean.is_ascii(), start, None).map_err(|wrong| wrong.report(input))?;
    if input.rest().get(raw.text.len() + 1).is_some_and(|b| *b != b'/') {
        input.advance(raw.text.len());
        return Err(wrong_kind(input));
    }
    Ok(raw)
}

/// Passes over what is in an element, up to a start tag (true) or end tag (false), which comes
/// next.
pub(super) fn inner(input: &mut Input<'_>) -> Result<bool, Status> {
    let (clean, start) = (scan::markup(input.rest()), input.position());
    let raw = long_text(Passed::begin(clean), clean.is_ascii(), start, None).map_err(|wrong| wrong.report(input))?;
    input.advance(raw.text.len());
    Ok(input.rest().get(1) != Some(&b'/'))
}

/// Passes over a comment or processing instruction between elements.
pub(super) fn aside(input: &mut Input<'_>) -> Result<(), Status> {
    let rest = input.rest();
    if rest.starts_with(b"<!D") {
        return Err(input.fail(FaultKind::Forbidden, 0, b'D'.into()));
    }
    if rest.starts_with(b"<![") {
        return Err(fail_at(input, 2, FaultKind::Syntax, b'-'.into(), b'['.into()));
    }
    let len = section(rest).map_err(|wrong| wrong.report(input))?;
    input.advance(len);
    Ok(())
}

/// What is wrong with a text, so many bytes from its start.
#[derive(Debug)]
struct Wrong {
    at: usize,
    kind: FaultKind,
    expected: u8,
    got: u8,
}

impl Wrong {
    fn new(bytes: &[u8], at: usize, expected: u8) -> Wrong {
        match bytes.get(at) {
            Some(got) => Wrong { at, kind: FaultKind::Syntax, expected, got: *got },
            None => Wrong { at: bytes.len(), kind: FaultKind::Truncated, expected: 1, got: 0 },
        }
    }

    fn bad_text(at: usize) -> Wrong {
        Wrong { at, kind: FaultKind::BadText, expected: 0, got: 0 }
    }

    fn behind(self, bytes: usize) -> Wrong {
        Wrong { at: self.at + bytes, ..self }
    }

    #[cold]
    fn report(self, input: &mut Input<'_>) -> Status {
        fail_at(input, self.at, self.kind, self.expected.into(), self.got.into())
    }
}

/// A text that was checked before, as [`Raw::as_str`] gave it.
pub(super) fn raw_at(text: &str, attribute: bool) -> Raw<'_> {
    Raw { text, start: 0, attribute, markup: true, special: true }
}

/// Everything up to the closing quote, or up to a tag. What is in front of the first byte that
/// needs attention was passed, if it is UTF-8; `ascii` says that it is ASCII.
fn long_text(
    passed: Result<Passed<'_>, usize>,
    mut ascii: bool,
    start: usize,
    quote: Option<u8>,
) -> Result<Raw<'_>, Wrong> {
    let mut passed = passed.map_err(Wrong::bad_text)?;
    let (bytes, mut before, mut markup, mut special) = (passed.whole(), 0, false, false);
    loop {
        if !ascii {
            let part = passed.text().as_bytes().get(before..).unwrap_or_default();
            no_noncharacter(part).map_err(|wrong| wrong.behind(before))?;
        }
        let (at, rest) = (passed.len(), passed.rest());
        let byte = *rest.first().ok_or_else(|| Wrong::new(bytes, at, 0))?;
        let len = match byte {
            b'<' if quote.is_some() => return Err(Wrong::new(bytes, at, b'"')),
            b'<' => match rest.get(1) {
                Some(b'!' | b'?') => section(rest).map_err(|wrong| wrong.behind(at))?,
                Some(_) => break,
                None => return Err(Wrong::new(bytes, at + 1, 0)),
            },
            b'&' => reference(rest).map_err(|wrong| wrong.behind(at))?.1,
            _ if Some(byte) == quote => break,
            b']' if quote.is_none() && rest.starts_with(b"]]>") => return Err(Wrong::new(bytes, at + 2, 0)),
            _ if byte < b' ' && !is_space(byte) => return Err(Wrong::new(bytes, at, 0)),
            _ => 1,
        };
        markup |= matches!(byte, b'<' | b'&');
        special |= match byte {
            b'\r' => true,
            b'\n' | b'\t' => quote.is_some(),
            b'_' => unspeakable(rest).is_some(),
            _ => false,
        };
        passed.pass(len).map_err(|good| Wrong::bad_text(at + good))?;
        before = at + len;
        ascii = passed.pass_markup().map_err(|good| Wrong::bad_text(before + good))?;
    }
    Ok(Raw { text: passed.text(), start, attribute: quote.is_some(), markup, special: special || markup })
}

/// Text without markup that is to be UTF-8 and without U+FFFE and U+FFFF.
fn plain_chars(bytes: &[u8]) -> Result<(), Wrong> {
    core::str::from_utf8(bytes).map_err(|error| Wrong::bad_text(error.valid_up_to()))?;
    no_noncharacter(bytes)
}

/// There is no U+FFFE and U+FFFF in UTF-8.
fn no_noncharacter(bytes: &[u8]) -> Result<(), Wrong> {
    let found = bytes.windows(3).position(|w| w[0] == 0xEF && w[1] == 0xBF && w[2] >= 0xBE);
    found.map_or(Ok(()), |at| Err(Wrong::bad_text(at)))
}

/// Bytes of the comment, processing instruction or CDATA section that comes.
fn section(bytes: &[u8]) -> Result<usize, Wrong> {
    let find = |from: usize, what: &[u8]| {
        let rest = bytes.get(from..).unwrap_or_default();
        rest.windows(what.len()).position(|w| w == what).map(|at| from + at).ok_or(Wrong::new(bytes, bytes.len(), 0))
    };
    let (from, to, len) = match bytes {
        [b'<', b'!', b'-', b'-', ..] => {
            let to = find(4, b"--")?;
            if bytes.get(to + 2) != Some(&b'>') {
                return Err(Wrong::new(bytes, to + 2, b'>'));
            }
            (4, to, to + 3)
        }
        [b'<', b'!', b'[', ..] => {
            if let Some(at) = differs(bytes, b"<![CDATA[") {
                return Err(Wrong::new(bytes, at, b'['));
            }
            let to = find(9, b"]]>")?;
            (9, to, to + 3)
        }
        [b'<', b'?', ..] => {
            let to = find(2, b"?>")?;
            instruction(bytes, to)?;
            (2, to, to + 2)
        }
        _ => return Err(Wrong::new(bytes, 2, b'-')),
    };
    any_chars(&bytes[from..to]).map_err(|wrong| wrong.behind(from))?;
    Ok(len)
}

/// A processing instruction has a name, which is not that of the declaration, and a blank behind it
/// if anything follows.
fn instruction(bytes: &[u8], to: usize) -> Result<(), Wrong> {
    let limits = Limits::default();
    let mut inside = Input::new(&bytes[..to], &limits);
    inside.advance(2);
    let target = name(&mut inside).map_err(|_| Wrong::new(bytes, 2, 0))?;
    if target.bytes(&inside).eq_ignore_ascii_case(b"xml") {
        return Err(Wrong::new(bytes, 2, 0));
    }
    match bytes.get(target.end) {
        Some(byte) if target.end < to && !is_space(*byte) => Err(Wrong::new(bytes, target.end, b' ')),
        _ => Ok(()),
    }
}

/// Characters that may stand in a document, markup or not.
fn any_chars(bytes: &[u8]) -> Result<(), Wrong> {
    if let Some(at) = bytes.iter().position(|b| *b < b' ' && !is_space(*b)) {
        return Err(Wrong::new(bytes, at, 0));
    }
    plain_chars(bytes)
}

fn differs(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    (0..wanted.len()).find(|at| bytes.get(*at) != wanted.get(*at))
}

/// The character that a reference stands for, and its bytes. There are no entities but the five of
/// the standard.
fn reference(bytes: &[u8]) -> Result<(char, usize), Wrong> {
    for (name, c) in [(&b"&lt;"[..], '<'), (b"&gt;", '>'), (b"&amp;", '&'), (b"&quot;", '"'), (b"&apos;", '\'')] {
        if bytes.starts_with(name) {
            return Ok((c, name.len()));
        }
    }
    let (start, radix) = match bytes {
        [b'&', b'#', b'x', ..] => (3, 16),
        [b'&', b'#', ..] => (2, 10),
        _ => return Err(Wrong::new(bytes, 1, 0)),
    };
    let (mut at, mut code) = (start, 0u32);
    while let Some(digit) = bytes.get(at).and_then(|b| char::from(*b).to_digit(radix)) {
        code = code.saturating_mul(radix).saturating_add(digit);
        at += 1;
    }
    if at == start || bytes.get(at) != Some(&b';') {
        return Err(Wrong::new(bytes, at, b';'));
    }
    match char::from_u32(code).filter(|c| !is_unspeakable(*c)) {
        Some(c) => Ok((c, at + 1)),
        None => Err(Wrong::bad_text(0)),
    }
}

/// XML has no way to say it.
pub(super) fn is_unspeakable(c: char) -> bool {
    matches!(c, '\0'..='\u{8}' | '\u{B}' | '\u{C}' | '\u{E}'..='\u{1F}' | '\u{FFFE}' | '\u{FFFF}')
}

/// The code of `_xHHHH_`, seven bytes.
pub(crate) fn escape_code(bytes: &[u8]) -> Option<u32> {
    let [b'_', b'x', a, b, c, d, b'_', ..] = bytes else { return None };
    [a, b, c, d].into_iter().try_fold(0, |code, digit| Some(code << 4 | char::from(*digit).to_digit(16)?))
}

/// `_xHHHH` with an underscore behind it, or with a character that is written as an escape and so
/// begins with one.
fn begins_escape(bytes: &[u8]) -> bool {
    let Some((start, behind)) = bytes.split_at_checked(ESCAPE_LEN - 1) else { return false };
    let is_escape = start.iter().enumerate().all(|(at, byte)| continues_escape(at, *byte));
    is_escape && first_char(behind).is_some_and(|c| c == '_' || is_unspeakable(c))
}

/// The character that `_xHHHH_` stands for: one that XML cannot say, or an underscore.
fn unspeakable(bytes: &[u8]) -> Option<char> {
    char::from_u32(escape_code(bytes)?).filter(|c| is_unspeakable(*c) || *c == '_')
}

/// The first character of valid UTF-8.
pub(super) fn first_char(bytes: &[u8]) -> Option<char> {
    let len = match bytes.first()? {
        0..0x80 => 1,
        0x80..0xE0 => 2,
        0xE0..0xF0 => 3,
        _ => 4,
    };
    core::str::from_utf8(bytes.get(..len)?).ok()?.chars().next()
}

impl<'a> Raw<'a> {
    /// The text as it stands in the message.
    pub(crate) fn as_str(self) -> &'a str {
        self.text
    }

    /// Byte of the message where it stands.
    pub(crate) fn start(self) -> usize {
        self.start
    }

    /// There are references, comments, processing instructions or CDATA sections in the text.
    pub(crate) fn has_markup(self) -> bool {
        self.markup
    }

    /// The text that is meant, piece by piece.
    pub(crate) fn pieces(self, take: &mut dyn FnMut(&str)) {
        let mut unescape = Unescape { held: [0; ESCAPE_LEN], len: 0, take };
        self.parsed(&mut |piece| unescape.push(piece));
        unescape.flush();
    }

    /// The text as an XML parser reports it, piece by piece: `_xHHHH_` stands as it is.
    pub(super) fn parsed(self, take: &mut dyn FnMut(&str)) {
        pieces(self.text, self.attribute, false, take);
    }

    /// The text that is meant: as it stands, or written to `buffer`. None if that is too short.
    pub(crate) fn plain<'b>(self, buffer: &'b mut [u8]) -> Option<&'b [u8]>
    where
        'a: 'b,
    {
        if !self.special {
            return Some(self.text.as_bytes());
        }
        let mut len = Some(0);
        self.pieces(&mut |piece| {
            len = len.and_then(|at| {
                buffer.get_mut(at..at + piece.len())?.copy_from_slice(piece.as_bytes());
                Some(at + piece.len())
            });
        });
        buffer.get(..len?)
    }

    /// The same without white space around it.
    pub(crate) fn token<'b>(self, buffer: &'b mut [u8]) -> Option<&'b [u8]>
    where
        'a: 'b,
    {
        self.plain(buffer).map(|text| text.trim_ascii())
    }

    /// Replaces `target`'s content, charging for what it grows by.
    #[inline]
    pub(crate) fn copy_to(self, input: &mut Input<'_>, target: &mut String) -> Status {
        if self.text.is_empty() {
            // It needs no memory.
            target.clear();
            return Status::Ok;
        }
        if !self.special {
            return input.set_text(target, self.text);
        }
        // What is meant is never longer than what stands there.
        if input.make_room(target, self.text.len()) == Status::Failed {
            return Status::Failed;
        }
        self.pieces(&mut |piece| target.push_str(piece));
        Status::Ok
    }
}

/// Bytes of `_xHHHH_`.
const ESCAPE_LEN: usize = 7;

/// Replaces `_xHHHH_` in parsed text. The escape is a rule about the text behind the parser, so one
/// may begin in one piece and end in another: a reference, a comment or the border of a CDATA
/// section may stand inside.
struct Unescape<'t> {
    /// The beginning of what may become an escape.
    held: [u8; ESCAPE_LEN],
    len: usize,
    take: &'t mut dyn FnMut(&str),
}

impl Unescape<'_> {
    fn push(&mut self, piece: &str) {
        let mut rest = piece;
        while !rest.is_empty() {
            if self.len == 0 {
                let clean = rest.find('_').unwrap_or(rest.len());
                let (before, from) = rest.split_at(clean);
                (self.take)(before);
                rest = from;
            }
            // Bytes of an escape are ASCII, so that the text is cut between characters.
            let goes_on = |byte: &u8| self.len < ESCAPE_LEN && continues_escape(self.len, *byte);
            match rest.as_bytes().first().filter(|byte| goes_on(byte)) {
                Some(byte) => {
                    self.held[self.len] = *byte;
                    self.len += 1;
                    rest = &rest[1..];
                }
                None => self.flush(),
            }
            if self.len == ESCAPE_LEN {
                self.replace();
            }
        }
    }

    /// A whole escape is held.
    fn replace(&mut self) {
        match unspeakable(&self.held) {
            Some(c) => {
                (self.take)(c.encode_utf8(&mut [0; 4]));
                self.len = 0;
            }
            // What it ends with may begin another.
            None => {
                self.len -= 1;
                self.flush();
                (self.held[0], self.len) = (b'_', 1);
            }
        }
    }

    /// What is held is no escape.
    fn flush(&mut self) {
        let held = self.held;
        let text = core::str::from_utf8(&held[..self.len]).unwrap_or_default();
        self.len = 0;
        (self.take)(text);
    }
}

/// The byte may stand at `at` in `_xHHHH_`.
fn continues_escape(at: usize, byte: u8) -> bool {
    match at {
        0 | 6 => byte == b'_',
        1 => byte == b'x',
        _ => byte.is_ascii_hexdigit(),
    }
}

fn pieces(text: &str, attribute: bool, literal: bool, take: &mut dyn FnMut(&str)) {
    let mut rest = text;
    let is_stop = |byte: u8| match byte {
        b'\r' => true,
        b'<' | b'&' => !literal,
        b'\n' | b'\t' => attribute,
        _ => false,
    };
    while !rest.is_empty() {
        let clean = rest.bytes().position(is_stop).unwrap_or(rest.len());
        let (before, from) = rest.split_at(clean);
        take(before);
        let Some(stop) = from.bytes().next() else { return };
        let len = match stop {
            b'&' => reference(from.as_bytes()).map_or(1, |(c, len)| {
                take(c.encode_utf8(&mut [0; 4]));
                len
            }),
            b'<' => {
                let len = section(from.as_bytes()).unwrap_or(from.len());
                if let Some(inside) = from.get(9..len.saturating_sub(3)).filter(|_| from.starts_with("<![")) {
                    pieces(inside, false, true, take);
                }
                len
            }
            b'\r' => {
                take(if attribute { " " } else { "\n" });
                1 + usize::from(from.starts_with("\r\n"))
            }
            _ => {
                take(" ");
                1
            }
        };
        rest = from.get(len..).unwrap_or_default();
    }
}

/// Writes character data.
#[inline]
pub(crate) fn put_text(output: &mut Output<'_>, text: &str) -> Status {
    put(output, text, false)
}

/// Writes an attribute's value, without its quotes.
#[inline]
pub(crate) fn put_attribute(output: &mut Output<'_>, text: &str) -> Status {
    put(output, text, true)
}

/// Writes what [`Raw::parsed`] gave, with the same meaning: `_xHHHH_` is not escaped once more.
pub(super) fn put_parsed(output: &mut Output<'_>, text: &str, attribute: bool) -> Status {
    put_escaped(output, text, attribute, false)
}

#[inline(always)]
fn put(output: &mut Output<'_>, text: &str, attribute: bool) -> Status {
    let bytes = text.as_bytes();
    let clean = scan::markup(bytes);
    if clean.len() < bytes.len() || !clean.is_ascii() {
        return put_escaped(output, text, attribute, true);
    }
    put_short(output, bytes)
}

fn put_escaped(output: &mut Output<'_>, text: &str, attribute: bool, underscores: bool) -> Status {
    let (bytes, mut done, mut at) = (text.as_bytes(), 0, 0);
    while let Some(byte) = bytes.get(at) {
        let instead: &[u8] = match byte {
            b'<' => b"&lt;",
            b'>' => b"&gt;",
            b'&' => b"&amp;",
            b'\r' => b"&#13;",
            b'"' if attribute => b"&quot;",
            b'\n' if attribute => b"&#10;",
            b'\t' if attribute => b"&#9;",
            b'\n' | b'\t' => b"",
            b'_' if underscores && begins_escape(&bytes[at..]) => b"_x005F_",
            0xEF if bytes.get(at + 1) == Some(&0xBF) && bytes.get(at + 2) == Some(&0xBE) => b"_xFFFE_",
            0xEF if bytes.get(at + 1) == Some(&0xBF) && bytes.get(at + 2) == Some(&0xBF) => b"_xFFFF_",
            0..b' ' => {
                const HEX: &[u8; 16] = b"0123456789ABCDEF";
                &[b'_', b'x', b'0', b'0', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)], b'_']
            }
            _ => b"",
        };
        let len = if *byte == 0xEF { 3 } else { 1 };
        if !instead.is_empty() {
            if output.put(&bytes[done..at]) == Status::Failed || output.put(instead) == Status::Failed {
                return Status::Failed;
            }
            done = at + len;
        }
        at += len;
    }
    output.put(&bytes[done..])
}
