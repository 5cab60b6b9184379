//! Character data and attribute values.
//!
//! Characters that XML 1.0 has no way to say are written as `_xHHHH_`, and an underscore that would
//! begin such a thing as `_x005F_`: the rule of ISO/IEC 29500-1, 22.4.2.4, which leaves all
//! ordinary text alone.

use alloc::string::String;

use super::{
    super::{super::Output, copy_short, scan},
    *,
};

/// The text of a value as it stands in the message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw<'a> {
    /// Valid UTF-8 and well-formed: copying relies on it, so that only this module makes one.
    bytes: &'a [u8],
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
    let rest = input.rest();
    let clean = scan::markup(rest);
    let raw = match clean.ascii && rest.get(clean.len) == Some(&quote) {
        true => Raw { bytes: &rest[..clean.len], start: input.pos, attribute: true, markup: false, special: false },
        false => long_text(rest, input.pos, Some(quote)).map_err(|wrong| wrong.report(input))?,
    };
    input.pos += raw.bytes.len();
    match expect(input, &[quote]) {
        Status::Ok => Ok(raw),
        status => Err(status),
    }
}

#[inline]
fn element_text<'a>(input: &mut Input<'a>) -> Result<Raw<'a>, Status> {
    let name = own_name(input);
    if open(input)? {
        return Ok(Raw { bytes: &[], start: input.pos, attribute: false, markup: false, special: false });
    }
    let rest = input.rest();
    let clean = scan::markup(rest);
    let raw = match clean.ascii && rest.get(clean.len..clean.len + 2) == Some(b"</") {
        true => Raw { bytes: &rest[..clean.len], start: input.pos, attribute: false, markup: false, special: false },
        false => long_text(rest, input.pos, None).map_err(|wrong| wrong.report(input))?,
    };
    input.pos += raw.bytes.len();
    if input.rest().get(1).is_some_and(|b| *b != b'/') {
        return Err(wrong_kind(input));
    }
    match close(input, name) {
        Status::Ok => Ok(raw),
        status => Err(status),
    }
}

/// Passes over what is in an element, up to a start tag (true) or end tag (false), which comes
/// next.
pub(super) fn inner(input: &mut Input<'_>) -> Result<bool, Status> {
    let raw = long_text(input.rest(), input.pos, None).map_err(|wrong| wrong.report(input))?;
    input.pos += raw.bytes.len();
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
    input.pos += len;
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

/// A text that was checked before, as [`Raw::bytes`] gave it.
pub(super) fn raw_at(bytes: &[u8], attribute: bool) -> Raw<'_> {
    Raw { bytes, start: 0, attribute, markup: true, special: true }
}

/// Everything up to the closing quote, or up to a tag.
fn long_text(bytes: &[u8], start: usize, quote: Option<u8>) -> Result<Raw<'_>, Wrong> {
    let (mut at, mut markup, mut special) = (0, false, false);
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let clean = scan::markup(rest);
        if !clean.ascii {
            plain_chars(&rest[..clean.len]).map_err(|wrong| wrong.behind(at))?;
        }
        at += clean.len;
        let rest = &rest[clean.len..];
        match *rest.first().ok_or_else(|| Wrong::new(bytes, at, 0))? {
            b'<' if quote.is_some() => return Err(Wrong::new(bytes, at, b'"')),
            b'<' => match rest.get(1) {
                Some(b'!' | b'?') => {
                    at += section(rest).map_err(|wrong| wrong.behind(at))?;
                    markup = true;
                }
                Some(_) => break,
                None => return Err(Wrong::new(bytes, at + 1, 0)),
            },
            b'&' => {
                at += reference(rest).map_err(|wrong| wrong.behind(at))?.1;
                markup = true;
            }
            byte if Some(byte) == quote => break,
            b']' if quote.is_none() && rest.starts_with(b"]]>") => return Err(Wrong::new(bytes, at + 2, 0)),
            b'\r' => {
                special = true;
                at += 1;
            }
            b'\n' | b'\t' => {
                special |= quote.is_some();
                at += 1;
            }
            byte if byte < b' ' => return Err(Wrong::new(bytes, at, 0)),
            b'_' => {
                special |= unspeakable(rest).is_some();
                at += 1;
            }
            _ => at += 1,
        }
    }
    Ok(Raw { bytes: &bytes[..at], start, attribute: quote.is_some(), markup, special: special || markup })
}

/// Text without markup that is to be UTF-8 and without U+FFFE and U+FFFF.
fn plain_chars(bytes: &[u8]) -> Result<(), Wrong> {
    core::str::from_utf8(bytes).map_err(|error| Wrong::bad_text(error.valid_up_to()))?;
    let noncharacter = bytes.windows(3).position(|w| w[0] == 0xEF && w[1] == 0xBF && w[2] >= 0xBE);
    noncharacter.map_or(Ok(()), |at| Err(Wrong::bad_text(at)))
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
    let limits = crate::program::Limits::default();
    let mut inside = Input::new(&bytes[..to], &limits);
    inside.pos = 2;
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
    /// The bytes as they stand in the message.
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Byte of the message where they stand.
    pub(crate) fn start(self) -> usize {
        self.start
    }

    /// There are references, comments, processing instructions or CDATA sections among the bytes.
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
        pieces(self.bytes, self.attribute, false, take);
    }

    /// The text that is meant: as it stands, or written to `buffer`. None if that is too short.
    pub(crate) fn plain<'b>(self, buffer: &'b mut [u8]) -> Option<&'b [u8]>
    where
        'a: 'b,
    {
        if !self.special {
            return Some(self.bytes);
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
        target.clear();
        // What is meant is never longer than what stands there.
        if self.bytes.len() > target.capacity() && grow(input, target, self.bytes.len()) == Status::Failed {
            return Status::Failed;
        }
        if self.special {
            self.pieces(&mut |piece| target.push_str(piece));
            return Status::Ok;
        }
        // SAFETY: `text` has found the bytes to be UTF-8; there is room for them, and they cannot
        // overlap a string borrowed mutably.
        unsafe {
            let vector = target.as_mut_vec();
            copy_short(self.bytes, vector.as_mut_ptr());
            vector.set_len(self.bytes.len());
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

fn pieces(bytes: &[u8], attribute: bool, literal: bool, take: &mut dyn FnMut(&str)) {
    let mut rest = bytes;
    let is_stop = |byte: &u8| match byte {
        b'\r' => true,
        b'<' | b'&' => !literal,
        b'\n' | b'\t' => attribute,
        _ => false,
    };
    while !rest.is_empty() {
        let clean = rest.iter().position(is_stop).unwrap_or(rest.len());
        let (before, from) = rest.split_at(clean);
        // All of it was found to be UTF-8, and is cut at ASCII characters only.
        take(core::str::from_utf8(before).unwrap_or_default());
        let Some(stop) = from.first() else { return };
        let len = match stop {
            b'&' => reference(from).map_or(1, |(c, len)| {
                take(c.encode_utf8(&mut [0; 4]));
                len
            }),
            b'<' => {
                let len = section(from).unwrap_or(from.len());
                if let Some(inside) = from.get(9..len.saturating_sub(3)).filter(|_| from.get(2) == Some(&b'[')) {
                    pieces(inside, false, true, take);
                }
                len
            }
            b'\r' => {
                take(if attribute { " " } else { "\n" });
                1 + usize::from(from.get(1) == Some(&b'\n'))
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

#[inline]
fn put(output: &mut Output<'_>, text: &str, attribute: bool) -> Status {
    let bytes = text.as_bytes();
    let clean = scan::markup(bytes);
    if clean.len < bytes.len() || !clean.ascii {
        return put_escaped(output, text, attribute, true);
    }
    if output.reserve(bytes.len()) == Status::Failed {
        return Status::Failed;
    }
    // SAFETY: there is room, and the text cannot overlap a vector borrowed mutably.
    unsafe { copy_short(bytes, output.base.add(output.pos)) };
    output.pos += bytes.len();
    Status::Ok
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
