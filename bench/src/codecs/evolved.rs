//! Benchmark of decoding CDR by a reader of another version of the type, beside a reader of the
//! same version. In the other version one member is moved, one removed from the middle, one added
//! and one widened.

use std::{hint::black_box, sync::Arc};

use polywire_core::{
    codec::{Decoder, Options},
    layout::{Record, Shape, StructRef, ValueRef},
    program::Backend,
    schema::{DefKind, Member, Schema, SchemaBuilder, Type},
};
use polywire_derive::Message;
use polywire_workloads::{CodecsTest10, CodecsTest500, MarketData};

use super::{Measured, Subject, subject};
use crate::{
    measure::{Bar, Candidate, Effort, compare},
    report::{Group, Row},
};

/// The differences of the reader's version of a structure. It also has a new member `added`.
struct Change {
    structure: &'static str,
    moved_to_front: &'static str,
    removed: &'static str,
    widened: (&'static str, Type),
}

/// Changes the entries. Each message has four of them.
const MARKET_DATA: Change = Change {
    structure: "MiddlewareNewsBrief::MarketDataEntry",
    moved_to_front: "mdEntryPx",
    removed: "numberOfOrders",
    widened: ("mdEntrySize", Type::Int64),
};

const CODECS_TEST_10: Change = Change {
    structure: "CodecsTest::Codecs_Test",
    moved_to_front: "int64_value_1",
    removed: "int16_value_1",
    widened: ("int32_value_1", Type::Int64),
};

const CODECS_TEST_500: Change = Change {
    structure: "CodecsTest::Codecs_Test",
    moved_to_front: "int64_value_30",
    removed: "int16_value_25",
    widened: ("int32_value_20", Type::Int64),
};

pub fn group(effort: Effort) -> Group {
    let rows = vec![
        derived(effort),
        records::<MarketData>(&MARKET_DATA, effort),
        records::<CodecsTest10>(&CODECS_TEST_10, effort),
        records::<CodecsTest500>(&CODECS_TEST_500, effort),
    ];
    let note =
        "Time to decode CDR for a reader with one member moved, one removed from the middle, one added and one widened, \
                as a multiple of the time for the writer's own type."
            .into();
    Group { title: "Evolved readers", note, rows, ..Group::default() }
}

fn records<T: Measured>(change: &Change, effort: Effort) -> Row {
    let subject = Subject::<T>::new();
    let encoded = subject.encoded("cdr");
    let shape = Shape::of(&change.apply(T::shape().schema())).expect("an evolved schema");
    let decoder = evolved_decoder::<T>(&shape);
    let mut back = Record::new(&shape);
    for (bytes, record) in encoded.iter().zip(&subject.records) {
        decoder.decode(bytes, &mut back).expect("decoding succeeds");
        assert_agree(record.view(), back.view());
    }
    let evolved = || {
        for bytes in &encoded {
            decoder.decode(black_box(bytes), &mut back).expect("decoding succeeds");
            black_box(&back);
        }
    };
    row(format!("{} as a record", T::NAME), subject.decode_records("cdr", &encoded), evolved, encoded.len(), effort)
}

fn evolved_decoder<T: Measured>(shape: &Arc<Shape>) -> Decoder<Record> {
    let (codec, writer) = (subject::find("cdr"), T::shape().schema());
    Decoder::for_shape_with_backend(codec, &Options::default(), writer, shape, Backend::Jit)
        .expect("the reader can read the writer's type")
}

fn derived(effort: Effort) -> Row {
    let subject = Subject::<MarketData>::new();
    let encoded = subject.encoded("cdr");
    let decoder = polywire_core::codec::Decoder::<evolved_market_data::MarketData>::with_backend(
        subject::find("cdr"),
        &Options::default(),
        <MarketData as polywire_core::layout::Message>::shape().schema(),
        Backend::Jit,
    )
    .expect("the reader can read the writer's type");
    let mut back = evolved_market_data::MarketData::default();
    for (bytes, message) in encoded.iter().zip(subject.messages()) {
        decoder.decode(bytes, &mut back).expect("decoding succeeds");
        assert_agree(ValueRef::of(message), ValueRef::of(&back));
    }
    let evolved = || {
        for bytes in &encoded {
            decoder.decode(black_box(bytes), &mut back).expect("decoding succeeds");
            black_box(&back);
        }
    };
    let same = subject.decode("cdr", Backend::Jit, &encoded);
    row("MarketData, derived".into(), same, evolved, encoded.len(), effort)
}

fn row(workload: String, same: impl FnMut(), evolved: impl FnMut(), messages: usize, effort: Effort) -> Row {
    let candidates =
        vec![Candidate::new("same type", same), Candidate::new("evolved", evolved).with_bar(Bar::AtMost(1.15))];
    Row::new(workload, "decode", None, compare(messages, candidates, effort))
}

impl Change {
    fn apply(&self, schema: &Schema) -> Schema {
        let mut types = SchemaBuilder::new();
        for def in schema.defs() {
            let mut def = def.clone();
            if let (true, DefKind::Struct { members, .. }) = (def.name == self.structure, &mut def.kind) {
                self.evolve(members);
            }
            types.add(def);
        }
        types.finish(schema.root().clone()).expect("an evolved schema")
    }

    fn evolve(&self, members: &mut Vec<Member>) {
        let at = |members: &[Member], name: &str| {
            members.iter().position(|member| member.name == name).unwrap_or_else(|| panic!("there is no member {name}"))
        };
        let moved = members.remove(at(members, self.moved_to_front));
        members.insert(0, moved);
        members.remove(at(members, self.removed));
        let widened = at(members, self.widened.0);
        members[widened].ty = self.widened.1.clone();
        members.push(Member::new("added", Type::Uint32));
    }
}

/// Panics unless the members that both versions have are equal, and new members are zero.
fn assert_agree(old: ValueRef<'_>, new: ValueRef<'_>) {
    match (old, new) {
        (ValueRef::Struct(old), ValueRef::Struct(new)) => assert_members_agree(old, new),
        (ValueRef::List(old), ValueRef::List(new)) => {
            assert_eq!(old.len(), new.len());
            old.iter().zip(new.iter()).for_each(|(old, new)| assert_agree(old, new));
        }
        (old, new) => assert!(old == new || (old.as_i64().is_some() && old.as_i64() == new.as_i64())),
    }
}

fn assert_members_agree(old: StructRef<'_>, new: StructRef<'_>) {
    for (member, value) in new.fields() {
        match old.field(&member.name) {
            Some(before) => assert_agree(before, value),
            None => assert_eq!(value.as_i64(), Some(0), "the new member {} is not zero", member.name),
        }
    }
}

/// The type after the change [`MARKET_DATA`], as a derived type.
mod evolved_market_data {
    use super::Message;

    #[derive(Default, Message)]
    #[polywire(name = "MiddlewareNewsBrief::MarketDataEntry", crate = "polywire_core")]
    pub struct Entry {
        #[polywire(name = "mdEntryPx")]
        md_entry_px: f64,
        #[polywire(name = "mdUpdateAction")]
        md_update_action: u32,
        #[polywire(name = "mdPriceLevel")]
        md_price_level: u32,
        #[polywire(name = "mdEntryType")]
        md_entry_type: String,
        #[polywire(name = "openCloseSettleFlag")]
        open_close_settle_flag: u32,
        #[polywire(name = "securityIDSource")]
        security_id_source: u32,
        #[polywire(name = "securityID")]
        security_id: u32,
        #[polywire(name = "rptSeq")]
        rpt_seq: u32,
        #[polywire(name = "mdEntryTime")]
        md_entry_time: u32,
        #[polywire(name = "mdEntrySize")]
        md_entry_size: i64,
        #[polywire(name = "tradingSessionID")]
        trading_session_id: String,
        #[polywire(name = "netChgPrevDay")]
        net_chg_prev_day: f64,
        #[polywire(name = "tradeVolume")]
        trade_volume: u32,
        #[polywire(name = "tradeCondition")]
        trade_condition: String,
        #[polywire(name = "tickDirection")]
        tick_direction: String,
        #[polywire(name = "quoteCondition")]
        quote_condition: String,
        #[polywire(name = "aggressorSide")]
        aggressor_side: u32,
        #[polywire(name = "matchEventIndicator")]
        match_event_indicator: String,
        added: u32,
    }

    #[derive(Default, Message)]
    #[polywire(name = "MiddlewareNewsBrief::MarketData", crate = "polywire_core")]
    pub struct MarketData {
        is_echo: bool,
        counter: u32,
        #[polywire(name = "securityID", key)]
        security_id: u32,
        #[polywire(name = "applVersionID")]
        appl_version_id: String,
        #[polywire(name = "messageType")]
        message_type: String,
        #[polywire(name = "senderCompID")]
        sender_comp_id: String,
        #[polywire(name = "msgSeqNum")]
        msg_seq_num: u32,
        #[polywire(name = "sendingTime")]
        sending_time: u32,
        #[polywire(name = "tradeDate")]
        trade_date: u32,
        #[polywire(name = "mdEntries")]
        md_entries: Vec<Entry>,
    }
}
