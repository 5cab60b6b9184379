//! Hand-written FAST of MarketData, by the template `market_data.fast.xml`.

use super::{Fast, FastReader, FastWriter, set_text};
use crate::{Malformed, MarketData, MarketDataEntry};

/// The previous values of the message's fields and of its entries' fields.
#[derive(Clone, Debug)]
pub struct State {
    known: bool,
    is_echo: bool,
    counter: u32,
    security_id: u32,
    action: u32,
    entry_type: String,
    entry_security_id: Option<u32>,
    rpt_seq: Option<u32>,
    price: i64,
    time: Option<u32>,
    size: i32,
    orders: u32,
    change: i64,
}

impl Default for State {
    fn default() -> State {
        State {
            known: false,
            is_echo: false,
            counter: 0,
            security_id: 0,
            action: 1,
            entry_type: String::new(),
            entry_security_id: None,
            rpt_seq: None,
            price: 0,
            time: None,
            size: 0,
            orders: 0,
            change: 0,
        }
    }
}

impl Fast for MarketData {
    type State = State;

    fn template() -> String {
        include_str!("../../market_data.fast.xml").into()
    }

    #[inline]
    fn write(&self, writer: &mut FastWriter, s: &mut State) {
        let mut local = *writer;
        let w = &mut local;
        w.begin(4);
        w.bit(!s.known);
        if !s.known {
            w.unsigned(1);
        }
        copied(w, self.is_echo.into(), s.is_echo == self.is_echo);
        s.is_echo = self.is_echo;
        copied(w, self.counter, s.known && self.counter == s.counter.wrapping_add(1));
        s.counter = self.counter;
        copied(w, self.security_id, s.known && self.security_id == s.security_id);
        s.security_id = self.security_id;
        s.known = true;
        w.unsigned(self.msg_seq_num.into());
        w.unsigned(self.sending_time.into());
        w.unsigned(self.trade_date.into());
        w.unsigned(self.md_entries.len() as u64);
        w.end();
        for entry in &self.md_entries {
            w.begin(15);
            write_entry(entry, w, s);
            w.end();
        }
        *writer = local;
    }

    #[inline]
    fn read(&mut self, reader: &mut FastReader, s: &mut State) -> Result<(), Malformed> {
        let mut local = *reader;
        let r = &mut local;
        r.begin()?;
        if r.bit() {
            r.unsigned()?;
        }
        if r.bit() {
            s.is_echo = r.unsigned()? != 0;
        }
        self.is_echo = s.is_echo;
        s.counter = if r.bit() { r.unsigned()? as u32 } else { s.counter.wrapping_add(1) };
        self.counter = s.counter;
        if r.bit() {
            s.security_id = r.unsigned()? as u32;
        }
        self.security_id = s.security_id;
        set_text(&mut self.appl_version_id, "1.0");
        set_text(&mut self.message_type, "X");
        set_text(&mut self.sender_comp_id, "Test Exchange");
        self.msg_seq_num = r.unsigned()? as u32;
        self.sending_time = r.unsigned()? as u32;
        self.trade_date = r.unsigned()? as u32;
        let count = r.length()?;
        self.md_entries.resize_with(count, Default::default);
        for entry in &mut self.md_entries {
            r.begin()?;
            read_entry(entry, r, s)?;
        }
        *reader = local;
        Ok(())
    }
}

/// Writes the presence bit of a number, and the number unless the reader knows it.
#[inline(always)]
fn copied(w: &mut FastWriter, value: u32, is_known: bool) {
    w.bit(!is_known);
    if !is_known {
        w.unsigned(value.into());
    }
}

#[inline(always)]
fn default_text(w: &mut FastWriter, text: &str, usual: &str) {
    w.bit(text != usual);
    if text != usual {
        w.ascii(text);
    }
}

/// Writes a price as the difference in cents from the previous price.
#[inline(always)]
fn write_price(w: &mut FastWriter, price: f64, previous: &mut i64) {
    let cents = (price * 100.0).round_ties_even() as i64;
    w.bit(false);
    w.signed(cents - *previous);
    *previous = cents;
}

#[inline]
fn write_entry(entry: &MarketDataEntry, w: &mut FastWriter, s: &mut State) {
    copied(w, entry.md_update_action, entry.md_update_action == s.action);
    s.action = entry.md_update_action;
    copied(w, entry.md_price_level, entry.md_price_level == 1);
    copied_text(w, &entry.md_entry_type, &mut s.entry_type);
    w.unsigned(entry.open_close_settle_flag.into());
    copied(w, entry.security_id, s.entry_security_id == Some(entry.security_id));
    s.entry_security_id = Some(entry.security_id);
    copied(w, entry.rpt_seq, s.rpt_seq.map(|seq| seq.wrapping_add(1)) == Some(entry.rpt_seq));
    s.rpt_seq = Some(entry.rpt_seq);
    write_price(w, entry.md_entry_px, &mut s.price);
    copied(w, entry.md_entry_time, s.time == Some(entry.md_entry_time));
    s.time = Some(entry.md_entry_time);
    w.signed(i64::from(entry.md_entry_size) - i64::from(s.size));
    s.size = entry.md_entry_size;
    w.signed(i64::from(entry.number_of_orders) - i64::from(s.orders));
    s.orders = entry.number_of_orders;
    default_text(w, &entry.trading_session_id, "2");
    write_price(w, entry.net_chg_prev_day, &mut s.change);
    copied(w, entry.trade_volume, entry.trade_volume == 0);
    default_text(w, &entry.trade_condition, "W");
    default_text(w, &entry.tick_direction, "0");
    default_text(w, &entry.quote_condition, "C");
    copied(w, entry.aggressor_side, entry.aggressor_side == 0);
    default_text(w, &entry.match_event_indicator, "1");
}

#[inline(always)]
fn copied_text(w: &mut FastWriter, text: &str, previous: &mut String) {
    w.bit(text != *previous);
    if text != *previous {
        w.ascii(text);
        previous.clear();
        previous.push_str(text);
    }
}

#[inline(always)]
fn read_price(r: &mut FastReader, previous: &mut i64) -> Result<f64, Malformed> {
    let exponent = if r.bit() { r.signed()? } else { -2 };
    *previous += r.signed()?;
    Ok(match exponent {
        -2 => *previous as f64 / 100.0,
        exponent => *previous as f64 * 10f64.powi(exponent as i32),
    })
}

#[inline(always)]
fn read_default(r: &mut FastReader, usual: u32) -> Result<u32, Malformed> {
    if r.bit() { Ok(r.unsigned()? as u32) } else { Ok(usual) }
}

#[inline(always)]
fn read_text(r: &mut FastReader, into: &mut String, usual: &str) -> Result<(), Malformed> {
    if r.bit() {
        return r.ascii(into);
    }
    set_text(into, usual);
    Ok(())
}

#[inline]
fn read_entry(entry: &mut MarketDataEntry, r: &mut FastReader, s: &mut State) -> Result<(), Malformed> {
    s.action = read_default(r, s.action)?;
    entry.md_update_action = s.action;
    entry.md_price_level = read_default(r, 1)?;
    if r.bit() {
        r.ascii(&mut s.entry_type)?;
    }
    set_text(&mut entry.md_entry_type, &s.entry_type);
    entry.open_close_settle_flag = r.unsigned()? as u32;
    entry.security_id_source = 9;
    s.entry_security_id = Some(read_default(r, s.entry_security_id.unwrap_or(0))?);
    entry.security_id = s.entry_security_id.unwrap_or(0);
    s.rpt_seq = Some(read_default(r, s.rpt_seq.unwrap_or(0).wrapping_add(1))?);
    entry.rpt_seq = s.rpt_seq.unwrap_or(0);
    entry.md_entry_px = read_price(r, &mut s.price)?;
    s.time = Some(read_default(r, s.time.unwrap_or(0))?);
    entry.md_entry_time = s.time.unwrap_or(0);
    s.size = (i64::from(s.size) + r.signed()?) as i32;
    entry.md_entry_size = s.size;
    s.orders = (i64::from(s.orders) + r.signed()?) as u32;
    entry.number_of_orders = s.orders;
    read_text(r, &mut entry.trading_session_id, "2")?;
    entry.net_chg_prev_day = read_price(r, &mut s.change)?;
    entry.trade_volume = read_default(r, 0)?;
    read_text(r, &mut entry.trade_condition, "W")?;
    read_text(r, &mut entry.tick_direction, "0")?;
    read_text(r, &mut entry.quote_condition, "C")?;
    entry.aggressor_side = read_default(r, 0)?;
    read_text(r, &mut entry.match_event_indicator, "1")
}
