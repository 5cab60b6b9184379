//! Unit tests of each handler of a session.

use alloc::{format, string::String, sync::Arc, vec, vec::Vec};
use core::time::Duration;

use super::*;

const ONE: ChannelId = ChannelId(1);
const TWO: ChannelId = ChannelId(2);
const DOCUMENT: &[u8] = b"a schema document";

fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

fn repeat() -> Repeat {
    Repeat { first_pause: ms(10), longest_pause: ms(100), retirements: 3, lease: ms(1000) }
}

fn session(carrier: Carrier) -> Session {
    Session::new(Limits::default(), carrier, Budget::new(1 << 20))
}

fn reliable() -> Session {
    session(Carrier::Reliable)
}

fn lossy() -> Session {
    session(Carrier::Lossy(repeat()))
}

fn id() -> Id128 {
    Id128::of_document(DOCUMENT)
}

fn announcement() -> Announcement {
    Announcement { topic: "t".into(), schema: id(), ..Announcement::default() }
}

fn outputs(session: &mut Session) -> Vec<Output> {
    core::iter::from_fn(|| session.poll_output()).collect()
}

fn events(session: &mut Session) -> Vec<Event> {
    core::iter::from_fn(|| session.poll_event()).collect()
}

fn decide(channel: ChannelId) -> Event {
    Event::Decide { channel, anew: false }
}

fn answer(channel: ChannelId, answer: Answer) -> Output {
    Output::Answer { channel, answer }
}

/// A session whose peer has announced `channels`, all decisions due taken.
fn announced(mut session: Session, channels: &[ChannelId]) -> Session {
    for channel in channels {
        session.handle_announce(*channel, Start::default(), &announcement(), ms(0)).expect("within the limits");
    }
    assert_eq!(events(&mut session), channels.iter().map(|channel| decide(*channel)).collect::<Vec<_>>());
    session
}

fn reads(readers: u32) -> Decision<'static> {
    Decision { readers, ..Decision::default() }
}

#[test]
fn decisions_become_answers_and_only_news_are_told() {
    let mut session = announced(reliable(), &[ONE]);
    for (decision, told) in [
        (reads(0), Some(Answer::Decline)),
        (reads(0), None),
        (reads(2), Some(Answer::Accept(2))),
        (reads(2), None),
        (Decision { incompatible: Some("no"), ..reads(1) }, Some(Answer::Partial(1, "no".into()))),
        (Decision { incompatible: Some("no"), ..reads(0) }, Some(Answer::Refuse("no".into()))),
    ] {
        assert!(session.settle(ONE, decision, ms(0)));
        assert_eq!(outputs(&mut session), told.map(|told| answer(ONE, told)).into_iter().collect::<Vec<_>>());
    }
    assert!(!session.settle(TWO, reads(1), ms(0)), "no such channel");
    assert_eq!(outputs(&mut session), []);
}

#[test]
fn a_long_reason_is_cut_between_characters() {
    let mut session = announced(reliable(), &[ONE]);
    let reason = format!("{}é", "x".repeat(999));
    session.settle(ONE, Decision { incompatible: Some(&reason), ..reads(0) }, ms(0));
    assert_eq!(outputs(&mut session), [answer(ONE, Answer::Refuse("x".repeat(999)))]);
}

#[test]
fn a_request_for_a_key_frame_is_also_an_acceptance() {
    let mut session = announced(reliable(), &[ONE]);
    let keyed = |readers, incompatible| Decision { readers, incompatible, needs_key_frame: true };
    session.settle(ONE, keyed(1, None), ms(0));
    assert_eq!(outputs(&mut session), [answer(ONE, Answer::Renew(1))]);
    session.settle(ONE, keyed(1, Some("no")), ms(0));
    let partial = Answer::Partial(1, "no".into());
    assert_eq!(outputs(&mut session), [answer(ONE, partial), answer(ONE, Answer::Renew(1))]);
    // The peer remembers the refusal, so the session must send it a new answer.
    session.settle(ONE, keyed(2, None), ms(0));
    assert_eq!(outputs(&mut session), [answer(ONE, Answer::Accept(2)), answer(ONE, Answer::Renew(2))]);
}

#[test]
fn key_frames_are_requested_with_pauses_until_one_comes() {
    let mut session = announced(reliable(), &[ONE]);
    session.settle(ONE, Decision { needs_key_frame: true, ..reads(1) }, ms(0));
    assert_eq!(outputs(&mut session).len(), 1);
    let asked: Vec<u64> = (0..200).filter(|now| session.request_key(ONE, ms(*now))).collect();
    assert_eq!(asked, [20, 60, 140]);
    assert_eq!(outputs(&mut session), [answer(ONE, Answer::Renew(1))], "several requests not sent yet are one");
    // The pauses go on when it is decided anew, unless a new reader needs a key frame, too.
    session.settle(ONE, reads(1), ms(200));
    assert!(!session.request_key(ONE, ms(200)));
    session.settle(ONE, Decision { needs_key_frame: true, ..reads(1) }, ms(200));
    assert!(session.request_key(ONE, ms(220)));
    outputs(&mut session);
    session.key_arrived(ONE);
    assert!(session.request_key(ONE, ms(221)) && !session.request_key(TWO, ms(221)));
}

#[test]
fn a_document_is_asked_for_once_for_all_channels() {
    let mut session = announced(reliable(), &[ONE, TWO]);
    assert_eq!(session.fetch(ONE, id(), ms(0)), Fetch::Pending);
    assert_eq!(session.fetch(TWO, id(), ms(1)), Fetch::Pending);
    assert_eq!(session.fetch(ONE, id(), ms(2)), Fetch::Pending);
    assert_eq!(outputs(&mut session), [Output::Want { document: id() }]);
    assert_eq!(session.handle_document(Id128([1; 16]), Some(b"x"), ms(3)), None, "nobody asked");
    let document = session.handle_document(id(), Some(DOCUMENT), ms(3)).expect("asked, and the hash is right");
    assert_eq!(document.bytes(), DOCUMENT);
    session.document_arrived(id());
    assert_eq!(events(&mut session), [decide(ONE), decide(TWO)]);
    assert_eq!((session.next_timeout(), session.load().asked), (None, 0));
    assert_eq!(session.handle_document(id(), Some(DOCUMENT), ms(4)), None, "nobody asks any more");
}

#[test]
fn a_document_that_does_not_come_is_given_up_at_the_deadline() {
    let mut session = announced(reliable(), &[ONE]);
    session.fetch(ONE, id(), ms(0));
    assert_eq!(session.next_timeout(), Some(ms(5000)));
    session.handle_timeout(ms(4999));
    assert_eq!(events(&mut session), []);
    session.handle_timeout(ms(5000));
    assert_eq!(events(&mut session), [decide(ONE)]);
    let Fetch::Failed(reason) = session.fetch(ONE, id(), ms(5000)) else { panic!("it is still awaited") };
    assert!(reason.ends_with("of the writer did not come in time"));
    // It comes over another link.
    session.document_arrived(id());
    assert_eq!(events(&mut session), [Event::Decide { channel: ONE, anew: true }]);
}

#[test]
fn a_document_that_comes_late_is_still_taken() {
    let mut session = announced(reliable(), &[ONE]);
    session.fetch(ONE, id(), ms(0));
    session.handle_timeout(ms(5000));
    assert_eq!(events(&mut session), [decide(ONE)]);
    assert!(matches!(session.fetch(ONE, id(), ms(5000)), Fetch::Failed(_)));
    assert!(session.handle_document(id(), Some(DOCUMENT), ms(6000)).is_some(), "the request is still open");
    session.document_arrived(id());
    assert_eq!(events(&mut session), [Event::Decide { channel: ONE, anew: true }]);
    assert_eq!((session.load().asked, session.next_timeout()), (0, None));
}

#[test]
fn a_late_document_is_awaited_again_when_subscribers_change() {
    let mut session = announced(reliable(), &[ONE]);
    session.fetch(ONE, id(), ms(0));
    session.handle_timeout(ms(5000));
    assert_eq!((events(&mut session), outputs(&mut session).len()), (vec![decide(ONE)], 1));
    session.reconsider_topic("t", |_| true);
    assert_eq!(events(&mut session), [decide(ONE)]);
    assert_eq!(session.fetch(ONE, id(), ms(6000)), Fetch::Pending);
    assert_eq!(outputs(&mut session), [Output::Want { document: id() }], "the first request may have been lost");
    session.handle_timeout(ms(11_000));
    assert_eq!(events(&mut session), [decide(ONE)]);
    assert!(matches!(session.fetch(ONE, id(), ms(11_000)), Fetch::Failed(_)));
    assert_eq!(session.handle_document(id(), None, ms(12_000)), None);
    session.reconsider(|_| true);
    assert_eq!(session.fetch(ONE, id(), ms(13_000)), Fetch::Pending);
    assert_eq!(outputs(&mut session), [Output::Want { document: id() }]);
    session.document_arrived(id());
    assert_eq!(events(&mut session), [Event::Decide { channel: ONE, anew: true }]);
}

#[test]
fn late_documents_make_room() {
    let limits = Limits { asked_documents: 1, ..Limits::default() };
    let mut session = announced(Session::new(limits, Carrier::Reliable, Budget::new(1 << 20)), &[ONE]);
    let other = Announcement { schema: Id128([9; 16]), ..announcement() };
    session.handle_announce(TWO, Start::default(), &other, ms(0)).expect("within the limits");
    session.fetch(ONE, id(), ms(0));
    outputs(&mut session);
    session.handle_timeout(ms(5000));
    session.fetch(TWO, other.schema, ms(5000));
    assert_eq!(outputs(&mut session), [Output::Want { document: other.schema }]);
    assert_eq!(session.load().asked, 1);
    session.handle_timeout(ms(10_000));
    assert!(session.handle_document(other.schema, None, ms(10_001)).is_none() && session.load().asked == 0);
}

#[test]
fn the_tables_of_documents_end_with_their_channels() {
    let mut session = reliable();
    let announced = |number: u8| Announcement { schema: Id128([number / 2 + 1; 16]), ..announcement() };
    for number in 0..100u8 {
        let channel = ChannelId(number.into());
        session.handle_announce(channel, Start::default(), &announced(number), ms(0)).expect("within the limits");
        session.fetch(channel, announced(number).schema, ms(0));
    }
    assert_eq!((session.named.len(), session.awaited.len(), session.spare.len()), (100, 100, 0));
    session.document_arrived(Id128([1; 16]));
    session.handle_document(Id128([2; 16]), Some(b"something else"), ms(1));
    assert_eq!((session.named.len(), session.awaited.len(), session.load().asked), (100, 96, 48));
    (0..50).for_each(|channel| session.handle_retire(ChannelId(channel)));
    assert_eq!((session.named.len(), session.awaited.len(), session.spare.len()), (50, 50, 23));
    session.handle_timeout(ms(5000));
    assert_eq!((session.awaited.len(), session.spare.len(), session.load().asked), (0, 48, 48));
    session.handle_down();
    assert_eq!((session.named.len(), session.spare.len()), (0, 0));
}

#[test]
fn a_peer_that_sends_something_else_is_not_asked_again() {
    let mut session = announced(reliable(), &[ONE]);
    session.fetch(ONE, id(), ms(0));
    assert_eq!(session.handle_document(id(), Some(b"something else"), ms(1)), None);
    assert_eq!(events(&mut session), [decide(ONE)]);
    let Fetch::Failed(reason) = session.fetch(ONE, id(), ms(1)) else { panic!("it is still awaited") };
    assert!(reason.contains("has the hash"));
    assert_eq!(session.load().asked, 0);
}

#[test]
fn a_peer_without_the_document_is_asked_again_some_times() {
    let mut session = announced(reliable(), &[ONE]);
    session.fetch(ONE, id(), ms(0));
    let (mut now, mut asked) = (ms(0), Vec::new());
    while outputs(&mut session).len() == 1 {
        asked.push(now.as_millis());
        session.handle_document(id(), None, now);
        now = session.next_timeout().unwrap_or(now);
        session.handle_timeout(now);
    }
    assert_eq!(asked, [0, 20, 60, 140, 300, 620]);
    let Fetch::Failed(reason) = session.fetch(ONE, id(), now) else { panic!("it is still awaited") };
    assert!(reason.contains("does not have the writer's document"));
}

#[test]
fn a_request_goes_on_for_the_next_channel_that_names_the_document() {
    let mut session = announced(reliable(), &[ONE]);
    session.fetch(ONE, id(), ms(0));
    session.handle_retire(ONE);
    session.handle_announce(TWO, Start::default(), &announcement(), ms(1)).expect("within the limits");
    session.fetch(TWO, id(), ms(1));
    assert_eq!(outputs(&mut session).len(), 1, "one request is open and answers both");
    session.handle_document(id(), None, ms(2));
    assert_eq!(session.fetch(TWO, id(), ms(2)), Fetch::Pending);
}

#[test]
fn requests_that_nobody_needs_make_room() {
    let limits = Limits { asked_documents: 4, ..Limits::default() };
    let mut session = announced(Session::new(limits, Carrier::Reliable, Budget::new(1 << 20)), &[ONE]);
    session.fetch(ONE, id(), ms(0));
    for number in 0..100 {
        session.prefetch(Id128([number; 16]), ms(0));
        assert!(session.load().asked <= 4);
    }
    assert!(session.handle_document(id(), Some(DOCUMENT), ms(1)).is_some(), "the one that is needed is kept");
}

#[test]
fn wanted_documents_are_supplied_once_each_and_bounded() {
    let mut session = reliable();
    (0..3).for_each(|_| session.handle_want(id()));
    assert_eq!(outputs(&mut session), [Output::Supply { document: id() }]);
    for number in 0..100_000u128 {
        session.handle_want(Id128(number.to_le_bytes()));
    }
    assert_eq!(session.load().outputs, Limits::default().stray_outputs);
}

#[test]
fn channels_beyond_the_limit_are_refused() {
    let limits = Limits { channels: 2, ..Limits::default() };
    let mut session = announced(Session::new(limits, Carrier::Reliable, Budget::new(1 << 20)), &[ONE, TWO]);
    let announce =
        |session: &mut Session, id| session.handle_announce(ChannelId(id), Start::default(), &announcement(), ms(0));
    let exceeded = announce(&mut session, 3).expect_err("two are open");
    session.refuse(ChannelId(3), &format!("{exceeded}"));
    let told = outputs(&mut session);
    assert!(matches!(&told[..], [Output::Answer { answer: Answer::Refuse(text), .. }] if text.contains("2 channels")));
    session.handle_retire(ONE);
    assert!(announce(&mut session, 3).is_err(), "the application has not heard of the end yet");
    assert_eq!(events(&mut session), [Event::Closed { channel: ONE }]);
    assert!(announce(&mut session, 3).is_ok());
}

#[test]
fn a_closed_channel_needs_no_decision_and_gives_its_bytes_back() {
    let budget = Budget::new(1 << 20);
    let mut session = Session::new(Limits::default(), Carrier::Reliable, budget.clone());
    session.handle_announce(ONE, Start::default(), &announcement(), ms(0)).expect("within the limits");
    session.fetch(ONE, id(), ms(0));
    assert!(budget.used() > 0);
    session.handle_retire(ONE);
    assert_eq!((events(&mut session), budget.used()), (vec![Event::Closed { channel: ONE }], 0));
    assert_eq!(session.next_timeout(), None);
    session.handle_retire(ONE);
    assert_eq!(events(&mut session), []);
}

#[test]
fn reliable_sessions_announce_and_retire_once() {
    let mut session = reliable();
    let offered = Arc::new(announcement());
    session.announce(ONE, Start::default(), &offered, ms(0));
    assert_eq!(outputs(&mut session).len(), 1);
    assert_eq!(session.next_timeout(), None);
    session.retire(ONE, ms(1));
    assert_eq!(outputs(&mut session), [Output::Retire { channel: ONE }]);
    // An announcement that was never sent needs no retirement.
    session.announce(TWO, Start::default(), &offered, ms(0));
    session.retire(TWO, ms(1));
    assert_eq!((outputs(&mut session), session.next_timeout()), (vec![], None));
}

#[test]
fn answers_say_who_reads_and_who_needs_a_key_frame() {
    let mut session = reliable();
    session.announce(ONE, Start::default(), &Arc::new(announcement()), ms(0));
    let matched = |answer, key_requested, incompatible: Option<&str>| Event::Matched {
        channel: ONE,
        answer: Some(answer),
        key_requested,
        incompatible: incompatible.map(String::from),
    };
    let partial = |count| Answer::Partial(count, "no".into());
    for (said, event) in [
        (Answer::Decline, matched(Answer::Decline, false, None)),
        (Answer::Accept(1), matched(Answer::Accept(1), true, None)),
        (Answer::Accept(2), matched(Answer::Accept(2), false, None)),
        (partial(1), matched(partial(1), false, Some("no"))),
        (Answer::Renew(3), matched(partial(3), true, None)),
        (Answer::Refuse("no".into()), matched(Answer::Refuse("no".into()), false, Some("no"))),
    ] {
        session.handle_answer(ONE, &said);
        assert_eq!(events(&mut session), [event]);
    }
}

#[test]
fn an_answer_may_come_before_the_application_knows_the_channel() {
    let mut session = reliable();
    session.handle_answer(TWO, &Answer::Accept(1));
    session.announce(TWO, Start::default(), &Arc::new(announcement()), ms(0));
    assert_eq!(session.answer(TWO), Some(&Answer::Accept(1)));
    assert_eq!(events(&mut session).len(), 1);
    // The application says whether it is late: ids need not be announced in order.
    session.handle_answer(ONE, &Answer::Accept(1));
    assert!(matches!(&events(&mut session)[..], [Event::Matched { channel: ONE, .. }]));
    session.retire(ONE, ms(0));
    assert_eq!((session.load().local, session.answer(TWO)), (1, Some(&Answer::Accept(1))));
}

#[test]
fn lossy_sessions_repeat_announcements_and_answers() {
    let (mut writer, mut reader) = (lossy(), lossy());
    writer.announce(ONE, Start::default(), &Arc::new(announcement()), ms(0));
    let mut sent = Vec::new();
    for now in 0..400 {
        writer.handle_timeout(ms(now));
        sent.extend(outputs(&mut writer).iter().map(|_| now));
    }
    assert_eq!(sent, [0, 10, 30, 70, 150, 250, 350]);

    reader.handle_announce(ONE, Start::default(), &announcement(), ms(0)).expect("within the limits");
    reader.handle_announce(ONE, Start::default(), &announcement(), ms(1)).expect("the same again");
    assert_eq!((events(&mut reader), outputs(&mut reader)), (vec![decide(ONE)], vec![]));
    reader.settle(ONE, reads(1), ms(2));
    for now in 3..6 {
        assert_eq!(outputs(&mut reader), [answer(ONE, Answer::Accept(1))]);
        reader.handle_announce(ONE, Start::default(), &announcement(), ms(now)).expect("the same again");
    }
    assert_eq!(events(&mut reader), []);
    writer.handle_answer(ONE, &Answer::Accept(1));
    writer.handle_answer(ONE, &Answer::Accept(1));
    assert_eq!(events(&mut writer).len(), 1, "a repeated answer is no news");
}

#[test]
fn a_lossy_session_repeats_an_open_request_for_a_key_frame() {
    let mut reader = announced(lossy(), &[ONE]);
    reader.settle(ONE, Decision { needs_key_frame: true, ..reads(1) }, ms(0));
    outputs(&mut reader);
    reader.handle_announce(ONE, Start::default(), &announcement(), ms(1)).expect("the same again");
    assert_eq!(outputs(&mut reader), [answer(ONE, Answer::Accept(1)), answer(ONE, Answer::Renew(1))]);
}

#[test]
fn a_lossy_session_asks_again_and_tries_anew_after_a_blackout() {
    let mut reader = announced(lossy(), &[ONE]);
    reader.fetch(ONE, id(), ms(0));
    let mut asked = 0;
    while events(&mut reader).is_empty() {
        let now = reader.next_timeout().expect("it goes on asking").min(ms(5000));
        // Announcements arrive, so the lease does not end; the document does not.
        reader.handle_announce(ONE, Start::default(), &announcement(), now).expect("the same again");
        reader.handle_timeout(now);
        asked += outputs(&mut reader).len();
    }
    assert!((50..60).contains(&asked), "{asked}");
    assert!(matches!(reader.fetch(ONE, id(), ms(5000)), Fetch::Failed(_)));
    reader.settle(ONE, Decision { incompatible: Some("no schema"), ..reads(0) }, ms(5000));
    outputs(&mut reader);
    reader.handle_announce(ONE, Start::default(), &announcement(), ms(5001)).expect("the same again");
    assert_eq!(events(&mut reader), [Event::Decide { channel: ONE, anew: true }]);
    assert_eq!(reader.fetch(ONE, id(), ms(5001)), Fetch::Pending);
}

#[test]
fn channels_of_a_lossy_peer_end_with_their_lease() {
    let mut reader = announced(lossy(), &[ONE]);
    assert_eq!(reader.next_timeout(), Some(ms(1000)));
    reader.handle_announce(ONE, Start::default(), &announcement(), ms(900)).expect("the same again");
    reader.handle_timeout(ms(1000));
    assert_eq!(events(&mut reader), []);
    reader.handle_timeout(ms(1900));
    assert_eq!(events(&mut reader), [Event::Closed { channel: ONE }]);
}

#[test]
fn lossy_retirements_are_repeated_and_said_again_to_who_missed_them() {
    let mut writer = lossy();
    writer.announce(ONE, Start::default(), &Arc::new(announcement()), ms(0));
    outputs(&mut writer);
    writer.retire(ONE, ms(0));
    let mut sent = Vec::new();
    for now in 0..500 {
        writer.handle_timeout(ms(now));
        sent.extend(outputs(&mut writer).iter().map(|_| now));
    }
    assert_eq!((sent, writer.next_timeout()), (vec![0, 10, 30], None));
    writer.handle_answer(ONE, &Answer::Accept(1));
    assert_eq!(outputs(&mut writer), [Output::Retire { channel: ONE }]);
    writer.handle_answer(TWO, &Answer::Accept(1));
    assert_eq!(outputs(&mut writer), [], "no channel of ours");
}

#[test]
fn a_restarted_peer_is_told_everything_again() {
    let peer = |incarnation| Hello { node: Id128([7; 16]), incarnation };
    let mut session = lossy();
    assert!(session.handle_peer(peer(2), ms(0)) && session.handle_peer(peer(2), ms(0)));
    session.announce(ONE, Start::default(), &Arc::new(announcement()), ms(0));
    session.handle_answer(ONE, &Answer::Accept(1));
    let mut session = {
        session.handle_announce(TWO, Start::default(), &announcement(), ms(0)).expect("within the limits");
        session.fetch(TWO, id(), ms(0));
        session
    };
    outputs(&mut session);
    events(&mut session);
    assert!(!session.handle_peer(peer(1), ms(1)), "an old datagram");
    assert!(session.handle_peer(peer(3), ms(1)));
    let unanswered = Event::Matched { channel: ONE, answer: None, key_requested: false, incompatible: None };
    assert_eq!(events(&mut session), [Event::Closed { channel: TWO }, unanswered]);
    assert!(matches!(&outputs(&mut session)[..], [Output::Announce { channel: ONE, .. }]));
    assert_eq!(session.load(), Load { local: 1, ..Load::default() });
    session.handle_answer(ONE, &Answer::Accept(1));
    assert!(matches!(&events(&mut session)[..], [Event::Matched { key_requested: true, .. }]));
}
