//! The contract of reliable, ordered engines, checked on each engine of [`places`]: order, holding,
//! what a full queue drops and counts, late joiners, closing and coming back.
//!
//! The table has the built-in engines and the example `examples/fifo/engine.rs`. To check another
//! engine, add a line to [`places`]. To check one from another crate, copy this file,
//! `tests/common` and `examples/fifo/engine.rs`; they use public names only, and need
//! `polywire-core` and `rustix` as dependencies.

mod common;

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering, mpsc},
    thread,
    time::{Duration, Instant},
};

use common::{DOCUMENT, Heard, SOON, Tap, fifo::Fifo, find, until};
use polywire::engine::{
    Batch, Disconnect, ENGINES, Engine, EngineError, EngineOptions, Event, Overflow, PayloadEnd, Sent,
};
use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, Start},
};
use polywire_testing::free_path;

/// An engine under test: who opens first and where, and who opens next at the endpoint of the
/// first.
struct Place {
    first: &'static dyn Engine,
    address: String,
    next: &'static dyn Engine,
}

/// One node of `lan` that others have to name: the suite does not depend on multicast.
const LAN: &str = "0?multicast=off,interface=127.0.0.1,port=0";

/// A peer of Zenoh that is met by its locator alone.
const ZENOH: &str = "peer?scouting=off,listen=tcp/127.0.0.1:0";

/// The address at which others open to meet the one that opened first.
fn to(first: &Tap) -> String {
    let address = first.address();
    if let Some((_, locator)) = address.split_once(",listen=") {
        return format!("{ZENOH},connect={locator}");
    }
    match address.split_once(",port=") {
        Some((_, port)) => format!("{LAN},peer=127.0.0.1:{port}"),
        None => address,
    }
}

/// The tests that hold for engines that are not reliable, too.
const BEST_EFFORT: &[&str] = &["declined", "late", "documents", "back", "restart"];

/// The tests that hold for `dds`, too. Its queues are those of DDS: a message waits in the writer's
/// history for all readers together, so what a slow peer loses is not counted for it alone.
#[cfg(feature = "dds")]
const DDS: &[&str] = &["order", "declined", "late", "retired", "documents", "closing", "back", "restart"];

/// A domain of DDS on the loopback interface.
#[cfg(feature = "dds")]
fn dds_domain() -> String {
    format!("{}?interface=127.0.0.1", polywire_testing::domains::lease())
}

/// Every engine that can open first, with an address of its own for each test.
fn places(test: &str) -> Vec<Place> {
    let built_in = |name: &str| *ENGINES.iter().find(|engine| engine.name() == name).expect("an engine");
    let path = |kind: &str| free_path(kind).display().to_string();
    let place = |engine: &'static dyn Engine| {
        let name = engine.name();
        let (address, next) = match name {
            "inproc" => (format!("engines-{test}"), engine),
            "local" | "shm" => (path(name), engine),
            "lan" => (LAN.into(), engine),
            "zenoh" => (ZENOH.into(), engine),
            "zeromq" => ("bind/tcp://127.0.0.1:0".into(), engine),
            "tcp" | "tls" => ("127.0.0.1:0".into(), engine),
            "unix" => (path("either"), engine),
            // With the option of addresses.
            "tcp-listen" => ("127.0.0.1:0?thin".into(), built_in("tcp-connect")),
            "tls-listen" => ("127.0.0.1:0".into(), built_in("tls-connect")),
            "unix-listen" => (path("listen"), built_in("unix-connect")),
            "fifo" => (path("fifo"), engine),
            "udp-reliable" => ("127.0.0.1:0".into(), engine),
            "udp" if BEST_EFFORT.contains(&test) => ("127.0.0.1:0".into(), engine),
            #[cfg(feature = "dds")]
            "dds" if DDS.contains(&test) => (dds_domain(), engine),
            "udp" | "dds" => return None,
            // Opens next, to those that listen.
            name if name.ends_with("-connect") => return None,
            name => panic!("no address to check engine '{name}' at: add one here"),
        };
        Some(Place { first: engine, address, next })
    };
    ENGINES.iter().copied().chain([&Fifo as &dyn Engine]).filter_map(place).collect()
}

/// Two nodes on one engine: the writer has opened first.
struct Pair {
    name: &'static str,
    writer: Arc<Tap>,
    /// The writer's events.
    events: mpsc::Receiver<Event>,
    reader: Arc<Tap>,
    reader_events: mpsc::Receiver<Event>,
    next: &'static dyn Engine,
    options: EngineOptions,
}

/// Queues of 4000 bytes.
fn small(overflow: Overflow) -> EngineOptions {
    let mut options = common::options();
    (options.overflow, options.queue_bytes) = (overflow, 4000);
    (options.send_buffer, options.receive_buffer) = (Some(16 << 10), Some(16 << 10));
    options
}

/// Runs a check on each engine. `accepts`: the reader accepts every channel at once.
fn each(test: &str, overflow: Overflow, accepts: bool, check: impl Fn(&Pair)) {
    each_with(test, &small(overflow), accepts, check);
}

/// The same with these options.
fn each_with(test: &str, options: &EngineOptions, accepts: bool, check: impl Fn(&Pair)) {
    let places = places(test);
    assert!(places.len() >= 7, "the engines built in and one more");
    for Place { first, address, next } in places {
        let options = options.clone();
        let (writer, events) = Tap::on(first, &address, options.clone(), true);
        let (reader, reader_events) = Tap::on(next, &to(&writer), options.clone(), accepts);
        check(&Pair { name: first.name(), writer, events, reader, reader_events, next, options });
    }
}

impl Pair {
    /// Waits until the reader has heard of `channels` channels, and the writer has one link.
    fn linked(&self, channels: usize) {
        self.reader.until("announcements", |heard| (heard.announced.len() >= channels).then_some(()));
        assert_eq!(self.writer.port().links().len(), 1, "{}", self.name);
    }

    /// A channel that the reader has accepted.
    fn accepted(&self) -> ChannelId {
        let channel = self.writer.announce("t", 1);
        self.writer.until("answer", |heard| (heard.answered == 1).then_some(()));
        channel
    }

    /// Checks that messages 1 to `last` of a writer have come, in order on each of its channels.
    /// Only DDS, where each channel is a writer of its own, may mix messages of different channels.
    fn is_in_order(&self, heard: &Heard, last: u64) {
        let mut sequences = sequences(heard);
        if self.name == "dds" {
            let channels: BTreeSet<ChannelId> = sequences.iter().map(|(channel, _)| *channel).collect();
            for channel in channels {
                let here = sequences.iter().filter(|(other, _)| *other == channel);
                assert!(here.map(|(_, sequence)| *sequence).is_sorted(), "{}", self.name);
            }
            sequences.sort_by_key(|(_, sequence)| *sequence);
        }
        assert!(sequences.iter().map(|(_, sequence)| *sequence).eq(1..=last), "{}", self.name);
    }

    fn publish(&self, channel: ChannelId, sequences: impl Iterator<Item = u64>) -> Vec<Sent> {
        sequences.map(|sequence| self.writer.publish(channel, sequence, &[1; 400])).collect()
    }
}

fn dropped(events: &mpsc::Receiver<Event>) -> (String, u64) {
    find(events, |event| match event {
        Event::Dropped { topic, count, .. } => Some((topic, count)),
        _ => None,
    })
}

fn disconnected(events: &mpsc::Receiver<Event>) -> Disconnect {
    find(events, |event| match event {
        Event::Disconnected { reason, .. } => Some(reason),
        _ => None,
    })
}

fn sequences(heard: &Heard) -> Vec<(ChannelId, u64)> {
    heard.messages.iter().map(|message| (message.channel, message.sequence)).collect()
}

/// Messages received, and messages reported as lost.
fn received_and_lost(heard: &Heard) -> (u64, u64) {
    (heard.messages.len() as u64, heard.lost.iter().map(|(_, lost)| lost).sum())
}

#[test]
fn messages_of_a_writer_arrive_unchanged_and_in_order() {
    each("order", Overflow::default(), true, |pair| {
        let channels = [("a", 1), ("b", 1)].map(|(topic, writer)| pair.writer.announce(topic, writer));
        pair.writer.until("answers", |heard| (heard.answered == 2).then_some(()));
        let payload = |sequence: u64| vec![sequence as u8; (sequence % 97) as usize];
        for sequence in 1..=1000 {
            let channel = channels[usize::from(sequence % 3 == 0)];
            let sent = pair.writer.publish(channel, sequence, &payload(sequence));
            assert_eq!((sent.peers, sent.held, sent.subscribers, sent.dropped), (1, 0, 1, 0), "{}", pair.name);
        }
        assert!(pair.writer.port().flush(Instant::now() + SOON), "{}", pair.name);
        let heard = pair.reader.until("messages", |heard| (heard.messages.len() == 1000).then(|| heard.clone()));
        pair.is_in_order(&heard, 1000);
        assert!(heard.messages.iter().all(|message| message.payload == payload(message.sequence)), "{}", pair.name);
        let of_b = heard.messages.iter().filter(|message| message.channel != heard.messages[0].channel).count();
        assert_eq!((of_b, heard.lost.len()), (333, 0), "{}", pair.name);
        let links = pair.writer.port().links();
        assert_eq!((links[0].sent, links[0].dropped, links[0].queued_bytes), (1000, 0, 0), "{}", pair.name);
    });
}

#[test]
fn messages_sent_together_are_sent_one_after_the_other() {
    each("together", Overflow::default(), true, |pair| {
        let channels = [("a", 1), ("b", 1)].map(|(topic, writer)| pair.writer.announce(topic, writer));
        pair.writer.until("answers", |heard| (heard.answered == 2).then_some(()));
        let payload = |sequence: u64| vec![sequence as u8; (sequence % 1500) as usize];
        let (mut sum, mut next) = (Sent::default(), 1);
        for (some, channel) in [1, 5, 300, 2, 64, 31, 1, 596].into_iter().zip(channels.into_iter().cycle()) {
            let (mut payloads, mut ends) = (Vec::new(), Vec::new());
            for number in next..next + some {
                payloads.extend(payload(number));
                ends.push(PayloadEnd { offset: payloads.len(), anchor: None });
            }
            let batch = Batch::new(Envelope::data(channel, next, 17), &payloads, &ends);
            pair.writer.port().send_all(&batch, &mut sum).expect("sent");
            pair.writer.port().settle();
            next += some;
        }
        assert_eq!((sum.peers, sum.held, sum.subscribers, sum.dropped), (1000, 0, 1000, 0), "{}", pair.name);
        let heard = pair.reader.until("messages", |heard| (heard.messages.len() == 1000).then(|| heard.clone()));
        pair.is_in_order(&heard, 1000);
        assert!(heard.messages.iter().all(|message| message.payload == payload(message.sequence)), "{}", pair.name);
        assert_eq!(pair.writer.port().links()[0].sent, 1000, "{}", pair.name);
    });
}

#[test]
fn messages_before_one_that_is_too_large_are_sent() {
    let mut options = small(Overflow::default());
    options.limits.frame_bytes = 2000;
    each_with("together-large", &options, true, |pair| {
        // Nodes of one process exchange no frames.
        if pair.name == "inproc" {
            return;
        }
        let channel = pair.accepted();
        let mut sent = Sent::default();
        let mut send = |first, sizes: &[usize]| {
            let end = |end: &mut usize, size: &usize| {
                *end += size;
                Some(PayloadEnd { offset: *end, anchor: None })
            };
            let ends: Vec<_> = sizes.iter().scan(0, end).collect();
            let payloads = vec![7; sizes.iter().sum()];
            let batch = Batch::new(Envelope::data(channel, first, 0), &payloads, &ends);
            let done = pair.writer.port().send_all(&batch, &mut sent);
            pair.writer.port().settle();
            done.map_err(|(index, _)| index)
        };
        assert_eq!(send(1, &[900, 1900, 100, 5000, 10]), Err(3), "{}", pair.name);
        assert_eq!(send(4, &[5000]), Err(0), "{}", pair.name);
        assert_eq!(send(4, &[1900, 1900, 1900]), Ok(()), "{}: only all together are too large", pair.name);
        assert_eq!((sent.peers, sent.dropped), (6, 0), "{}", pair.name);
        let heard = pair.reader.until("messages", |heard| (heard.messages.len() == 6).then(|| heard.clone()));
        pair.is_in_order(&heard, 6);
        let sizes: Vec<_> = heard.messages.iter().map(|message| message.payload.len()).collect();
        assert_eq!(sizes, [900, 1900, 100, 1900, 1900, 1900], "{}", pair.name);
    });
}

#[test]
fn what_is_dropped_of_messages_sent_together_is_counted_and_told() {
    for overflow in [Overflow::DropOldest, Overflow::DropNewest, Overflow::Block { patience: Duration::ZERO }] {
        // An engine without threads would wait here for the reader that is stuck. Over UDP, such a
        // reader may be cut off before a port that blocks has dropped anything.
        let blocks = matches!(overflow, Overflow::Block { .. });
        let is_checked = |pair: &Pair| pair.name != "inproc" && !(blocks && pair.name == "udp-reliable");
        each("together-slow", overflow, true, |pair| {
            if !is_checked(pair) {
                return;
            }
            let channel = pair.accepted();
            pair.reader.is_stuck.store(true, Ordering::SeqCst);
            let ends: Vec<_> = (1..=25).map(|count| PayloadEnd { offset: count * 400, anchor: None }).collect();
            let (mut sent, mut last) = (Sent::default(), 0);
            while pair.writer.port().links()[0].dropped < 100 {
                assert!(last < 50_000, "{}: nothing is dropped", pair.name);
                let batch = Batch::new(Envelope::data(channel, last + 1, 0), &[1; 25 * 400], &ends);
                pair.writer.port().send_all(&batch, &mut sent).expect("sent");
                last += 25;
            }
            pair.reader.is_stuck.store(false, Ordering::SeqCst);
            let all = |heard: &Heard| {
                let (received, lost) = received_and_lost(heard);
                (received + lost == last).then(|| heard.clone())
            };
            let heard = pair.reader.until("all", all);
            let (_, lost) = received_and_lost(&heard);
            assert_eq!(pair.writer.port().links()[0].dropped, lost, "{}: {overflow:?}", pair.name);
            assert_eq!(sent.dropped as u64, if overflow == Overflow::DropOldest { 0 } else { lost }, "{}", pair.name);
            assert!(sequences(&heard).is_sorted(), "{}: {overflow:?}", pair.name);
            let mut told = 0;
            while told < lost {
                told += dropped(&pair.events).1;
            }
            assert_eq!(told, lost, "{}: {overflow:?}", pair.name);
        });
    }
}

#[test]
fn held_messages_that_make_room_are_counted_and_told() {
    each("held", Overflow::DropOldest, false, |pair| {
        let channel = pair.writer.announce("t", 1);
        pair.linked(1);
        let sent = pair.publish(channel, 1..=40);
        let held = sent.iter().all(|sent| (sent.peers, sent.held, sent.subscribers) == (1, 1, 0));
        assert!(held, "{}: {sent:?}", pair.name);
        pair.reader.answer(1, Answer::Accept(1));
        let newest = |heard: &Heard| (sequences(heard).last() == Some(&(channel, 40))).then(|| heard.clone());
        let heard = pair.reader.until("newest message", newest);
        let (received, lost) = received_and_lost(&heard);
        assert!(lost > 20 && received + lost == 40, "{}: {lost} lost", pair.name);
        assert_eq!(heard.lost, [(lost, lost)], "{}: the oldest", pair.name);
        assert_eq!(pair.writer.port().links()[0].dropped, lost, "{}", pair.name);
        assert_eq!(dropped(&pair.events), ("t".into(), 1), "{}", pair.name);
    });
}

#[test]
fn a_channel_without_an_answer_holds_back_its_writer_and_nobody_else() {
    each("others", Overflow::default(), false, |pair| {
        let [slow, same, other] =
            [(1, "slow"), (1, "same"), (2, "other")].map(|(by, topic)| pair.writer.announce(topic, by));
        pair.linked(3);
        [2, 3].iter().for_each(|number| pair.reader.answer(*number, Answer::Accept(2)));
        pair.writer.until("answers", |heard| (heard.answered == 2).then_some(()));
        pair.publish(slow, 1..=1);
        let behind = pair.publish(same, 2..=2);
        assert_eq!((behind[0].peers, behind[0].subscribers), (1, 2), "{}", pair.name);
        pair.publish(other, 1..=1);
        let first = pair.reader.until("message", |heard| sequences(heard).first().copied());
        assert_eq!(first, (other, 1), "{}", pair.name);
        assert_eq!(pair.reader.heard().messages.len(), 1, "{}: the others wait", pair.name);
        pair.reader.answer(1, Answer::Accept(1));
        let all = pair.reader.until("messages", |heard| (heard.messages.len() == 3).then(|| sequences(heard)));
        assert_eq!(all, [(other, 1), (slow, 1), (same, 2)], "{}: in the order of their writer", pair.name);
    });
}

#[test]
fn what_is_dropped_behind_held_messages_is_told_there_and_at_the_end() {
    each("behind", Overflow::DropNewest, false, |pair| {
        let channel = pair.writer.announce("t", 1);
        pair.linked(1);
        let sent = pair.publish(channel, 1..=40);
        let kept = sent.iter().take_while(|sent| sent.dropped == 0).count() as u64;
        let told = kept > 3 && kept < 20 && sent.last().is_some_and(|sent| sent.dropped == 1);
        assert!(told, "{}: {kept}", pair.name);
        pair.reader.answer(1, Answer::Accept(1));
        // No further message: the loss is reported all the same.
        let heard = pair.reader.until("loss", |heard| (!heard.lost.is_empty()).then(|| heard.clone()));
        assert_eq!(heard.lost, [(40, 40 - kept)], "{}", pair.name);
        assert!(heard.messages.iter().map(|message| message.sequence).eq(1..=kept), "{}", pair.name);
        assert_eq!(dropped(&pair.events), ("t".into(), 1), "{}", pair.name);
        pair.writer.port().retire(channel);
        pair.reader.until("retirement", |heard| (heard.retired == 1).then_some(()));
    });
}

#[test]
fn a_channel_that_was_declined_gets_messages_from_its_acceptance_on() {
    each("declined", Overflow::default(), false, |pair| {
        let channel = pair.writer.announce("t", 1);
        pair.linked(1);
        pair.reader.answer(1, Answer::Decline);
        pair.writer.until("answer", |heard| (heard.answered == 1).then_some(()));
        let sent = pair.publish(channel, 1..=5);
        assert!(sent.iter().all(|sent| *sent == Sent::default()), "{}: {sent:?}", pair.name);
        pair.reader.answer(1, Answer::Accept(3));
        pair.writer.until("answer", |heard| (heard.answered == 2).then_some(()));
        assert_eq!(pair.publish(channel, 6..=8)[0].subscribers, 3, "{}", pair.name);
        let heard = pair.reader.until("messages", |heard| (heard.messages.len() == 3).then(|| heard.clone()));
        assert_eq!(sequences(&heard), [(channel, 6), (channel, 7), (channel, 8)], "{}", pair.name);
        assert_eq!(heard.lost, [], "{}: what it did not want is not lost", pair.name);
    });
}

/// Publishes until a hundred messages were dropped for the reader, which takes nothing meanwhile.
/// Returns how many were published. The first is published on a thread of its own, since an engine
/// without threads delivers on the publishing thread.
fn overrun(pair: &Pair, channel: ChannelId) -> u64 {
    pair.reader.is_stuck.store(true, Ordering::SeqCst);
    let lossy = || pair.writer.port().links()[0].dropped >= 100;
    thread::scope(|scope| {
        let writer = &pair.writer;
        let first = scope.spawn(|| writer.publish(channel, 1, &[1; 400]));
        thread::sleep(Duration::from_millis(50));
        // No system buffers 20 MB.
        let last = (2..=50_000).find(|sequence| {
            pair.publish(channel, *sequence..=*sequence);
            lossy()
        });
        pair.reader.is_stuck.store(false, Ordering::SeqCst);
        first.join().expect("no panic");
        last.unwrap_or_else(|| panic!("{}: nothing is dropped", pair.name))
    })
}

#[test]
fn a_slow_reader_gets_the_newest_or_the_oldest_and_hears_what_it_missed() {
    for overflow in [Overflow::DropOldest, Overflow::DropNewest] {
        each("slow", overflow, true, |pair| {
            let channel = pair.accepted();
            let total = overrun(pair, channel);
            // No further message: the loss is reported all the same.
            let all = |heard: &Heard| {
                let (received, lost) = received_and_lost(heard);
                (received + lost == total).then(|| heard.clone())
            };
            let heard = pair.reader.until("all", all);
            let (_, lost) = received_and_lost(&heard);
            assert_eq!(pair.writer.port().links()[0].dropped, lost, "{}: {overflow:?}", pair.name);
            assert!(sequences(&heard).is_sorted(), "{}: {overflow:?}", pair.name);
            let newest = sequences(&heard).last() == Some(&(channel, total));
            assert_eq!(newest, overflow == Overflow::DropOldest, "{}: {overflow:?}", pair.name);
            // One event when it begins, and one with the rest when the reader has caught up.
            let first = dropped(&pair.events);
            assert_eq!(first, ("t".into(), 1), "{}: {overflow:?}", pair.name);
            let mut told = first.1;
            while told < lost {
                told += dropped(&pair.events).1;
            }
            assert_eq!(told, lost, "{}: {overflow:?}", pair.name);
        });
    }
}

#[test]
fn a_peer_that_takes_nothing_is_waited_for_once() {
    let patience = Duration::from_millis(200);
    each("stuck", Overflow::Block { patience }, true, |pair| {
        let channel = pair.accepted();
        let began = Instant::now();
        let total = overrun(pair, channel);
        // A hundred messages were dropped, and waiting `patience` for each would have taken 20 s.
        // Filling the system's buffers takes time, too.
        assert!(began.elapsed() < 90 * patience, "{}: {:?}", pair.name, began.elapsed());
        let all = |heard: &Heard| {
            let (received, lost) = received_and_lost(heard);
            (received + lost == total).then_some(lost)
        };
        assert_eq!(pair.reader.until("rest", all), pair.writer.port().links()[0].dropped, "{}", pair.name);
        // The reader has caught up, so the writer waits for it again.
        let sent = pair.publish(channel, total + 1..=total + 100);
        assert!(sent.iter().all(|sent| sent.dropped == 0), "{}", pair.name);
    });
}

#[test]
fn a_late_joiner_gets_what_is_published_from_then_on() {
    each("late", Overflow::default(), true, |pair| {
        let channel = pair.accepted();
        pair.publish(channel, 1..=5);
        let (late, _events) = Tap::on(pair.next, &to(&pair.writer), pair.options.clone(), true);
        pair.writer.until("second answer", |heard| (heard.answered == 2).then_some(()));
        assert!(pair.publish(channel, 6..=8).iter().all(|sent| (sent.peers, sent.subscribers) == (2, 2)));
        let heard = late.until("messages", |heard| (heard.messages.len() == 3).then(|| heard.clone()));
        assert!(heard.messages.iter().map(|message| message.sequence).eq(6..=8), "{}", pair.name);
        assert_eq!(heard.lost, [], "{}: what came before it is not lost", pair.name);
        pair.reader.until("messages", |heard| (heard.messages.len() == 8).then_some(()));
        assert_eq!(pair.writer.port().links().len(), 2, "{}", pair.name);
    });
}

#[test]
fn a_retired_channel_ends_behind_its_messages() {
    each("retired", Overflow::default(), true, |pair| {
        let channel = pair.accepted();
        pair.publish(channel, 1..=50);
        pair.writer.port().retire(channel);
        let sent = pair.publish(channel, 51..=51);
        assert_eq!(sent[0].peers, 0, "{}: nobody is left to want it", pair.name);
        let heard = pair.reader.until("end", |heard| (heard.retired == 1).then(|| heard.clone()));
        assert!(heard.messages.iter().map(|message| message.sequence).eq(1..=50), "{}", pair.name);
        // A new channel works.
        let next = pair.writer.announce("t", 1);
        pair.writer.until("answer", |heard| (heard.answered == 2).then_some(()));
        pair.publish(next, 52..=52);
        let last = pair.reader.until("message", |heard| heard.messages.get(50).cloned());
        assert_eq!(last.sequence, 52, "{}", pair.name);
    });
}

#[test]
fn documents_come_to_those_who_want_them() {
    each("documents", Overflow::default(), true, |pair| {
        pair.accepted();
        let (link, _) = pair.reader.until("link", |heard| heard.announced.first().copied());
        let document = Id128([3; 16]);
        pair.reader.port().want(link, document);
        let (came, bytes) = pair.reader.until("document", |heard| heard.supplied.first().cloned());
        assert_eq!((came, bytes.as_deref()), (document, Some(DOCUMENT)), "{}", pair.name);
    });
}

#[test]
fn closing_delivers_what_was_published_and_says_goodbye() {
    each("closing", Overflow::default(), true, |pair| {
        let channel = pair.accepted();
        pair.publish(channel, 1..=2000);
        pair.writer.port().close();
        let heard = pair.reader.until("end", |heard| (heard.down == 1).then(|| heard.clone()));
        assert_eq!(received_and_lost(&heard), (2000, 0), "{}", pair.name);
        assert_eq!(disconnected(&pair.reader_events), Disconnect::Bye, "{}", pair.name);
        assert_eq!(disconnected(&pair.events), Disconnect::Closed, "{}", pair.name);
        let again = pair.writer.port().announce(&Announcement::default(), Start::default());
        assert!(matches!(again, Err(EngineError::Closed)), "{}: {again:?}", pair.name);
        until(pair.name, || pair.writer.port().links().is_empty());
        let sent = pair.writer.port().send(&Envelope::data(channel, 2001, 0), b"late");
        assert!(sent.is_err() || sent.is_ok_and(|sent| sent.peers == 0), "{}", pair.name);
        pair.writer.port().close();
    });
}

#[test]
fn a_reader_that_comes_back_is_served_again() {
    each("back", Overflow::default(), true, |pair| {
        let channel = pair.accepted();
        pair.publish(channel, 1..=3);
        pair.reader.port().close();
        assert_eq!(disconnected(&pair.events), Disconnect::Bye, "{}", pair.name);
        until(pair.name, || pair.writer.port().links().is_empty());
        assert_eq!(pair.publish(channel, 4..=4)[0], Sent::default(), "{}", pair.name);
        let (again, _events) = Tap::on(pair.next, &to(&pair.writer), pair.options.clone(), true);
        pair.writer.until("answer", |heard| (heard.answered == 2).then_some(()));
        pair.publish(channel, 5..=5);
        let heard = again.until("message", |heard| (!heard.messages.is_empty()).then(|| heard.clone()));
        assert_eq!((heard.messages[0].sequence, heard.lost.len()), (5, 0), "{}", pair.name);
    });
}

#[test]
fn links_come_back_when_the_node_that_opened_first_restarts() {
    for Place { first, address, next } in places("restart") {
        let options = small(Overflow::default());
        let (before, _events) = Tap::on(first, &address, options.clone(), true);
        // Where it was bound, ZeroMQ connects.
        let (address, calls) = (before.address().replacen("connect/", "bind/", 1), to(&before));
        let (writer, events) = Tap::on(next, &calls, options.clone(), true);
        let channel = writer.announce("t", 1);
        writer.until("answer", |heard| (heard.answered == 1).then_some(()));
        before.port().close();
        assert_eq!(disconnected(&events), Disconnect::Bye, "{}", first.name());
        drop(before);
        // With an engine in the role `Either`, another node may be listening now.
        let (after, _events) = Tap::on(first, &address, options, true);
        writer.until("second answer", |heard| (heard.answered == 2).then_some(()));
        writer.publish(channel, 7, b"again");
        let message = after.until("message", |heard| heard.messages.first().cloned());
        assert_eq!((message.sequence, &*message.payload), (7, &b"again"[..]), "{}", first.name());
    }
}
