//! The tokens of XML 1.0 (fifth edition), held to its rules of well-formedness as far as a document
//! without a type declaration can break them. The kernels of the codecs `xml` and `xml-dom` call
//! it. It knows no types, and touches an [`Input`] and an output only.
//!
//! A *value* begins behind the name of its start tag, or behind the opening quote of an attribute,
//! and ends behind its end tag or the closing quote. Which of the two it is, the byte in front
//! says: a name never ends with a quote. So a value's reader needs no memory of what was
//! read before, and can still hold the end tag against the start tag.

use crate::program::{FaultKind, Input, Status};

mod characters;
mod document;
mod tree;

pub(crate) use crate::program::kernels::{fail_at, unexpected};
pub(crate) use characters::{escape_code, put_attribute, put_text, text};
pub(crate) use document::{begin, end, indent, validate};
pub(crate) use tree::{build, emit};

/// Elements inside each other that are passed over, whatever the [`Limits`](crate::program::Limits)
/// allow.
pub(crate) const MAX_DEPTH: usize = 1024;

/// Attributes of one element: each is held against all others.
pub(crate) const MAX_ATTRIBUTES: usize = 256;

/// Where a name stands in the message, prefix included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Name {
    /// Its first byte.
    pub start: usize,
    /// Behind its last.
    pub end: usize,
}

impl Name {
    /// Its bytes.
    pub(crate) fn bytes<'a>(self, input: &Input<'a>) -> &'a [u8] {
        input.message().get(self.start..self.end).unwrap_or_default()
    }

    /// The bytes behind the prefix.
    pub(crate) fn local<'a>(self, input: &Input<'a>) -> &'a [u8] {
        local(self.bytes(input))
    }
}

/// A name without its prefix.
pub(crate) fn local(name: &[u8]) -> &[u8] {
    let colon = name.iter().rposition(|b| *b == b':');
    colon.and_then(|at| name.get(at + 1..)).unwrap_or(name)
}

/// The value is of another kind than the type.
#[cold]
pub(crate) fn wrong_kind(input: &mut Input<'_>) -> Status {
    let got = input.rest().first().copied().unwrap_or(0);
    input.fail(FaultKind::WrongKind, 0, got.into())
}

/// The quote that the value which comes is in, if it is an attribute's.
#[inline]
pub(crate) fn quote(input: &Input<'_>) -> Option<u8> {
    match input.message().get(input.position().wrapping_sub(1)) {
        Some(quote @ (b'"' | b'\'')) => Some(*quote),
        _ => None,
    }
}

/// The name of the element whose value comes.
#[inline]
pub(crate) fn own_name(input: &Input<'_>) -> Name {
    name_before(input, input.position())
}

/// The name of the start tag that ends at a position.
#[inline]
pub(crate) fn name_before(input: &Input<'_>, end: usize) -> Name {
    let before = input.message().get(..end).unwrap_or_default();
    let start = before.iter().rposition(|b| *b == b'<').map_or(0, |at| at + 1);
    Name { start, end }
}

/// White space.
#[inline]
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\t' | b'\r')
}

/// Passes over white space, and says if there was any.
#[inline]
pub(crate) fn space(input: &mut Input<'_>) -> bool {
    let rest = input.rest();
    match rest.first() {
        Some(byte) if is_space(*byte) => {
            input.advance(rest.iter().position(|b| !is_space(*b)).unwrap_or(rest.len()));
            true
        }
        _ => false,
    }
}

/// Passes over what must come.
pub(crate) fn expect(input: &mut Input<'_>, bytes: &[u8]) -> Status {
    for byte in bytes {
        if input.rest().first() != Some(byte) {
            return unexpected(input, *byte);
        }
        input.advance(1);
    }
    Status::Ok
}

/// Passes over a name.
pub(crate) fn name(input: &mut Input<'_>) -> Result<Name, Status> {
    let (start, rest) = (input.position(), input.rest());
    let mut at = 0;
    while let Some(byte) = rest.get(at) {
        let len = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b':' => 1,
            b'0'..=b'9' | b'-' | b'.' if at > 0 => 1,
            0x80.. => other_in_name(&rest[at..], at == 0),
            _ => 0,
        };
        if len == 0 {
            break;
        }
        at += len;
    }
    if at == 0 {
        return Err(unexpected(input, 0));
    }
    input.advance(at);
    Ok(Name { start, end: input.position() })
}

/// Bytes of a character beyond ASCII that may stand in a name, or first in one; else 0.
fn other_in_name(bytes: &[u8], first: bool) -> usize {
    let Some(c) = characters::first_char(bytes) else { return 0 };
    let starts = matches!(c,
        '\u{C0}'..='\u{D6}' | '\u{D8}'..='\u{F6}' | '\u{F8}'..='\u{2FF}' | '\u{370}'..='\u{37D}' | '\u{37F}'..='\u{1FFF}'
        | '\u{200C}'..='\u{200D}' | '\u{2070}'..='\u{218F}' | '\u{2C00}'..='\u{2FEF}' | '\u{3001}'..='\u{D7FF}'
        | '\u{F900}'..='\u{FDCF}' | '\u{FDF0}'..='\u{FFFD}' | '\u{10000}'..='\u{EFFFF}');
    let goes_on = matches!(c, '\u{B7}' | '\u{300}'..='\u{36F}' | '\u{203F}'..='\u{2040}');
    if starts || (goes_on && !first) { c.len_utf8() } else { 0 }
}

/// Passes over the rest of a start tag, attributes checked, and says if the element is empty, `/>`:
/// then it has no end tag.
#[inline]
pub(crate) fn open(input: &mut Input<'_>) -> Result<bool, Status> {
    if input.rest().first() == Some(&b'>') {
        input.advance(1);
        return Ok(false);
    }
    attributes(input)
}

/// Checks all attributes that come.
fn attributes(input: &mut Input<'_>) -> Result<bool, Status> {
    let (mut names, mut count) = ([Name::default(); MAX_ATTRIBUTES], 0);
    loop {
        let start = input.position();
        let Some(name) = attribute(input)? else { return tag_end(input) };
        let twice = names.iter().take(count).any(|other| other.bytes(input) == name.bytes(input));
        let Some(slot) = names.get_mut(count).filter(|_| !twice) else {
            input.seek(start);
            return Err(match twice {
                true => input.fail(FaultKind::DuplicateMember, 0, 0),
                false => input.fail(FaultKind::Limit, MAX_ATTRIBUTES as u64, count as u64 + 1),
            });
        };
        *slot = name;
        count += 1;
        text(input)?;
    }
}

/// The name of the next attribute, up to the opening quote of its value; none at the end of the
/// tag, which comes next then.
pub(crate) fn attribute(input: &mut Input<'_>) -> Result<Option<Name>, Status> {
    let apart = space(input);
    match input.rest().first() {
        Some(b'>' | b'/') => return Ok(None),
        Some(_) if !apart => return Err(unexpected(input, b'>')),
        _ => {}
    }
    let name = name(input)?;
    space(input);
    expect(input, b"=").ok()?;
    space(input);
    match input.rest().first() {
        Some(b'"' | b'\'') => input.advance(1),
        _ => return Err(unexpected(input, b'"')),
    }
    Ok(Some(name))
}

/// Passes over `>` or `/>`, and says if it was the latter.
pub(crate) fn tag_end(input: &mut Input<'_>) -> Result<bool, Status> {
    let empty = input.rest().first() == Some(&b'/');
    input.advance(usize::from(empty));
    expect(input, b">").ok().map(|()| empty)
}

/// Passes over the end tag of the element with a name.
#[inline]
pub(crate) fn close(input: &mut Input<'_>, name: Name) -> Status {
    let (bytes, rest) = (name.bytes(input), input.rest());
    let len = bytes.len();
    if rest.get(2 + len) == Some(&b'>') && rest.starts_with(b"</") && rest.get(2..2 + len) == Some(bytes) {
        input.advance(len + 3);
        return Status::Ok;
    }
    unusual_close(input, bytes)
}

/// One with blanks behind the name, or a wrong one.
#[cold]
fn unusual_close(input: &mut Input<'_>, name: &[u8]) -> Status {
    let status = expect(input, b"</");
    if status == Status::Failed || expect(input, name) == Status::Failed {
        return Status::Failed;
    }
    space(input);
    expect(input, b">")
}

/// What comes between elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Markup {
    /// A start tag: the position is behind its name.
    Start(Name),
    /// An end tag: the position is in front of it.
    End,
    /// The end of the message.
    Nothing,
}

/// Passes over white space, comments and processing instructions to the next tag. Text is refused.
pub(crate) fn next_tag(input: &mut Input<'_>) -> Result<Markup, Status> {
    loop {
        space(input);
        match (input.rest().first(), input.rest().get(1)) {
            (Some(b'<'), Some(b'/')) => return Ok(Markup::End),
            (Some(b'<'), Some(b'!' | b'?')) => characters::aside(input)?,
            (Some(b'<'), _) => {
                input.advance(1);
                return Ok(Markup::Start(name(input)?));
            }
            (Some(_), _) => return Err(unexpected(input, b'<')),
            (None, _) => return Ok(Markup::Nothing),
        }
    }
}

/// Passes over a value of any kind, all of it checked.
pub(crate) fn skip(input: &mut Input<'_>) -> Status {
    let skipped = match quote(input) {
        Some(_) => text(input).map(|_| ()),
        None => skip_element(input),
    };
    Status::of(skipped)
}

fn skip_element(input: &mut Input<'_>) -> Result<(), Status> {
    let deepest = (input.levels_left() as usize).min(MAX_DEPTH);
    // Where the names of the elements that are open end.
    let (mut open_names, mut depth) = ([0usize; MAX_DEPTH], 0);
    loop {
        // Behind the name of a start tag.
        if depth >= deepest {
            return Err(input.fail(FaultKind::TooDeep, deepest as u64, deepest as u64 + 1));
        }
        let behind_name = input.position();
        if !open(input)? {
            open_names[depth] = behind_name;
            depth += 1;
        }
        loop {
            let Some(behind_name) = depth.checked_sub(1).and_then(|last| open_names.get(last)) else { return Ok(()) };
            if characters::inner(input)? {
                break;
            }
            let name = name_before(input, *behind_name);
            close(input, name).ok()?;
            depth -= 1;
        }
        input.advance(1);
        name(input)?;
    }
}
