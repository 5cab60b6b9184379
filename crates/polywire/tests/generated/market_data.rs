// Written by Polywire from IDL; changes here will be lost.

pub mod middleware_news_brief {
    #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    #[polywire(name = "MiddlewareNewsBrief::MarketDataEntry")]
    pub struct MarketDataEntry {
        #[polywire(name = "mdUpdateAction")]
        pub md_update_action: u32,
        #[polywire(name = "mdPriceLevel")]
        pub md_price_level: u32,
        #[polywire(name = "mdEntryType")]
        pub md_entry_type: String,
        #[polywire(name = "openCloseSettleFlag")]
        pub open_close_settle_flag: u32,
        #[polywire(name = "securityIDSource")]
        pub security_id_source: u32,
        #[polywire(name = "securityID")]
        pub security_id: u32,
        #[polywire(name = "rptSeq")]
        pub rpt_seq: u32,
        #[polywire(name = "mdEntryPx")]
        pub md_entry_px: f64,
        #[polywire(name = "mdEntryTime")]
        pub md_entry_time: u32,
        #[polywire(name = "mdEntrySize")]
        pub md_entry_size: i32,
        #[polywire(name = "numberOfOrders")]
        pub number_of_orders: u32,
        #[polywire(name = "tradingSessionID")]
        pub trading_session_id: String,
        #[polywire(name = "netChgPrevDay")]
        pub net_chg_prev_day: f64,
        #[polywire(name = "tradeVolume")]
        pub trade_volume: u32,
        #[polywire(name = "tradeCondition")]
        pub trade_condition: String,
        #[polywire(name = "tickDirection")]
        pub tick_direction: String,
        #[polywire(name = "quoteCondition")]
        pub quote_condition: String,
        #[polywire(name = "aggressorSide")]
        pub aggressor_side: u32,
        #[polywire(name = "matchEventIndicator")]
        pub match_event_indicator: String,
    }

    pub type MarketDataEntries = Vec<MarketDataEntry>;

    #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    #[polywire(name = "MiddlewareNewsBrief::MarketData")]
    pub struct MarketData {
        pub is_echo: bool,
        pub counter: u32,
        #[polywire(name = "securityID", key)]
        pub security_id: u32,
        #[polywire(name = "applVersionID")]
        pub appl_version_id: String,
        #[polywire(name = "messageType")]
        pub message_type: String,
        #[polywire(name = "senderCompID")]
        pub sender_comp_id: String,
        #[polywire(name = "msgSeqNum")]
        pub msg_seq_num: u32,
        #[polywire(name = "sendingTime")]
        pub sending_time: u32,
        #[polywire(name = "tradeDate")]
        pub trade_date: u32,
        #[polywire(name = "mdEntries")]
        pub md_entries: MarketDataEntries,
    }

    #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    #[polywire(name = "MiddlewareNewsBrief::RelatedSym")]
    pub struct RelatedSym {
        pub symbol: String,
        #[polywire(name = "orderQuantity")]
        pub order_quantity: u64,
        pub side: u32,
        #[polywire(name = "transactTime")]
        pub transact_time: u64,
        #[polywire(name = "quoteType")]
        pub quote_type: u32,
        #[polywire(name = "securityID")]
        pub security_id: u32,
        #[polywire(name = "securityIDSource")]
        pub security_id_source: u32,
    }

    pub type RelatedSyms = Vec<RelatedSym>;

    #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    #[polywire(name = "MiddlewareNewsBrief::QuoteRequest")]
    pub struct QuoteRequest {
        pub is_echo: bool,
        pub counter: u32,
        #[polywire(name = "securityID", key)]
        pub security_id: u32,
        #[polywire(name = "applVersionID")]
        pub appl_version_id: String,
        #[polywire(name = "messageType")]
        pub message_type: String,
        #[polywire(name = "senderCompID")]
        pub sender_comp_id: String,
        #[polywire(name = "msgSeqNum")]
        pub msg_seq_num: u32,
        #[polywire(name = "sendingTime")]
        pub sending_time: u32,
        #[polywire(name = "quoteReqID")]
        pub quote_req_id: String,
        pub related: RelatedSyms,
    }
}
