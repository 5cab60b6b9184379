//! The number of old samples of a channel that late-joining programs receive if they are not
//! Polywire nodes. Late-joining nodes receive the writer's own history, on its history channels.

use polywire_core::{
    envelope::Announcement,
    qos::{Durability, History, Offer, Qos},
    schema::Schema,
};

/// The number of samples of each instance, unless the announcement says how many its writer keeps.
pub(super) const DEFAULT_DEPTH: u32 = 32;

/// The largest number of samples of each instance, however many the writer keeps.
const MAX_DEPTH: u32 = 4096;

/// Returns how many samples of each instance of a channel are kept: as many as the channel's writer
/// keeps. If the channel's type has keys, or is not known, at least [`DEFAULT_DEPTH`]: publishers
/// need not send the hashes of keys, and several instances without hashes count as one.
pub(super) fn history_depth(announcement: &Announcement, schema: Option<&Schema>) -> u32 {
    let Qos { durability, history, .. } = Offer::parse(&announcement.offer).unwrap_or_default().qos;
    match (durability, history) {
        (Durability::TransientLocal, History::KeepLast(depth)) => {
            depth.clamp(if may_have_keys(schema) { DEFAULT_DEPTH } else { 1 }, MAX_DEPTH)
        }
        _ => DEFAULT_DEPTH,
    }
}

fn may_have_keys(schema: Option<&Schema>) -> bool {
    let root = schema.and_then(|schema| Some(schema.members(schema.find(schema.name())?)));
    root.is_none_or(|members| members.iter().any(|member| member.key))
}

#[cfg(test)]
mod tests {
    use polywire_core::schema::{Def, Member, SchemaBuilder, Type};

    use super::*;

    #[test]
    fn late_programs_get_what_the_writer_keeps() {
        let schema = |is_keyed: bool| {
            let mut types = SchemaBuilder::new();
            let id = Member::new("id", Type::Uint32);
            let root = types.add(Def::structure("Pump", vec![if is_keyed { id.as_key() } else { id }]));
            types.finish(Type::Def(root)).expect("a schema")
        };
        let (plain, keyed) = (schema(false), schema(true));
        let of = |qos: Qos, schema| {
            let offer = Offer { qos, ..Offer::default() }.to_bytes();
            history_depth(&Announcement { offer, ..Announcement::default() }, schema)
        };
        let last = |depth| Qos::default().keep_last(depth).transient_local();
        assert_eq!([1, 40, 5000].map(|depth| of(last(depth), Some(&plain))), [1, 40, MAX_DEPTH]);
        assert_eq!([1, 40].map(|depth| of(last(depth), Some(&keyed))), [DEFAULT_DEPTH, 40]);
        assert_eq!((of(last(1), None), of(Qos::default().keep_last(1), Some(&plain))), (DEFAULT_DEPTH, DEFAULT_DEPTH));
        assert_eq!(of(Qos::default().transient_local(), Some(&plain)), DEFAULT_DEPTH, "how many is not said");
    }
}
