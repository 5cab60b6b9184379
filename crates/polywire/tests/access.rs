//! Rules of access between nodes: who is let through, who is not, and what both sides are told.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

use polywire::{
    Config, Events, Message, Node, NodeError, NodeEvent,
    access::Who,
    engine::{Action, EngineError, Event, Principal},
};
use polywire_core::{
    envelope::Id128,
    frame::{Answer, Frame, Hello, Step, StreamDecoder, StreamEncoder},
};
use polywire_testing::{
    free_path,
    waiting::{SOON, until},
};

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Pump")]
struct Pump {
    id: u32,
    text: String,
}

fn pump(id: u32) -> Pump {
    Pump { id, text: String::new() }
}

fn node(config: &str) -> Node {
    Node::builder().config(Config::parse(config).expect("a configuration")).build()
}

fn me() -> u32 {
    rustix::process::getuid().as_raw()
}

/// The next refusal: who, what, and which topic.
fn denied(events: &Events) -> (Principal, Action, String) {
    loop {
        let event = events.recv_timeout(SOON).expect("the refusal is told");
        if let NodeEvent::Denied { who, action, topic, .. } = event {
            return (who, action, topic);
        }
    }
}

#[test]
fn who_may_not_publish_is_told_and_nothing_arrives() {
    let wire = format!("cdr@unix/{}", free_path("publish").display());
    let rules = format!("[[access.allow]]\nusers = [{}]\npublish = ['plant/*']\nsubscribe = ['**']", me());
    let (here, there) = (node(&rules), Node::new());
    let events = here.events();
    let secret = here.subscriber_on::<Pump>("secret", &wire).expect("subscribes");
    let plant = here.subscriber_on::<Pump>("plant/1", &wire).expect("subscribes");
    let refused = there.publisher_on::<Pump>("secret", &wire).expect("opens");
    let allowed = there.publisher_on::<Pump>("plant/1", &wire).expect("opens");
    assert_eq!(allowed.wait_for_subscribers(1, SOON), 1);
    until("the refusal", || refused.status().refusing == 1);
    let reason = &refused.status().refusals[0].reason;
    assert_eq!(*reason, format!("access denied: no rule allows 'user {}' to publish it", me()));
    assert_eq!(denied(&events), (Principal::User(me()), Action::Publish, "secret".into()));
    assert_eq!((here.denied(), there.denied()), (1, 0));
    refused.publish(&pump(1)).expect("published to nobody");
    allowed.publish(&pump(2)).expect("published");
    assert_eq!(plant.recv_timeout(SOON).expect("a message").value, pump(2));
    assert!(secret.recv_timeout(Duration::from_millis(50)).is_none());
    assert_eq!(here.discovered().len(), 1, "what is refused is not listed");
}

#[test]
fn who_may_not_subscribe_is_told_and_gets_nothing() {
    let wire = format!("cdr@unix/{}", free_path("subscribe").display());
    let rules = format!("[[access.allow]]\nusers = [{}]\npublish = ['**']\nsubscribe = ['public']", me());
    let (here, there) = (node(&rules), Node::new());
    let (events, told) = (here.events(), there.events());
    let secret = here.publisher_on::<Pump>("secret", &wire).expect("opens");
    let public = here.publisher_on::<Pump>("public", &wire).expect("opens");
    let refused = there.subscriber_on::<Pump>("secret", &wire).expect("subscribes");
    let allowed = there.subscriber_on::<Pump>("public", &wire).expect("subscribes");
    // A node of the same process is no stranger.
    let own = here.subscriber_on::<Pump>("secret", &wire).expect("subscribes");
    assert_eq!(public.wait_for_subscribers(1, SOON), 1);
    until("the mismatch", || refused.status().mismatches_total == 1);
    let reason = format!("access denied: no rule allows 'user {}' to subscribe to it", me());
    assert_eq!(refused.status().mismatches[0].reason, reason);
    let told = std::iter::from_fn(|| told.recv_timeout(SOON)).find(|e| matches!(e, NodeEvent::Mismatch { .. }));
    assert!(told.is_some_and(|event| event.to_string().contains(&reason)));
    assert_eq!(denied(&events), (Principal::User(me()), Action::Subscribe, "secret".into()));
    assert_eq!(secret.publish(&pump(1)).expect("published").subscribers, 1, "its own node's");
    public.publish(&pump(2)).expect("published");
    assert_eq!(allowed.recv_timeout(SOON).expect("a message").value, pump(2));
    assert_eq!(own.recv_timeout(SOON).expect("a message").value, pump(1));
    assert!(refused.recv_timeout(Duration::from_millis(50)).is_none());
    // A new format is a new channel, which is denied as well, and the old one ends.
    secret.set_wire("json").expect("set");
    until("the new channel's mismatch", || refused.status().mismatches_total == 2);
    until("the old channel's end", || refused.status().unreadable == 1);
}

#[test]
fn rules_that_are_replaced_hold_for_those_who_are_there() {
    let wire = format!("cdr@unix/{}", free_path("reload").display());
    let rules = |publish: &str, subscribe: &str| {
        let text = format!("[[access.allow]]\nusers = [{}]\npublish = {publish}\nsubscribe = {subscribe}", me());
        Config::parse(&text).expect("rules")
    };
    let (all, none) = ("['**']", "[]");
    let here = Node::builder().config(rules(all, all)).build();
    let there = Node::new();
    let pumps = here.subscriber_on::<Pump>("up", &wire).expect("subscribes");
    let down = here.publisher_on::<Pump>("down", &wire).expect("opens");
    let up = there.publisher_on::<Pump>("up", &wire).expect("opens");
    let read = there.subscriber_on::<Pump>("down", &wire).expect("subscribes");
    assert_eq!((up.wait_for_subscribers(1, SOON), down.wait_for_subscribers(1, SOON)), (1, 1));
    assert_eq!(here.reload(rules(all, none)).expect("other rules"), ["access"]);
    until("the reader is denied", || read.status().mismatches_total == 1);
    assert_eq!(up.wait_for_subscribers(1, SOON), 1);
    assert_eq!(down.publish(&pump(1)).expect("published").subscribers, 0);
    up.publish(&pump(2)).expect("published");
    assert_eq!(pumps.recv_timeout(SOON).expect("a message").value, pump(2));
    here.reload(rules(none, all)).expect("other rules");
    until("the writer is denied", || up.status().refusing == 1);
    assert_eq!(down.wait_for_subscribers(1, SOON), 1);
    down.publish(&pump(3)).expect("published");
    assert_eq!(read.recv_timeout(SOON).expect("a message").value, pump(3));
    // Rules that are the same for a peer leave its link alone.
    let events = here.events();
    let mut same = rules(none, all);
    same.access.get_or_insert_default().allow.extend(rules(all, none).access.unwrap_or_default().allow.pop().map(
        |mut rule| {
            rule.who = vec![Who::User(me() + 1)];
            rule
        },
    ));
    assert_eq!(here.reload(same).expect("other rules"), ["access"]);
    assert!(!std::iter::from_fn(|| events.try_recv()).any(|event| event.to_string().contains("is down")));
    here.reload(Config::default()).expect("no rules");
    assert_eq!(up.wait_for_subscribers(1, SOON), 1);
}

#[test]
fn a_peer_that_stays_when_its_rights_change_is_cut_off() {
    let text = "[engine]\nlinger_ms = 50\n[[access.allow]]\nanyone = true\npublish = ['**']";
    let here = node(text);
    let endpoint = here.open("tcp-listen/127.0.0.1:0").expect("listens");
    let mut stream = TcpStream::connect(endpoint.split_once('/').expect("an address").1).expect("connects");
    let (mut encoder, mut out) = (StreamEncoder::default(), Vec::new());
    encoder.hello(&Hello { node: Id128([1; 16]), incarnation: 1 }, &mut out);
    stream.write_all(&out).expect("sent");
    until("the link", || here.links() == 1);
    here.reload(Config::parse("[engine]\nlinger_ms = 50\n[access]").expect("rules")).expect("other rules");
    until("the end of the link", || here.links() == 0);
    stream.set_read_timeout(Some(SOON)).expect("set");
    let mut rest = Vec::new();
    // It ends in good order or is reset; a time-out would be another error.
    let ended = stream.read_to_end(&mut rest);
    assert!(ended.is_ok_and(|len| len > 0) || !rest.is_empty(), "a goodbye comes");
}

#[test]
fn rules_for_an_open_endpoint_that_cannot_have_any_are_refused() {
    let here = Node::new();
    here.open("udp/127.0.0.1:0").expect("opens");
    let error =
        here.reload(Config::parse("[node]\nfollow = ['tcp/*']\n[access]").expect("rules")).expect_err("refused");
    assert!(
        matches!(&error, NodeError::Engine(EngineError::Access { endpoint }) if endpoint.starts_with("udp/")),
        "{error}"
    );
    assert_eq!(here.reload(Config::default()).expect("the same"), [""; 0], "nothing was applied");
}

#[test]
fn whoever_accepts_what_was_denied_gets_nothing_all_the_same() {
    let here = node("[[access.allow]]\nanyone = true\npublish = ['**']");
    let events = here.events();
    let endpoint = here.open("tcp-listen/127.0.0.1:0").expect("listens");
    let publisher = here.publisher_on::<Pump>("secret", &format!("cdr@{endpoint}")).expect("opens");
    let mut stream = TcpStream::connect(endpoint.split_once('/').expect("an address").1).expect("connects");
    let (mut encoder, mut decoder, mut out) = (StreamEncoder::default(), StreamDecoder::default(), Vec::new());
    encoder.hello(&Hello { node: Id128([1; 16]), incarnation: 1 }, &mut out);
    stream.write_all(&out).expect("sent");
    stream.set_read_timeout(Some(SOON)).expect("set");
    let (mut bytes, mut accepted) = (Vec::new(), false);
    while !accepted {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a byte");
        bytes.push(byte[0]);
        let mut answer = None;
        if let Step::Frame { frame, .. } = decoder.step(&bytes).expect("a frame") {
            if let Frame::Announce { channel, announcement, .. } = frame {
                assert_eq!((announcement.topic.as_str(), announcement.type_name.as_str()), ("secret", ""));
                assert!(announcement.schema.is_zero() && announcement.denial().is_some());
                answer = Some(channel);
            }
            bytes.clear();
        }
        if let Some(channel) = answer {
            let mut out = Vec::new();
            encoder.control(&Frame::Answer { channel, answer: Answer::Accept(1) }, &mut out);
            stream.write_all(&out).expect("sent");
            accepted = true;
        }
    }
    assert_eq!(denied(&events), (Principal::Anonymous, Action::Subscribe, "secret".into()));
    let sent = publisher.publish(&pump(1)).expect("published");
    assert_eq!((sent.peers, sent.subscribers, publisher.status().accepting), (0, 0, 0));
}

#[test]
fn a_peer_is_slowed_to_its_rate_and_loses_nothing() {
    let wire = format!("cdr@unix/{}", free_path("rate").display());
    let rules =
        format!("[[access.allow]]\nusers = [{}]\npublish = ['**']\nsubscribe = ['**']\nbytes_per_second = 20000", me());
    let (here, there) = (node(&rules), Node::new());
    let pumps = here.subscriber_on::<Pump>("pumps", &wire).expect("subscribes");
    let publisher = there.publisher_on::<Pump>("pumps", &wire).expect("opens");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    let began = Instant::now();
    for id in 0..60 {
        publisher.publish(&Pump { id, text: "x".repeat(1000) }).expect("published");
    }
    // More than it may send in a second: dropped.
    publisher.publish(&Pump { id: 1000, text: "x".repeat(30_000) }).expect("published");
    publisher.publish(&pump(60)).expect("published");
    let received: Vec<u32> = (0..61).map(|_| pumps.recv_timeout(SOON).expect("a message").value.id).collect();
    assert!(received.into_iter().eq(0..61));
    // 60 kB, of which a second's worth is free.
    assert!(began.elapsed() > Duration::from_millis(1900), "{:?}", began.elapsed());
}

#[test]
fn the_system_says_which_user_a_local_peer_is() {
    let (wire, user) = (format!("cdr@unix/{}", free_path("user").display()), Principal::User(me()));
    let (here, there) = (Node::new(), Node::new());
    let at = |node: &Node| node.discovered().first().map(|source| source.link.principal.clone());
    let _ours = here.publisher_on::<Pump>("ours", &wire).expect("opens");
    let _theirs = there.publisher_on::<Pump>("theirs", &wire).expect("opens");
    until("the one that listens knows", || at(&here) == Some(user.clone()));
    until("the one that calls knows", || at(&there) == Some(user.clone()));
}

#[test]
fn an_open_port_is_warned_of_once() {
    let exposed = |endpoint: &str| {
        let node = Node::new();
        let events = node.events();
        node.open(endpoint).expect("listens");
        node.close();
        let all = std::iter::from_fn(|| events.try_recv());
        all.filter(|event| matches!(event, NodeEvent::Engine { event: Event::Exposed { .. }, .. })).count()
    };
    assert_eq!((exposed("tcp-listen/0.0.0.0:0"), exposed("tcp-listen/[::]:0")), (1, 1));
    assert_eq!((exposed("tcp-listen/127.0.0.1:0"), exposed("tcp-listen/[::1]:0")), (0, 0));
    assert_eq!((exposed("udp/0.0.0.0:0"), exposed("udp-reliable/[::]:0")), (1, 1));
    assert_eq!((exposed("udp/127.0.0.1:0"), exposed("udp-reliable/[::1]:0")), (0, 0));
    let group = |options: &str| exposed(&format!("udp/239.255.74.61:7461?ttl=0,interface={options}"));
    assert_eq!((group("0.0.0.0"), group("127.0.0.1")), (1, 0));
    assert_eq!(exposed(&format!("unix-listen/{}", free_path("open").display())), 0);
}

#[test]
fn an_engine_that_cannot_keep_rules_is_refused() {
    let guarded = node("[[access.allow]]\nanyone = true\nsubscribe = ['**']");
    for endpoint in ["udp/127.0.0.1:0", "udp-reliable/127.0.0.1:0"] {
        let error = guarded.open(endpoint).expect_err("refused").to_string();
        assert!(error.contains("the rules of [access] cannot be kept"), "{error}");
    }
}

#[test]
fn within_the_process_no_rule_applies_and_where_peers_are_not_told_apart_nothing_opens() {
    let here = node("[access]");
    let wire = format!("cdr@inproc/access-{}", std::process::id());
    let pumps = Node::new().subscriber_on::<Pump>("pumps", &wire).expect("subscribes");
    let publisher = here.publisher_on::<Pump>("pumps", &wire).expect("opens");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    publisher.publish(&pump(7)).expect("published");
    assert_eq!(pumps.recv_timeout(SOON).expect("a message").value, pump(7));
    assert!(here.open("udp/127.0.0.1:0").is_err());
    assert_eq!(here.denied(), 0);
}
