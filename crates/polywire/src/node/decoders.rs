//! The decoders of a node, by writer's type, format and reader: a type that is announced a thousand
//! times is compiled once, and [`NodeLimits`] bound what peers make the node compile.

use std::{
    any::{Any, TypeId},
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use polywire_core::envelope::Id128;

use super::limits::{Exceeded, NodeLimits};
use crate::engine::LinkId;

/// The number of type members up to which unused decoders are kept, because a publisher may return
/// to a former format.
const IDLE_MEMBERS: u64 = 1 << 14;
/// Bytes of the reasons kept for decoders that cannot be made.
const REFUSED_BYTES: usize = 1 << 20;

/// Everything that a decoder depends on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DecoderKey {
    /// The type of the [`Coding`](crate::coding::Coding), and so of the values that are decoded.
    pub(crate) coding: TypeId,
    pub(crate) reader: ReaderKey,
    /// The writer's schema; zero if it is assumed.
    pub(crate) schema: Id128,
    pub(crate) codec: String,
    pub(crate) options: String,
    pub(crate) configuration: Option<Id128>,
}

/// Distinguishes readers with the same kind of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReaderKey {
    /// All readers for which [`Coding::reader`](crate::coding::Coding::reader) returns this number.
    Shared(usize),
    /// One subscriber.
    Own(u64),
}

/// The decoders of a node.
pub(crate) struct Decoders {
    limits: NodeLimits,
    state: Mutex<Table>,
    made: Condvar,
}

#[derive(Default)]
struct Table {
    entries: BTreeMap<DecoderKey, Entry>,
    /// Decoders that a thread is making now.
    making: BTreeSet<DecoderKey>,
    refused: BTreeMap<DecoderKey, Refused>,
    refused_bytes: usize,
    uses: u64,
}

struct Entry {
    /// An `Arc` of the decoder. `None` while it is being made.
    decoder: Option<Arc<dyn Any + Send + Sync>>,
    /// Keeps the coding alive, so that the key's number stays unique.
    _coding: Box<dyn Any + Send + Sync>,
    members: u64,
    /// The link for which the decoder was first made.
    link: LinkId,
    used: u64,
}

struct Refused {
    reason: String,
    _coding: Box<dyn Any + Send + Sync>,
}

/// A decoder to be made.
pub(crate) struct Order<C> {
    pub(crate) key: DecoderKey,
    pub(crate) coding: C,
    /// Members of the writer's type.
    pub(crate) members: u64,
    pub(crate) link: LinkId,
}

impl Decoders {
    pub(crate) fn new(limits: NodeLimits) -> Decoders {
        Decoders { limits, state: Mutex::default(), made: Condvar::new() }
    }

    /// Returns the decoder, and makes it if there is none. A decoder that cannot be made is tried
    /// once. Blocks while another thread makes the same decoder.
    pub(crate) fn get<C: Any + Send + Sync, D: Any + Send + Sync>(
        &self,
        order: Order<C>,
        make: impl FnOnce() -> Result<D, String>,
    ) -> Result<Arc<D>, String> {
        let mut state = self.lock();
        while state.making.contains(&order.key) {
            self.made.wait(&mut state);
        }
        if let Some(known) = state.known(&order.key) {
            return known;
        }
        let Order { key, coding, members, link } = order;
        state.admit(members, link, &self.limits).map_err(|exceeded| exceeded.to_string())?;
        let used = state.next_use();
        state.entries.insert(key.clone(), Entry { decoder: None, _coding: Box::new(coding), members, link, used });
        state.making.insert(key.clone());
        drop(state);
        let making = Making { decoders: self, key: &key };
        let made = make().map(Arc::new);
        making.end(made)
    }

    /// Drops unused decoders, except those used last, with up to [`IDLE_MEMBERS`] members in total.
    pub(crate) fn trim(&self) {
        self.lock().trim(IDLE_MEMBERS);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.state.lock()
    }
}

/// Ends the making of a decoder and wakes the threads that wait for it, even after a panic of the
/// codec.
struct Making<'a> {
    decoders: &'a Decoders,
    key: &'a DecoderKey,
}

impl Making<'_> {
    fn end<D: Any + Send + Sync>(self, made: Result<Arc<D>, String>) -> Result<Arc<D>, String> {
        let mut state = self.decoders.lock();
        match &made {
            Ok(decoder) => {
                if let Some(entry) = state.entries.get_mut(self.key) {
                    entry.decoder = Some(decoder.clone());
                }
            }
            Err(reason) => state.refuse(self.key, reason),
        }
        drop(state);
        made
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        let mut state = self.decoders.lock();
        state.making.remove(self.key);
        if state.entries.get(self.key).is_some_and(|entry| entry.decoder.is_none()) {
            state.entries.remove(self.key);
        }
        drop(state);
        self.decoders.made.notify_all();
    }
}

impl Table {
    fn known<D: Any + Send + Sync>(&mut self, key: &DecoderKey) -> Option<Result<Arc<D>, String>> {
        if let Some(refused) = self.refused.get(key) {
            return Some(Err(refused.reason.clone()));
        }
        let used = self.next_use();
        let entry = self.entries.get_mut(key)?;
        entry.used = used;
        // The key has the type of the coding, which determines the type of the decoder.
        entry.decoder.clone()?.downcast().ok().map(Ok)
    }

    fn admit(&mut self, members: u64, link: LinkId, limits: &NodeLimits) -> Result<(), Exceeded> {
        if members > limits.type_members {
            return Err(Exceeded::Type { members, limit: limits.type_members });
        }
        self.trim(IDLE_MEMBERS);
        let exceeds = |used: u64, limit: u64| used.saturating_add(members) > limit;
        if exceeds(self.members(Some(link)), limits.link_members) || exceeds(self.members(None), limits.node_members) {
            self.trim(0);
        }
        let used = self.members(Some(link));
        if exceeds(used, limits.link_members) {
            return Err(Exceeded::Link { link, used, members, limit: limits.link_members });
        }
        let used = self.members(None);
        if exceeds(used, limits.node_members) {
            return Err(Exceeded::Node { used, members, limit: limits.node_members });
        }
        Ok(())
    }

    fn members(&self, link: Option<LinkId>) -> u64 {
        let of_link = |entry: &&Entry| link.is_none_or(|link| entry.link == link);
        self.entries.values().filter(of_link).map(|entry| entry.members).fold(0, u64::saturating_add)
    }

    /// Drops unused decoders, except those used last, with up to `keep` members in total.
    fn trim(&mut self, keep: u64) {
        let idle = |entry: &Entry| entry.decoder.as_ref().is_some_and(|decoder| Arc::strong_count(decoder) == 1);
        let mut unused: Vec<(u64, u64)> =
            self.entries.values().filter(|entry| idle(entry)).map(|entry| (entry.used, entry.members)).collect();
        unused.sort_unstable();
        let (mut kept, mut oldest) = (0u64, u64::MAX);
        for (used, members) in unused.into_iter().rev() {
            kept = kept.saturating_add(members);
            if kept > keep {
                break;
            }
            oldest = used;
        }
        self.entries.retain(|_, entry| !idle(entry) || entry.used >= oldest);
    }

    fn refuse(&mut self, key: &DecoderKey, reason: &str) {
        let Some(entry) = self.entries.remove(key) else { return };
        let bytes = reason.len() + key.options.len() + size_of::<(DecoderKey, Refused)>();
        if self.refused_bytes.saturating_add(bytes) > REFUSED_BYTES {
            self.refused.clear();
            self.refused_bytes = 0;
        }
        self.refused_bytes += bytes;
        self.refused.insert(key.clone(), Refused { reason: reason.into(), _coding: entry._coding });
    }

    fn next_use(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, thread, time::Duration};

    use super::*;

    fn limits(type_members: u64, link_members: u64, node_members: u64) -> NodeLimits {
        NodeLimits { type_members, link_members, node_members, ..NodeLimits::default() }
    }

    fn order(schema: u8, members: u64, link: u64) -> Order<()> {
        let key = DecoderKey {
            coding: TypeId::of::<()>(),
            reader: ReaderKey::Shared(0),
            schema: Id128([schema; 16]),
            codec: "cdr".into(),
            options: String::new(),
            configuration: None,
        };
        Order { key, coding: (), members, link: LinkId(link) }
    }

    #[test]
    fn what_is_known_is_not_made_again() {
        let decoders = Decoders::new(NodeLimits::default());
        let made = Cell::new(0);
        let make = |result: Result<u8, String>| {
            made.set(made.get() + 1);
            result
        };
        let first = decoders.get(order(1, 1, 1), || make(Ok(7))).expect("made");
        let second = decoders.get(order(1, 1, 2), || make(Ok(8))).expect("there");
        assert!(Arc::ptr_eq(&first, &second));
        for _ in 0..3 {
            assert_eq!(decoders.get(order(2, 1, 1), || make(Err("no".into()))), Err("no".into()));
        }
        assert_eq!(made.get(), 2);
    }

    #[test]
    fn threads_that_want_the_same_wait_for_one() {
        let decoders = Decoders::new(NodeLimits::default());
        let made = Mutex::new(0);
        let make = || {
            thread::sleep(Duration::from_millis(50));
            *made.lock() += 1;
            Ok(())
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| decoders.get(order(1, 1, 1), make).expect("made"));
            }
        });
        assert_eq!(*made.lock(), 1);
    }

    #[test]
    fn a_panic_while_making_leaves_nothing_behind() {
        let decoders = Decoders::new(NodeLimits::default());
        let panics = || decoders.get(order(1, 1, 1), || -> Result<u8, String> { panic!("a codec's mistake") });
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert_eq!(decoders.get(order(1, 1, 1), || Ok(7)).as_deref(), Ok(&7));
    }

    #[test]
    fn links_and_the_node_have_budgets_and_what_is_idle_makes_room() {
        let decoders = Decoders::new(limits(50, 100, 150));
        let get = |schema, members, link| decoders.get(order(schema, members, link), || Ok(schema));
        let reason = |got: Result<Arc<u8>, String>| got.expect_err("refused");
        assert!(reason(get(9, 51, 1)).contains("51 members, more than the 50"));
        let (a, _b) = (get(1, 50, 1).expect("room"), get(2, 50, 1).expect("room"));
        assert!(reason(get(3, 1, 1)).contains("100 of a link"));
        let _c = get(3, 50, 2).expect("another link has room");
        assert!(reason(get(4, 1, 2)).contains("exceed its 150"));
        // A refusal because of a limit is not remembered, since there may be room later.
        drop(a);
        assert!(get(4, 50, 1).is_ok());
    }

    #[test]
    fn few_unused_decoders_are_kept() {
        let decoders = Decoders::new(NodeLimits::default());
        for schema in 0..64 {
            decoders.get(order(schema, IDLE_MEMBERS / 4, 1), || Ok(schema)).expect("made");
        }
        decoders.trim();
        let kept: Vec<u8> = decoders.lock().entries.keys().map(|key| key.schema.0[0]).collect();
        assert_eq!(kept, [60, 61, 62, 63]);
    }

    #[test]
    fn reasons_do_not_pile_up() {
        let decoders = Decoders::new(NodeLimits::default());
        for schema in 0..=255 {
            let refused = || Err::<(), _>("x".repeat(REFUSED_BYTES / 100));
            assert!(decoders.get(order(schema, 1, 1), refused).is_err());
        }
        assert!(decoders.lock().refused.len() < 100);
    }
}
