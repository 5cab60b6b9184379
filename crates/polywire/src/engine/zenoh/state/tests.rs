use polywire_core::frame::{Hello, Limits};
use proptest::prelude::*;

use super::{
    super::{super::Overflow, mail::signed, outgoing::Put},
    *,
};

fn node(number: u8) -> State {
    let me = Name(Hello { node: Id128([number; 16]), incarnation: 1 });
    let limits = Limits::default();
    let terms = Terms { overflow: Overflow::DropNewest, queue: 4000, window: 4000, limits };
    State::new(me, Keys::new("").expect("no prefix"), terms, 3)
}

/// Passes the mails of one node to the other, except the `lost` ones. Returns their number.
fn post(from: &mut State, to: &mut State, lost: impl Fn(usize) -> bool) -> usize {
    let mails: Vec<_> = std::iter::from_fn(|| from.out.pop()).collect();
    for (number, put) in mails.iter().enumerate().filter(|(number, _)| !lost(*number)) {
        match put {
            Put::Mail { bytes, .. } => {
                let (sender, mail) = signed(bytes).expect("a mail");
                assert_eq!(sender, from.me);
                to.mail(sender, mail, number as u64);
            }
            Put::Forget { .. } => {}
            _ => panic!("there is no session"),
        }
    }
    mails.len()
}

fn settle(a: &mut State, b: &mut State) {
    while post(a, b, |_| false) + post(b, a, |_| false) > 0 {}
}

fn linked() -> (State, State) {
    let (mut a, mut b) = (node(1), node(2));
    let announcement = Arc::new(Announcement { topic: "t".into(), writer: Id128([7; 16]), ..Default::default() });
    let channel = Channel { start: Start::default(), announcement, outlet: None, service: None };
    a.channels.insert(ChannelId(1), channel);
    a.appeared(b.me, 5);
    b.appeared(a.me, 5);
    settle(&mut a, &mut b);
    (a, b)
}

/// Empties the inbox, and describes in words what was in it.
fn told(state: &mut State) -> Vec<&'static str> {
    let word = |what| match what {
        Arrival::Up(_) => "up",
        Arrival::Announced(..) => "announced",
        Arrival::Answered(..) => "answered",
        Arrival::Frame(_) => "frame",
        Arrival::Retired(..) => "retired",
        Arrival::Mark(_) => "mark",
        Arrival::Down(_, Disconnect::Lost(_), _) => "lost",
        Arrival::Down(_, Disconnect::Bye, _) => "bye",
        Arrival::Down(_, Disconnect::Closed, _) => "closed",
        Arrival::Down(_, Disconnect::Protocol(_), _) => "protocol",
        Arrival::Down(_, Disconnect::Replaced, _) => "replaced",
        Arrival::Tell(_) => "event",
        Arrival::Message(_) => "message",
        _ => "?",
    };
    std::iter::from_fn(|| state.inbox.pop()).map(|arrived| word(arrived.what)).collect()
}

fn only_link(state: &State) -> LinkId {
    state.links().next().expect("a link").info.id
}

#[test]
fn what_another_thread_is_putting_is_not_due() {
    let mut a = node(1);
    assert!(!a.is_due());
    a.appeared(node(2).me, 5);
    assert!(a.is_due(), "a hello is to leave");
    a.is_pumping = true;
    assert!(!a.is_due(), "the thread that sends would not rest");
}

#[test]
fn two_nodes_have_one_link_and_know_each_others_channels() {
    let (mut a, mut b) = linked();
    assert_eq!((told(&mut a), told(&mut b)), (vec!["up"], vec!["up", "announced"]));
    let link = only_link(&b);
    assert_eq!(b.accept(link, ChannelId(1), true).expect("a key").as_str(), "t");
    assert_eq!(b.accept(link, ChannelId(1), true), None, "nothing has changed");
    b.answer(link, ChannelId(1), Answer::Accept(1));
    settle(&mut a, &mut b);
    assert_eq!(told(&mut a), ["answered"]);
    // This node reads messages from the topic's key, once the peer has sent its Position.
    assert_eq!(b.link_of(Id128([7; 16]), ChannelId(1)), Some(link));
    assert_eq!(b.link_of(Id128([8; 16]), ChannelId(1)), None, "nobody's");
    b.sample(link, &Envelope::data(ChannelId(1), 1, 0), &ZBytes::from("hi"));
    assert_eq!(told(&mut b), ["message"]);
    a.channels.remove(&ChannelId(1));
    a.each_link(|link, way| link.retire(way, ChannelId(1)));
    settle(&mut a, &mut b);
    assert_eq!(told(&mut b), ["retired"]);
}

#[test]
fn threads_of_zenoh_hand_over_while_nothing_waits_and_callbacks_are_fast() {
    let (mut a, _) = linked();
    let now = inline::now();
    assert_eq!(a.begin_handing(now), Poll::Ready(false), "something waits");
    told(&mut a);
    assert_eq!(a.begin_handing(now), Poll::Pending, "the thread for it does not rest yet");
    a.delivery_idle = true;
    assert_eq!((a.begin_handing(now), a.is_handing()), (Poll::Ready(true), true));
    assert_eq!(a.begin_handing(now), Poll::Ready(false), "a thread does");
    a.inbox.push(LinkId(0), Arrival::Mark(1));
    assert!(a.next_row(&mut Vec::new()).is_none());
    a.handed(now);
    assert_eq!(a.begin_handing(now), Poll::Ready(false), "something waits");
    told(&mut a);
    assert_eq!(a.begin_handing(now), Poll::Ready(true));
    a.handed(now.saturating_sub(Duration::from_secs(1)));
    assert_eq!(a.begin_handing(now), Poll::Ready(false), "a callback was slow");
    let later = now + Duration::from_secs(60);
    let link = only_link(&a);
    let (_, way) = a.way(link).expect("a link");
    (0..60).for_each(|_| way.line.send(Content::Join, way.out));
    assert_eq!(a.begin_handing(later), Poll::Ready(false), "much is to leave");
    while a.out.pop().is_some() {}
    assert_eq!(a.begin_handing(later), Poll::Ready(true));
}

#[test]
fn what_was_handed_over_is_acknowledged_at_once() {
    let (mut a, mut b) = linked();
    told(&mut b);
    b.delivery_idle = true;
    let (link, mut way) = a.way(only_link(&a)).expect("a link");
    link.mark(&mut way);
    settle(&mut a, &mut b);
    assert!(told(&mut b).is_empty() && a.is_acknowledged());
}

#[test]
fn a_lost_mail_begins_the_link_anew_with_all_channels() {
    let (mut a, mut b) = linked();
    told(&mut b);
    let link = only_link(&a);
    for document in 1..=3 {
        let (link, mut way) = a.way(link).expect("a link");
        link.tell(&mut way, &Frame::Want { document: Id128([document; 16]) });
        post(&mut a, &mut b, |_| document == 2);
    }
    settle(&mut a, &mut b);
    assert_eq!(told(&mut b), ["frame", "lost", "up", "announced"]);
    assert_eq!(told(&mut a), ["up", "lost", "up"]);
    assert_ne!(only_link(&a), link);
}

#[test]
fn a_later_incarnation_of_a_node_replaces_the_link_to_an_earlier_one() {
    let (mut a, mut b) = linked();
    told(&mut a);
    told(&mut b);
    let mut later = node(1);
    later.me.0.incarnation = 2;
    b.appeared(later.me, 6);
    later.appeared(b.me, 6);
    // The former session of this node is no peer.
    later.appeared(a.me, 6);
    assert_eq!(later.peers.len(), 1);
    settle(&mut later, &mut b);
    assert_eq!((told(&mut b), b.peers.len()), (vec!["replaced", "up"], 1));
    // Its token disappears later.
    b.vanished(a.me);
    assert_eq!((told(&mut b), told(&mut later)), (vec![], vec!["up"]));
}

#[test]
fn an_accepted_channel_begins_after_the_place_with_which_it_was_announced() {
    let (mut a, mut b) = (node(1), node(2));
    let announcement = Arc::new(Announcement { topic: "t".into(), writer: Id128([7; 16]), ..Default::default() });
    let start = Start { sequence: 57, timestamp_ns: 5 };
    a.channels.insert(ChannelId(1), Channel { start, announcement, outlet: None, service: None });
    a.appeared(b.me, 5);
    b.appeared(a.me, 5);
    settle(&mut a, &mut b);
    told(&mut b);
    let link = only_link(&b);
    b.accept(link, ChannelId(1), true);
    b.answer(link, ChannelId(1), Answer::Accept(1));
    settle(&mut a, &mut b);
    let Some(Arrival::Frame(frame)) = b.inbox.pop().map(|arrived| arrived.what) else { panic!("a position") };
    let position = Frame::Position { channel: ChannelId(1), start, lost: 0 };
    assert_eq!(frame, encoded(&position));
}

#[test]
fn one_of_both_says_hello_and_a_link_takes_three_mails() {
    let (mut a, mut b) = (node(1), node(2));
    b.appeared(a.me, 5);
    assert_eq!(post(&mut b, &mut a, |_| false), 0, "the other one does");
    a.appeared(b.me, 5);
    let counts = [post(&mut a, &mut b, |_| false), post(&mut b, &mut a, |_| false)];
    assert_eq!((counts, post(&mut a, &mut b, |_| false)), ([1, 1], 1));
    assert_eq!((told(&mut a), told(&mut b)), (vec!["up"], vec!["up"]));
}

#[test]
fn who_was_written_to_too_early_says_hello_itself() {
    let (mut a, mut b) = (node(1), node(2));
    a.appeared(b.me, 5);
    post(&mut a, &mut b, |_| false);
    b.appeared(a.me, 5);
    settle(&mut a, &mut b);
    assert_eq!((told(&mut a), told(&mut b)), (vec!["up"], vec!["up"]));
}

#[test]
fn a_lost_hello_is_said_again() {
    let (mut a, mut b) = (node(1), node(2));
    a.appeared(b.me, 5);
    b.appeared(a.me, 5);
    post(&mut a, &mut b, |_| true);
    post(&mut b, &mut a, |_| true);
    assert!(a.keep_time(Instant::now() + 2 * HELLO_FIRST), "something will be due");
    settle(&mut a, &mut b);
    assert_eq!((told(&mut a), told(&mut b)), (vec!["up"], vec!["up"]));
    assert!(!a.keep_time(Instant::now()) && a.is_acknowledged());
}

#[test]
fn what_was_sent_is_asked_for_until_it_is_acknowledged() {
    let (mut a, mut b) = linked();
    told(&mut b);
    assert!(a.is_sent() && !a.is_acknowledged(), "the announcement");
    let later = Instant::now() + Duration::from_secs(5);
    assert!(a.keep_time(later));
    settle(&mut a, &mut b);
    assert_eq!(told(&mut b), ["mark"]);
    let sent = u64::MAX;
    let mail = |state: &mut State, content| {
        let link = only_link(state);
        let (_, way) = state.way(link).expect("a link");
        way.line.send(content, way.out);
    };
    mail(&mut b, Content::Ack(sent));
    settle(&mut a, &mut b);
    assert!(!a.is_acknowledged(), "nobody can acknowledge more than was sent");
}

#[test]
fn goodbye_is_answered_and_ends_the_link_at_both_ends() {
    let (mut a, mut b) = linked();
    told(&mut a);
    told(&mut b);
    a.is_closing = true;
    a.each_link(|link, way| link.tell(way, &Frame::Bye));
    settle(&mut a, &mut b);
    assert_eq!((told(&mut a), told(&mut b)), (vec!["closed"], vec!["bye"]));
    b.vanished(a.me);
    assert!(b.peers.is_empty() && told(&mut b).is_empty());
}

#[test]
fn nodes_beyond_the_limit_are_turned_away_and_told() {
    let mut a = node(1);
    (1..=5).for_each(|number| a.appeared(node(number).me, 5));
    assert_eq!((a.peers.len(), told(&mut a)), (3, vec!["event"]));
    a.vanished(node(2).me);
    a.appeared(node(5).me, 5);
    assert_eq!(a.peers.len(), 3);
}

proptest! {
    #[test]
    fn hostile_mails_break_no_more_than_their_link(
        mails in proptest::collection::vec((0_u8..7, 0_u64..4, proptest::collection::vec(any::<u8>(), 0..40)), 0..30)
    ) {
        let (mut a, mut b) = linked();
        for (kind, more, body) in mails {
            let (epoch, peer_epoch) = a.peers.get(&b.me).map(|peer| (peer.line.peer_epoch, peer.line.epoch)).expect("b");
            let numbers = [epoch, peer_epoch + more / 2, more].map(u64::to_le_bytes).concat();
            let mail = [&numbers[..], &[kind], &(body.len() as u64).to_le_bytes(), &body].concat();
            a.mail(b.me, &mail, 9);
        }
        settle(&mut a, &mut b);
        prop_assert!(a.peers.len() == 1 && b.peers.len() == 1);
    }
}
