//! Plain CDR of derived types: fixed and variable members, collections, nesting.

use polywire_core::{
    codec::{self, Decoder, Encoder},
    layout::Message,
    program::Backend,
};
use polywire_derive::Message;
use polywire_testing::backends;

#[derive(Message, Default, Debug, PartialEq, Clone)]
#[polywire(name = "MiddlewareNewsBrief::MarketDataEntry", final)]
struct Entry {
    md_update_action: u32,
    md_price_level: u32,
    md_entry_type: String,
    open_close_settle_flag: u32,
    security_id_source: u32,
    security_id: u32,
    rpt_seq: u32,
    md_entry_px: f64,
    md_entry_time: u32,
    md_entry_size: i32,
    number_of_orders: u32,
    trading_session_id: String,
    net_chg_prev_day: f64,
    trade_volume: u32,
    trade_condition: String,
    tick_direction: String,
    quote_condition: String,
    aggressor_side: u32,
    match_event_indicator: String,
}

#[derive(Message, Default, Debug, PartialEq, Clone)]
#[polywire(name = "MiddlewareNewsBrief::MarketData", final)]
struct MarketData {
    is_echo: bool,
    counter: u32,
    #[polywire(key)]
    security_id: u32,
    appl_version_id: String,
    message_type: String,
    sender_comp_id: String,
    msg_seq_num: u32,
    sending_time: u32,
    trade_date: u32,
    md_entries: Vec<Entry>,
}

fn market_data() -> MarketData {
    let entry = |i: u32| Entry {
        md_update_action: 1,
        md_price_level: i,
        md_entry_type: "0".into(),
        open_close_settle_flag: 3,
        security_id_source: 9,
        security_id: 99,
        rpt_seq: 2,
        md_entry_px: 100.25 + f64::from(i),
        md_entry_time: 12345,
        md_entry_size: -50,
        number_of_orders: 10,
        trading_session_id: "abc".into(),
        net_chg_prev_day: -0.5,
        trade_volume: 7,
        trade_condition: "W".into(),
        tick_direction: String::new(),
        quote_condition: "héron".into(),
        aggressor_side: 1,
        match_event_indicator: "1".into(),
    };
    MarketData {
        is_echo: true,
        counter: 7,
        security_id: 99,
        appl_version_id: "1.0".into(),
        message_type: "X".into(),
        sender_comp_id: "AB".into(),
        msg_seq_num: 4,
        sending_time: 5,
        trade_date: 20100422,
        md_entries: (0..3).map(entry).collect(),
    }
}

/// The encoding of a message, written by hand.
#[derive(Default)]
struct Hand(Vec<u8>);

impl Hand {
    fn align(&mut self, n: usize) {
        self.0.resize(self.0.len().next_multiple_of(n), 0);
    }

    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.align(N);
        self.0.extend(bytes);
    }

    fn text(&mut self, text: &str) {
        self.put((text.len() as u32 + 1).to_le_bytes());
        self.0.extend(text.bytes().chain([0]));
    }

    fn entry(&mut self, entry: &Entry) {
        self.put(entry.md_update_action.to_le_bytes());
        self.put(entry.md_price_level.to_le_bytes());
        self.text(&entry.md_entry_type);
        for word in [entry.open_close_settle_flag, entry.security_id_source, entry.security_id, entry.rpt_seq] {
            self.put(word.to_le_bytes());
        }
        self.put(entry.md_entry_px.to_le_bytes());
        self.put(entry.md_entry_time.to_le_bytes());
        self.put(entry.md_entry_size.to_le_bytes());
        self.put(entry.number_of_orders.to_le_bytes());
        self.text(&entry.trading_session_id);
        self.put(entry.net_chg_prev_day.to_le_bytes());
        self.put(entry.trade_volume.to_le_bytes());
        self.text(&entry.trade_condition);
        self.text(&entry.tick_direction);
        self.text(&entry.quote_condition);
        self.put(entry.aggressor_side.to_le_bytes());
        self.text(&entry.match_event_indicator);
    }

    fn market_data(value: &MarketData) -> Vec<u8> {
        let mut hand = Hand::default();
        hand.put([value.is_echo.into()]);
        hand.put(value.counter.to_le_bytes());
        hand.put(value.security_id.to_le_bytes());
        hand.text(&value.appl_version_id);
        hand.text(&value.message_type);
        hand.text(&value.sender_comp_id);
        hand.put(value.msg_seq_num.to_le_bytes());
        hand.put(value.sending_time.to_le_bytes());
        hand.put(value.trade_date.to_le_bytes());
        hand.put((value.md_entries.len() as u32).to_le_bytes());
        value.md_entries.iter().for_each(|entry| hand.entry(entry));
        hand.0
    }
}

fn encode<T: Message>(value: &T, codec: &str, options: &str, backend: Backend) -> Vec<u8> {
    let codec = codec::find(codec).unwrap();
    let encoder = Encoder::<T>::with_backend(codec, &options.parse().unwrap(), backend).unwrap();
    let mut bytes = vec![];
    encoder.encode(value, &mut bytes).unwrap();
    bytes
}

fn decoder<T: Message>(codec: &str, options: &str, backend: Backend) -> Decoder<T> {
    let codec = codec::find(codec).unwrap();
    Decoder::with_backend(codec, &options.parse().unwrap(), T::shape().schema(), backend).unwrap()
}

#[test]
fn market_data_is_as_written_by_hand() {
    for backend in backends() {
        let value = market_data();
        let bytes = encode(&value, "cdr", "", backend);
        assert_eq!(bytes, Hand::market_data(&value));
        let mut read = MarketData::default();
        assert_eq!(decoder("cdr", "", backend).decode(&bytes, &mut read).unwrap(), bytes.len());
        assert_eq!(read, value);
    }
}

#[test]
fn every_truncation_is_refused() {
    for (codec, options, backend) in dialects() {
        let bytes = encode(&market_data(), codec, options, backend);
        let decoder = decoder::<MarketData>(codec, options, backend);
        let mut read = MarketData::default();
        for len in (0..bytes.len()).step_by(if cfg!(miri) { 211 } else { 1 }) {
            assert!(decoder.decode(&bytes[..len], &mut read).is_err(), "{codec}:{options} cut to {len}");
        }
        assert_eq!(decoder.decode(&bytes, &mut read).unwrap(), bytes.len());
        assert_eq!(read, market_data());
    }
}

fn dialects() -> impl Iterator<Item = (&'static str, &'static str, Backend)> {
    backends().into_iter().flat_map(|backend| {
        ["cdr", "xcdr2"]
            .into_iter()
            .flat_map(move |codec| ["le", "be", "le,header", "be,header"].map(|options| (codec, options, backend)))
    })
}

#[test]
fn flipped_bits_never_panic() {
    for (codec, options, backend) in dialects() {
        let bytes = encode(&market_data(), codec, options, backend);
        let decoder = decoder::<MarketData>(codec, options, backend);
        let mut read = MarketData::default();
        for bit in (0..8 * bytes.len()).step_by(if cfg!(miri) { 2111 } else { 1 }) {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let _ = decoder.decode(&flipped, &mut read);
        }
    }
}
