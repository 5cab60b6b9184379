//! The measured types with the derives that Polywire and its peers ask for, and a clock.
#![allow(missing_docs, clippy::clone_on_copy, reason = "the names are those of the workloads")]

use std::{hint::black_box, time::Instant};

use polywire_derive::Message;
use polywire_workloads as workloads;
use serde::{Deserialize, Serialize};

include!(concat!(env!("OUT_DIR"), "/codecs_test.rs"));

macro_rules! mirror {
    ($($name:ident { $($member:ident: $ty:ty),* })*) => {$(
        #[derive(Message, Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
        #[polywire(final)]
        pub struct $name {
            $(pub $member: $ty,)*
        }
    )*};
}

mirror! {
    MarketDataEntry {
        md_update_action: u32, md_price_level: u32, md_entry_type: String, open_close_settle_flag: u32,
        security_id_source: u32, security_id: u32, rpt_seq: u32, md_entry_px: f64, md_entry_time: u32, md_entry_size: i32,
        number_of_orders: u32, trading_session_id: String, net_chg_prev_day: f64, trade_volume: u32,
        trade_condition: String, tick_direction: String, quote_condition: String, aggressor_side: u32,
        match_event_indicator: String
    }
    MarketData {
        is_echo: bool, counter: u32, security_id: u32, appl_version_id: String, message_type: String,
        sender_comp_id: String, msg_seq_num: u32, sending_time: u32, trade_date: u32, md_entries: Vec<MarketDataEntry>
    }
    ProcessorProbe { idle_time: u64, system_time: u64, user_time: u64 }
    Floats { stamp: u64, frame_id: String, height: u32, width: u32, data: Vec<f32> }
}

macro_rules! convert {
    ($name:ident { $($member:ident),* }) => {
        impl From<&workloads::$name> for $name {
            fn from(w: &workloads::$name) -> Self {
                $name { $($member: w.$member.clone()),* }
            }
        }
    };
}

convert! { MarketDataEntry {
    md_update_action, md_price_level, md_entry_type, open_close_settle_flag, security_id_source, security_id, rpt_seq,
    md_entry_px, md_entry_time, md_entry_size, number_of_orders, trading_session_id, net_chg_prev_day, trade_volume,
    trade_condition, tick_direction, quote_condition, aggressor_side, match_event_indicator
} }
convert! { ProcessorProbe { idle_time, system_time, user_time } }
convert! { Floats { stamp, frame_id, height, width, data } }

impl From<&workloads::MarketData> for MarketData {
    fn from(w: &workloads::MarketData) -> Self {
        MarketData {
            is_echo: w.is_echo,
            counter: w.counter,
            security_id: w.security_id,
            appl_version_id: w.appl_version_id.clone(),
            message_type: w.message_type.clone(),
            sender_comp_id: w.sender_comp_id.clone(),
            msg_seq_num: w.msg_seq_num,
            sending_time: w.sending_time,
            trade_date: w.trade_date,
            md_entries: w.md_entries.iter().map(Into::into).collect(),
        }
    }
}

/// Nanoseconds that `run` takes for one of `items`: the best of several rounds, each of some milliseconds.
pub fn measure<T>(items: &[T], mut run: impl FnMut(&T)) -> f64 {
    let mut round = |repeats: usize| {
        let start = Instant::now();
        for _ in 0..repeats {
            items.iter().for_each(|item| run(black_box(item)));
        }
        start.elapsed().as_nanos() as f64 / (repeats * items.len()) as f64
    };
    let once = round(1).max(1.0) * items.len() as f64;
    let repeats = ((2e7 / once) as usize).max(1);
    (0..12).map(|_| round(repeats)).fold(f64::MAX, f64::min)
}
