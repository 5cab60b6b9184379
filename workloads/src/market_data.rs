//! The workload MarketData of `market_data.idl`: nested structures and many short strings.

use polywire_derive::Message;

use crate::cdr::{Cdr, FIELD, Malformed, Reader, Writer, string_bound};
use crate::{Rng, Workload};

/// One change of an order book.
#[derive(Clone, Debug, PartialEq, Default, Message)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(
    feature = "rkyv",
    derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize),
    rkyv(attr(allow(missing_docs)))
)]
#[polywire(name = "MiddlewareNewsBrief::MarketDataEntry")]
#[repr(C)]
#[expect(missing_docs, reason = "the names are the exchange's")]
pub struct MarketDataEntry {
    #[polywire(name = "mdUpdateAction")]
    #[cfg_attr(feature = "serde", serde(rename = "mdUpdateAction"))]
    pub md_update_action: u32,
    #[polywire(name = "mdPriceLevel")]
    #[cfg_attr(feature = "serde", serde(rename = "mdPriceLevel"))]
    pub md_price_level: u32,
    #[polywire(name = "mdEntryType")]
    #[cfg_attr(feature = "serde", serde(rename = "mdEntryType"))]
    pub md_entry_type: String,
    #[polywire(name = "openCloseSettleFlag")]
    #[cfg_attr(feature = "serde", serde(rename = "openCloseSettleFlag"))]
    pub open_close_settle_flag: u32,
    #[polywire(name = "securityIDSource")]
    #[cfg_attr(feature = "serde", serde(rename = "securityIDSource"))]
    pub security_id_source: u32,
    #[polywire(name = "securityID")]
    #[cfg_attr(feature = "serde", serde(rename = "securityID"))]
    pub security_id: u32,
    #[polywire(name = "rptSeq")]
    #[cfg_attr(feature = "serde", serde(rename = "rptSeq"))]
    pub rpt_seq: u32,
    #[polywire(name = "mdEntryPx")]
    #[cfg_attr(feature = "serde", serde(rename = "mdEntryPx"))]
    pub md_entry_px: f64,
    #[polywire(name = "mdEntryTime")]
    #[cfg_attr(feature = "serde", serde(rename = "mdEntryTime"))]
    pub md_entry_time: u32,
    #[polywire(name = "mdEntrySize")]
    #[cfg_attr(feature = "serde", serde(rename = "mdEntrySize"))]
    pub md_entry_size: i32,
    #[polywire(name = "numberOfOrders")]
    #[cfg_attr(feature = "serde", serde(rename = "numberOfOrders"))]
    pub number_of_orders: u32,
    #[polywire(name = "tradingSessionID")]
    #[cfg_attr(feature = "serde", serde(rename = "tradingSessionID"))]
    pub trading_session_id: String,
    #[polywire(name = "netChgPrevDay")]
    #[cfg_attr(feature = "serde", serde(rename = "netChgPrevDay"))]
    pub net_chg_prev_day: f64,
    #[polywire(name = "tradeVolume")]
    #[cfg_attr(feature = "serde", serde(rename = "tradeVolume"))]
    pub trade_volume: u32,
    #[polywire(name = "tradeCondition")]
    #[cfg_attr(feature = "serde", serde(rename = "tradeCondition"))]
    pub trade_condition: String,
    #[polywire(name = "tickDirection")]
    #[cfg_attr(feature = "serde", serde(rename = "tickDirection"))]
    pub tick_direction: String,
    #[polywire(name = "quoteCondition")]
    #[cfg_attr(feature = "serde", serde(rename = "quoteCondition"))]
    pub quote_condition: String,
    #[polywire(name = "aggressorSide")]
    #[cfg_attr(feature = "serde", serde(rename = "aggressorSide"))]
    pub aggressor_side: u32,
    #[polywire(name = "matchEventIndicator")]
    #[cfg_attr(feature = "serde", serde(rename = "matchEventIndicator"))]
    pub match_event_indicator: String,
}

/// Changes of the order book of one security. Generated messages have four.
#[derive(Clone, Debug, PartialEq, Default, Message)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(
    feature = "rkyv",
    derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize),
    rkyv(attr(allow(missing_docs)))
)]
#[polywire(name = "MiddlewareNewsBrief::MarketData")]
#[repr(C)]
#[expect(missing_docs, reason = "the names are the exchange's")]
pub struct MarketData {
    pub is_echo: bool,
    pub counter: u32,
    #[polywire(name = "securityID", key)]
    #[cfg_attr(feature = "serde", serde(rename = "securityID"))]
    pub security_id: u32,
    #[polywire(name = "applVersionID")]
    #[cfg_attr(feature = "serde", serde(rename = "applVersionID"))]
    pub appl_version_id: String,
    #[polywire(name = "messageType")]
    #[cfg_attr(feature = "serde", serde(rename = "messageType"))]
    pub message_type: String,
    #[polywire(name = "senderCompID")]
    #[cfg_attr(feature = "serde", serde(rename = "senderCompID"))]
    pub sender_comp_id: String,
    #[polywire(name = "msgSeqNum")]
    #[cfg_attr(feature = "serde", serde(rename = "msgSeqNum"))]
    pub msg_seq_num: u32,
    #[polywire(name = "sendingTime")]
    #[cfg_attr(feature = "serde", serde(rename = "sendingTime"))]
    pub sending_time: u32,
    #[polywire(name = "tradeDate")]
    #[cfg_attr(feature = "serde", serde(rename = "tradeDate"))]
    pub trade_date: u32,
    #[polywire(name = "mdEntries")]
    #[cfg_attr(feature = "serde", serde(rename = "mdEntries"))]
    pub md_entries: Vec<MarketDataEntry>,
}

impl Cdr for MarketDataEntry {
    #[inline]
    fn encode(&self, writer: &mut Writer) {
        let mut local = *writer;
        let w = &mut local;
        w.scalar(self.md_update_action);
        w.scalar(self.md_price_level);
        w.string(&self.md_entry_type);
        w.align(4);
        w.scalar(self.open_close_settle_flag);
        w.scalar(self.security_id_source);
        w.scalar(self.security_id);
        w.scalar(self.rpt_seq);
        w.align(8);
        w.scalar(self.md_entry_px);
        w.scalar(self.md_entry_time);
        w.scalar(self.md_entry_size);
        w.scalar(self.number_of_orders);
        w.string(&self.trading_session_id);
        w.align(8);
        w.scalar(self.net_chg_prev_day);
        w.scalar(self.trade_volume);
        w.string(&self.trade_condition);
        w.align(4);
        w.string(&self.tick_direction);
        w.align(4);
        w.string(&self.quote_condition);
        w.align(4);
        w.scalar(self.aggressor_side);
        w.string(&self.match_event_indicator);
        *writer = local;
    }

    #[inline]
    fn decode(&mut self, reader: &mut Reader) -> Result<(), Malformed> {
        let mut local = *reader;
        let r = &mut local;
        self.md_update_action = r.scalar::<u32>()?;
        self.md_price_level = r.scalar::<u32>()?;
        r.string(&mut self.md_entry_type)?;
        r.align(4);
        self.open_close_settle_flag = r.scalar::<u32>()?;
        self.security_id_source = r.scalar::<u32>()?;
        self.security_id = r.scalar::<u32>()?;
        self.rpt_seq = r.scalar::<u32>()?;
        r.align(8);
        self.md_entry_px = r.scalar::<f64>()?;
        self.md_entry_time = r.scalar::<u32>()?;
        self.md_entry_size = r.scalar::<i32>()?;
        self.number_of_orders = r.scalar::<u32>()?;
        r.string(&mut self.trading_session_id)?;
        r.align(8);
        self.net_chg_prev_day = r.scalar::<f64>()?;
        self.trade_volume = r.scalar::<u32>()?;
        r.string(&mut self.trade_condition)?;
        r.align(4);
        r.string(&mut self.tick_direction)?;
        r.align(4);
        r.string(&mut self.quote_condition)?;
        r.align(4);
        self.aggressor_side = r.scalar::<u32>()?;
        r.string(&mut self.match_event_indicator)?;
        *reader = local;
        Ok(())
    }

    fn bound(&self) -> usize {
        13 * FIELD
            + string_bound(&self.md_entry_type)
            + string_bound(&self.trading_session_id)
            + string_bound(&self.trade_condition)
            + string_bound(&self.tick_direction)
            + string_bound(&self.quote_condition)
            + string_bound(&self.match_event_indicator)
    }
}

impl Cdr for MarketData {
    #[inline]
    fn encode(&self, writer: &mut Writer) {
        let mut local = *writer;
        let w = &mut local;
        w.scalar(self.is_echo as u8);
        w.align(4);
        w.scalar(self.counter);
        w.scalar(self.security_id);
        w.string(&self.appl_version_id);
        w.align(4);
        w.string(&self.message_type);
        w.align(4);
        w.string(&self.sender_comp_id);
        w.align(4);
        w.scalar(self.msg_seq_num);
        w.scalar(self.sending_time);
        w.scalar(self.trade_date);
        w.scalar(self.md_entries.len() as u32);
        for x in &self.md_entries {
            w.align(4);
            x.encode(w);
        }
        *writer = local;
    }

    #[inline]
    fn decode(&mut self, reader: &mut Reader) -> Result<(), Malformed> {
        let mut local = *reader;
        let r = &mut local;
        self.is_echo = r.boolean()?;
        r.align(4);
        self.counter = r.scalar::<u32>()?;
        self.security_id = r.scalar::<u32>()?;
        r.string(&mut self.appl_version_id)?;
        r.align(4);
        r.string(&mut self.message_type)?;
        r.align(4);
        r.string(&mut self.sender_comp_id)?;
        r.align(4);
        self.msg_seq_num = r.scalar::<u32>()?;
        self.sending_time = r.scalar::<u32>()?;
        self.trade_date = r.scalar::<u32>()?;
        let n = r.length()?;
        self.md_entries.resize_with(n, Default::default);
        for x in &mut self.md_entries {
            r.align(4);
            x.decode(r)?;
        }
        *reader = local;
        Ok(())
    }

    fn bound(&self) -> usize {
        7 * FIELD
            + string_bound(&self.appl_version_id)
            + string_bound(&self.message_type)
            + string_bound(&self.sender_comp_id)
            + self.md_entries.iter().map(Cdr::bound).sum::<usize>()
    }
}

impl Workload for MarketData {
    const NAME: &'static str = "MarketData";
    const MESSAGES: usize = 512;

    fn generate(n: usize) -> Vec<Self> {
        let mut rng = Rng(4242);
        let mut message = first_message();
        let mut reports = 500_000;
        (0..n)
            .map(|_| {
                message.counter += 1;
                message.msg_seq_num += 1;
                message.sending_time += rng.range(0, 40) as u32;
                for (i, entry) in message.md_entries.iter_mut().enumerate() {
                    reports += 1;
                    entry.rpt_seq = reports;
                    entry.md_entry_time = message.sending_time;
                    change(entry, i as u32, &mut rng);
                }
                message.clone()
            })
            .collect()
    }
}

fn first_message() -> MarketData {
    MarketData {
        is_echo: false,
        counter: 0,
        security_id: 26051,
        appl_version_id: "1.0".into(),
        message_type: "X".into(),
        sender_comp_id: "Test Exchange".into(),
        msg_seq_num: 1_000_000,
        sending_time: 83_000_123,
        trade_date: 20_120_301,
        md_entries: (0..4).map(first_entry).collect(),
    }
}

fn first_entry(i: u32) -> MarketDataEntry {
    MarketDataEntry {
        md_update_action: 1,
        md_price_level: 1 + i,
        md_entry_type: "0".into(),
        open_close_settle_flag: 0,
        security_id_source: 9,
        security_id: 26051 + i / 2,
        rpt_seq: 0,
        md_entry_px: 9427.25 + 0.25 * i as f64,
        md_entry_time: 83_000_123,
        md_entry_size: 40,
        number_of_orders: 7,
        trading_session_id: "2".into(),
        net_chg_prev_day: -2.25,
        trade_volume: 0,
        trade_condition: "W".into(),
        tick_direction: "0".into(),
        quote_condition: "C".into(),
        aggressor_side: 0,
        match_event_indicator: "1".into(),
    }
}

/// Changes an entry at random. The order of the calls of `rng` determines the values, and thereby
/// the pinned bytes.
fn change(entry: &mut MarketDataEntry, i: u32, rng: &mut Rng) {
    entry.md_entry_px += 0.25 * rng.range(-2, 3) as f64;
    entry.md_entry_size = (entry.md_entry_size + rng.range(-9, 10) as i32).max(1);
    entry.number_of_orders = (entry.number_of_orders as i64 + rng.range(-2, 3)).max(1) as u32;
    if rng.chance(10) {
        entry.net_chg_prev_day += 0.25;
    }
    entry.md_update_action = if rng.chance(10) { 0 } else { 1 };
    entry.md_price_level = if rng.chance(30) { 1 + i } else { 1 };
    entry.md_entry_type = if rng.chance(20) { "1".into() } else { "0".into() };
    entry.trade_volume = if rng.chance(5) { rng.range(1, 2000) as u32 } else { 0 };
    entry.aggressor_side = if rng.chance(5) { 1 } else { 0 };
}
