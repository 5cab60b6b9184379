//! Protobuf against `prost`, with the structures that its generator would make of `polywire idl proto`.

use crate::{measure::Effort, report::Group};

use super::serde_peers::{group, own_rows};
use polywire_workloads::CodecsTest500;

pub fn protobuf(effort: Effort) -> Group {
    let rows = [
        measured::market_data(effort),
        measured::codecs_test(effort),
        own_rows::<CodecsTest500>("protobuf", effort),
        measured::processor_probe(effort),
        measured::floats(effort),
    ];
    group("Protobuf", rows, "prost")
}

#[cfg(not(feature = "peers"))]
mod measured {
    use polywire_workloads::{CodecsTest10, Floats, MarketData, ProcessorProbe};

    use super::own_rows;
    use crate::{measure::Effort, report::Row};

    pub fn market_data(effort: Effort) -> [Row; 2] {
        own_rows::<MarketData>("protobuf", effort)
    }

    pub fn codecs_test(effort: Effort) -> [Row; 2] {
        own_rows::<CodecsTest10>("protobuf", effort)
    }

    pub fn processor_probe(effort: Effort) -> [Row; 2] {
        own_rows::<ProcessorProbe>("protobuf", effort)
    }

    pub fn floats(effort: Effort) -> [Row; 2] {
        own_rows::<Floats>("protobuf", effort)
    }
}

#[cfg(feature = "peers")]
mod measured {
    use std::hint::black_box;

    use polywire_workloads::{CodecsTest10, Floats, MarketData, ProcessorProbe};
    use prost::Message;

    use crate::{
        codecs::{
            Measured, Subject,
            serde_peers::{our_decoders, our_encoders, rows_of},
        },
        measure::{Bar, Candidate, Effort},
        report::Row,
    };

    pub fn market_data(effort: Effort) -> [Row; 2] {
        rows::<MarketData, Book>(effort)
    }

    pub fn codecs_test(effort: Effort) -> [Row; 2] {
        rows::<CodecsTest10, Test>(effort)
    }

    pub fn processor_probe(effort: Effort) -> [Row; 2] {
        rows::<ProcessorProbe, Probe>(effort)
    }

    pub fn floats(effort: Effort) -> [Row; 2] {
        rows::<Floats, Cloud>(effort)
    }

    fn rows<T: Measured, P: Message + Default>(effort: Effort) -> [Row; 2] {
        let subject = Subject::<T>::new();
        let ours = subject.encoded("protobuf");
        subject.check("protobuf", &ours);
        let theirs: Vec<P> = ours.iter().map(|bytes| P::decode(&bytes[..]).expect("it decodes")).collect();
        for (message, bytes) in theirs.iter().zip(&ours) {
            assert!(message.encode_to_vec() == *bytes, "prost writes the same {}", T::NAME);
        }
        let mut out = Vec::new();
        let encode = || {
            for message in &theirs {
                out.clear();
                black_box(message).encode(&mut out).expect("it encodes");
                black_box(&out);
            }
        };
        let decode = || {
            for bytes in &ours {
                black_box(P::decode(black_box(&bytes[..])).expect("it decodes"));
            }
        };
        let mut encoders = our_encoders(&subject, "protobuf");
        encoders.push(Candidate::new("prost", encode).with_bar(Bar::AtLeast(1.0)));
        let mut decoders = our_decoders(&subject, "protobuf", &ours);
        decoders.push(Candidate::new("prost", decode).with_bar(Bar::AtLeast(1.0)));
        rows_of(&subject, &ours, encoders, decoders, effort)
    }

    #[derive(Clone, PartialEq, Message)]
    struct Book {
        #[prost(bool, tag = "1")]
        is_echo: bool,
        #[prost(uint32, tag = "2")]
        counter: u32,
        #[prost(uint32, tag = "3")]
        security_id: u32,
        #[prost(string, tag = "4")]
        appl_version_id: String,
        #[prost(string, tag = "5")]
        message_type: String,
        #[prost(string, tag = "6")]
        sender_comp_id: String,
        #[prost(uint32, tag = "7")]
        msg_seq_num: u32,
        #[prost(uint32, tag = "8")]
        sending_time: u32,
        #[prost(uint32, tag = "9")]
        trade_date: u32,
        #[prost(message, repeated, tag = "10")]
        md_entries: Vec<Entry>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Entry {
        #[prost(uint32, tag = "1")]
        md_update_action: u32,
        #[prost(uint32, tag = "2")]
        md_price_level: u32,
        #[prost(string, tag = "3")]
        md_entry_type: String,
        #[prost(uint32, tag = "4")]
        open_close_settle_flag: u32,
        #[prost(uint32, tag = "5")]
        security_id_source: u32,
        #[prost(uint32, tag = "6")]
        security_id: u32,
        #[prost(uint32, tag = "7")]
        rpt_seq: u32,
        #[prost(double, tag = "8")]
        md_entry_px: f64,
        #[prost(uint32, tag = "9")]
        md_entry_time: u32,
        #[prost(sint32, tag = "10")]
        md_entry_size: i32,
        #[prost(uint32, tag = "11")]
        number_of_orders: u32,
        #[prost(string, tag = "12")]
        trading_session_id: String,
        #[prost(double, tag = "13")]
        net_chg_prev_day: f64,
        #[prost(uint32, tag = "14")]
        trade_volume: u32,
        #[prost(string, tag = "15")]
        trade_condition: String,
        #[prost(string, tag = "16")]
        tick_direction: String,
        #[prost(string, tag = "17")]
        quote_condition: String,
        #[prost(uint32, tag = "18")]
        aggressor_side: u32,
        #[prost(string, tag = "19")]
        match_event_indicator: String,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Test {
        #[prost(bool, tag = "1")]
        bool_value: bool,
        #[prost(string, tag = "2")]
        string_value: String,
        #[prost(sint32, tag = "3")]
        char_value: i32,
        #[prost(uint32, tag = "4")]
        uchar_value: u32,
        #[prost(sint32, tag = "5")]
        int16_value: i32,
        #[prost(uint32, tag = "6")]
        uint16_value: u32,
        #[prost(sint32, tag = "7")]
        int32_value: i32,
        #[prost(uint32, tag = "8")]
        uint32_value: u32,
        #[prost(sint64, tag = "9")]
        int64_value: i64,
        #[prost(uint64, tag = "10")]
        uint64_value: u64,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Probe {
        #[prost(uint64, tag = "1")]
        idle_time: u64,
        #[prost(uint64, tag = "2")]
        system_time: u64,
        #[prost(uint64, tag = "3")]
        user_time: u64,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Cloud {
        #[prost(uint64, tag = "1")]
        stamp: u64,
        #[prost(string, tag = "2")]
        frame_id: String,
        #[prost(uint32, tag = "3")]
        height: u32,
        #[prost(uint32, tag = "4")]
        width: u32,
        #[prost(float, repeated, tag = "5")]
        data: Vec<f32>,
    }
}
