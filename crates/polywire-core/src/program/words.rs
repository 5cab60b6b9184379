//! Describes in words what a program expected and what it found. `CodecError` (`io.rs`) calls it
//! after a fault, so that it costs nothing before. It reads the program and the message only.

use alloc::{format, string::String, vec::Vec};

use super::{Block, Check, FaultKind, Op, OpKind, PathId, Program, Wire, passes::inner_blocks};
use crate::{codec::lower::symbols::LITERAL, layout::Scalar, program::SymbolTable};

/// The most names that an error lists.
const MAX_NAMES: usize = 8;

/// The most characters of a message that an error shows.
const MAX_SHOWN: usize = 32;

/// Describes what a program expects at a field; empty where the kind of error suffices.
#[cold]
pub(super) fn expected(program: &Program, path: PathId, kind: FaultKind) -> String {
    let wanted = [&program.root].into_iter().chain(program.routines.iter().map(|routine| &routine.block));
    match kind {
        FaultKind::WrongKind | FaultKind::OutOfRange | FaultKind::UnknownLiteral | FaultKind::UnknownCase => {
            wanted.into_iter().find_map(|block| within(block, path, kind)).unwrap_or_default()
        }
        FaultKind::BadBool => "true or false".into(),
        _ => String::new(),
    }
}

fn within(block: &Block, path: PathId, kind: FaultKind) -> Option<String> {
    for (i, op) in block.0.iter().enumerate() {
        if op.path == path
            && let Some(words) = of_op(&block.0[i..], kind)
        {
            return Some(words);
        }
        let mut found = None;
        inner_blocks(&op.kind, &mut |inner| found = found.take().or_else(|| within(inner, path, kind)));
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Describes what the first operation expects.
fn of_op(ops: &[Op], kind: FaultKind) -> Option<String> {
    Some(match &ops.first()?.kind {
        OpKind::Get(Wire::Symbol(_, table)) => return names(table, kind),
        OpKind::Get(Wire::Kernel(kernel)) if kernel.name.contains("char") => "a character".into(),
        OpKind::Get(wire) => number(wire.scalar(), ops)?,
        OpKind::Text { .. } => "a string".into(),
        OpKind::Slice { .. } | OpKind::Sequence { .. } | OpKind::Bulk { .. } => "a sequence".into(),
        OpKind::Map { .. } => "a map".into(),
        OpKind::Members { .. } => "a structure".into(),
        _ => return None,
    })
}

/// The range of numbers that the operations on a scalar accept.
fn number(scalar: Scalar, ops: &[Op]) -> Option<String> {
    let (path, mut range) = (ops.first()?.path, scalar.range());
    for op in ops.iter().take_while(|op| op.path == path).skip(1) {
        let (min, max) = match &op.kind {
            OpKind::Convert(to) => to.range()?,
            OpKind::Check(Check::Range { min, max }) => (*min, *max),
            OpKind::Check(Check::Bool) => return Some("true or false".into()),
            _ => break,
        };
        range = range.map(|(low, high)| (low.max(min), high.min(max)));
    }
    Some(match (scalar, range) {
        (Scalar::Bool, _) => "true or false".into(),
        (_, Some((min, max))) => format!("a number from {min} to {max}"),
        (_, None) => "a number".into(),
    })
}

/// The names in a table: of literals, or of a union's cases, depending on the fault.
fn names(table: &SymbolTable, kind: FaultKind) -> Option<String> {
    let is_literal = |name: &str| name.as_bytes().first() == Some(&LITERAL);
    let of_union = table.iter().any(|(_, name)| is_literal(name));
    let wanted = |name: &&str| !of_union || is_literal(name) == (kind != FaultKind::UnknownCase);
    let all: Vec<&str> = table.iter().map(|(_, name)| name).filter(wanted).collect();
    let shown: Vec<&str> = all.iter().take(MAX_NAMES).map(|name| name.trim_start_matches('=')).collect();
    let more = if all.len() > MAX_NAMES { format!(" or {} more", all.len() - MAX_NAMES) } else { String::new() };
    (!shown.is_empty()).then(|| format!("{}{more}", shown.join(", ")))
}

/// The token at the error's offset, if the message is text; else empty.
#[cold]
pub(super) fn got(message: &[u8], offset: usize, kind: FaultKind) -> String {
    let looked_at = matches!(
        kind,
        FaultKind::WrongKind
            | FaultKind::OutOfRange
            | FaultKind::UnknownLiteral
            | FaultKind::UnknownCase
            | FaultKind::BadBool
            | FaultKind::Forbidden
    );
    let rest = message.get(offset..).unwrap_or_default();
    match looked_at && is_text(message) {
        true => token(valid(rest.get(..LOOKED_AT).unwrap_or(rest))),
        false => String::new(),
    }
}

/// Bytes that are inspected, at the start of a message and at the error's offset.
const LOOKED_AT: usize = 256;

/// True if the message looks like text: binary formats have control characters or invalid UTF-8
/// near the start.
fn is_text(message: &[u8]) -> bool {
    let front = message.get(..LOOKED_AT).unwrap_or(message);
    let text = valid(front);
    let whole = text.len() + 4 > front.len() && (text.len() == message.len() || front.len() == LOOKED_AT);
    whole && !text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t'))
}

/// The longest prefix that is valid UTF-8.
fn valid(bytes: &[u8]) -> &str {
    match core::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => core::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    }
}

/// The first token: a string with its quotes, a word, a bracket.
fn token(rest: &str) -> String {
    // In XML the value of an element begins with the end of its start tag.
    let rest = rest.strip_prefix('>').unwrap_or(rest);
    let first = rest.chars().next().unwrap_or(' ');
    let len = match first {
        quote @ ('"' | '\'') => closing(rest, quote),
        '{' | '[' => 1,
        // A value is missing here, or the error is before this.
        ']' | '}' | ',' | ':' => 0,
        _ => rest.char_indices().skip(1).find(|(_, c)| ends_word(*c)).map_or(rest.len(), |(at, _)| at),
    };
    let whole = rest.get(..len).unwrap_or_default().trim_end();
    match whole.char_indices().nth(MAX_SHOWN) {
        Some((at, _)) => format!("{}..", whole.get(..at).unwrap_or_default()),
        None => whole.into(),
    }
}

fn ends_word(c: char) -> bool {
    matches!(c, ',' | ']' | '}' | '<' | '>' | '"' | '\'' | '/' | '=') || c.is_whitespace()
}

/// The length up to the closing quote of a string, which is included.
fn closing(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The name in a list that was probably meant, if one is similar.
pub(super) fn nearest<'n>(names: &'n str, got: &str) -> Option<&'n str> {
    let got = got.trim_matches(['"', '\'']);
    let most = if got.len() > 4 { 2 } else { 1 };
    let near = names.split(", ").map(|name| (distance(name, got), name)).min_by_key(|(distance, _)| *distance)?;
    (near.0 > 0 && near.0 <= most && got.len() > 1).then_some(near.1)
}

/// The edit distance, ignoring case.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.to_lowercase().chars().collect(), b.to_lowercase().chars().collect());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let (mut diagonal, mut left) = (i, i + 1);
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            left = change.min(left + 1).min(diagonal + 1);
            row[j + 1] = left;
        }
        row[0] = i + 1;
    }
    row[b.len()]
}
