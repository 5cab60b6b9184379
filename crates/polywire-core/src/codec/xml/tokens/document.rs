//! What is around the root element, and line breaks.

use super::*;
use crate::program::{
    Limits, Output,
    io::CodecError,
    kernels::copy::{put_again, put_line, replace_by_rest},
};

/// Passes over everything in front of the root element's name, and over the name. A document type
/// declaration is refused.
pub(crate) fn begin(input: &mut Input<'_>) -> Result<Name, Status> {
    if input.rest().starts_with(b"\xEF\xBB\xBF") {
        input.advance(3);
    }
    if input.rest().starts_with(b"<?xml") && input.rest().get(5).is_some_and(|b| is_space(*b)) {
        declaration(input)?;
    }
    match next_tag(input)? {
        Markup::Start(name) => Ok(name),
        Markup::End => Err(fail_at(input, 1, FaultKind::Syntax, 0, b'/'.into())),
        Markup::Nothing => Err(input.fail(FaultKind::Truncated, 1, 0)),
    }
}

/// `<?xml version="1.0" encoding="UTF-8" standalone="yes"?>`
fn declaration(input: &mut Input<'_>) -> Result<(), Status> {
    input.advance(5);
    let mut expected = 0;
    loop {
        let apart = space(input);
        if input.rest().starts_with(b"?>") && expected > 0 {
            input.advance(2);
            return Ok(());
        }
        if !apart {
            return Err(unexpected(input, b'?'));
        }
        let start = input.position();
        let name = name(input)?;
        let which = [&b"version"[..], b"encoding", b"standalone"].iter().position(|known| *known == name.bytes(input));
        let Some(which) = which.filter(|which| *which >= expected && (expected > 0 || *which == 0)) else {
            input.seek(start);
            return Err(unexpected(input, b'?'));
        };
        expected = which + 1;
        pseudo_attribute(input, which)?;
    }
}

fn pseudo_attribute(input: &mut Input<'_>, which: usize) -> Result<(), Status> {
    space(input);
    expect(input, b"=").ok()?;
    space(input);
    let Some(quote @ (b'"' | b'\'')) = input.rest().first().copied() else { return Err(unexpected(input, b'"')) };
    input.advance(1);
    let rest = input.rest();
    let Some(len) = rest.iter().position(|b| *b == quote) else { return Err(unexpected(input, quote)) };
    let value = &rest[..len];
    let fits = match which {
        0 => value == b"1.0" || later_version(value),
        1 => ENCODINGS.iter().any(|known| value.eq_ignore_ascii_case(known)),
        _ => matches!(value, b"yes" | b"no"),
    };
    if !fits {
        let foreign = which < 2 && is_version_or_encoding(value);
        let kind = if foreign { FaultKind::Forbidden } else { FaultKind::Syntax };
        return Err(input.fail(kind, 0, value.first().copied().unwrap_or(quote).into()));
    }
    input.advance(len + 1);
    Ok(())
}

/// Names of UTF-8 and of its part US-ASCII: those that IANA has registered (RFC 3629, RFC 1345),
/// and UTF8, which many write.
const ENCODINGS: &[&[u8]] = &[
    b"utf-8",
    b"utf8",
    b"csutf8",
    b"us-ascii",
    b"ascii",
    b"us",
    b"iso646-us",
    b"iso_646.irv:1991",
    b"ansi_x3.4-1968",
    b"ansi_x3.4-1986",
    b"iso-ir-6",
    b"ibm367",
    b"cp367",
    b"csascii",
];

/// A processor for 1.0 reads `1.x` by its own rules (section 2.8); but 1.1 has other characters, so
/// that one is refused.
fn later_version(value: &[u8]) -> bool {
    value != b"1.1" && value.len() > 2 && value.starts_with(b"1.") && value[2..].iter().all(u8::is_ascii_digit)
}

fn is_version_or_encoding(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// Nothing but white space, comments and processing instructions may follow.
pub(crate) fn end(input: &mut Input<'_>) -> Status {
    let start = input.position();
    match next_tag(input) {
        Ok(Markup::Nothing) => Status::Ok,
        Ok(_) => {
            input.seek(start);
            input.fail(FaultKind::Trailing, 0, input.remaining() as u64)
        }
        Err(status) => status,
    }
}

/// Checks that `bytes` are one well-formed document without a type declaration, nested no deeper
/// than the [`Limits`] allow.
pub(crate) fn validate(bytes: &[u8], limits: &Limits) -> Result<(), CodecError> {
    Input::inspect(bytes, limits, |input| Status::of(begin(input).map(drop)).then(|| skip(input)).then(|| end(input)))
}

/// Writes again, with line breaks and two blanks of indentation a level between tags, what was
/// written from `start` on. All `<` and `>` in it are those of tags.
pub(crate) fn indent(output: &mut Output<'_>, start: usize) -> Status {
    let end = output.position();
    let (mut at, mut depth) = (start, 0usize);
    while at < end {
        let rest = &output.written()[at..end];
        let len = rest.iter().position(|b| *b == b'>').map_or(rest.len(), |at| at + 1);
        let from = &rest[..len];
        let declaration = from.starts_with(b"<?");
        let closes = from.windows(2).any(|pair| pair == b"</");
        let opens = !closes && !declaration;
        let next = rest.get(len..).unwrap_or_default();
        depth = if closes { depth.saturating_sub(1) } else { depth + usize::from(opens) };
        // Behind a tag, where another comes, unless that ends what this one begins.
        let next_closes = next.starts_with(b"</");
        let breaks = next.first() == Some(&b'<') && !(opens && next_closes);
        let level = if next_closes { depth.saturating_sub(1) } else { depth };
        if put_again(output, at..at + len) == Status::Failed || (breaks && put_line(output, level) == Status::Failed) {
            return Status::Failed;
        }
        at += len;
    }
    replace_by_rest(output, start, end);
    Status::Ok
}
