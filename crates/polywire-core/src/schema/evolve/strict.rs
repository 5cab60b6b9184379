//! What a DDS-XTypes reader refuses in addition, because it decodes without the writer's schema
//! (XTypes 1.3, 7.2.4.4).

use alloc::{format, string::String, vec::Vec};

use super::{Conflict, Pair};
use crate::schema::{Def, DefKind, Extensibility, Member};

/// Conflicts between two definitions of the same kind, apart from their parts.
pub(super) fn definitions(writer: &Def, reader: &Def) -> Vec<Conflict> {
    let mut found = Vec::new();
    if writer.extensibility != reader.extensibility {
        let word = extensibility_in_words(writer.extensibility);
        let other = extensibility_in_words(reader.extensibility);
        found.push(Conflict::new(word, other, format!("make the reader's '{}' {word}", reader.name)));
    }
    if let (Some(w), Some(r)) = (bit_bound(writer), bit_bound(reader))
        && w != r
    {
        let in_words = |bits: u8| format!("@bit_bound({bits})");
        found.push(Conflict::new(in_words(w), in_words(r), format!("make the reader's {}", in_words(w))));
    }
    found
}

/// Conflicts between the members of two structures.
pub(super) fn members(writer: &Def, pairs: &[Pair<'_, Member>]) -> Vec<Conflict> {
    let mut found: Vec<Conflict> = pairs.iter().filter_map(identity).collect();
    let in_order = match writer.extensibility {
        Extensibility::Mutable => true,
        Extensibility::Final => pairs.iter().all(|p| p.writer.is_some() && p.reader.is_some()) && keep_places(pairs),
        Extensibility::Appendable => {
            let last = |of: fn(&Pair<'_, Member>) -> bool| pairs.iter().filter(|p| of(p)).count();
            // At most one of the two has members of its own, and they come last.
            keep_places(pairs) && (last(|p| p.reader.is_none()) == 0 || last(|p| p.writer.is_none()) == 0)
        }
    };
    if !in_order {
        let word = extensibility_in_words(writer.extensibility);
        let fix = format!("keep the members of the {word} '{}' in place, or make it @mutable", writer.name);
        found.push(Conflict::new(format!("a {word} list of members"), "another one", fix));
    }
    found
}

/// Returns whether the common members come first on both sides, in the same order.
fn keep_places(pairs: &[Pair<'_, Member>]) -> bool {
    let common: Vec<(usize, usize)> = pairs.iter().filter_map(|p| Some((p.writer?.0, p.reader?.0))).collect();
    common.iter().enumerate().all(|(i, (w, r))| *w == i && *r == i)
}

fn identity(pair: &Pair<'_, Member>) -> Option<Conflict> {
    let ((_, w), (_, r)) = (pair.writer?, pair.reader?);
    if w.id == r.id && w.name == r.name && w.optional == r.optional {
        return None;
    }
    let optional = |optional| if optional { "@optional " } else { "" };
    let in_words =
        |m: &crate::schema::Member| -> String { format!("{}'{}' with id {}", optional(m.optional), m.name, m.id) };
    Some(Conflict::new(in_words(w), in_words(r), format!("make the reader's {}", in_words(w))))
}

fn extensibility_in_words(extensibility: Extensibility) -> &'static str {
    match extensibility {
        Extensibility::Final => "@final",
        Extensibility::Appendable => "@appendable",
        Extensibility::Mutable => "@mutable",
    }
}

fn bit_bound(def: &Def) -> Option<u8> {
    match def.kind {
        DefKind::Enum { bit_bound, .. } | DefKind::Bitmask { bit_bound, .. } => Some(bit_bound),
        _ => None,
    }
}
