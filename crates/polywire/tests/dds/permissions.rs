//! Rules of access as permissions of DDS Security: members may do what the rules say, nodes and
//! programs that know only DDS.

use std::{sync::Arc, time::Duration};

use polywire::{Config, access::permissions, directory::NodeData, engine::dds::Naming};
use polywire_dds::{Guid, Participant, Qos, Receive, Sample, Security};
use polywire_testing::waiting::until;

use crate::{
    KeyedSeq, Note, Pump,
    fleet::{Fleet, Member},
    program::{SOON, domain},
    pump,
    security::{ALL, apart, authority, ddsperf, has_ddsperf, member_with, node, of_program, secure},
};

const RULES: &str = r#"
[[access.allow]]
certificates = ["pump-*"]
publish = ["plant/*"]
request = ["plant/count"]

[[access.allow]]
certificates = ["hall"]
publish = ["plant/alarms/*"]
subscribe = ["**"]
serve = ["plant/*"]

[[access.allow]]
certificates = ["perf*"]
publish = ["DDSPerfRDataKS"]
subscribe = ["DDSPerfRDataKS"]

[[access.allow]]
certificates = ["perf*", "other"]
publish = ["DDSPerfCPUStats", "DDSPerfRPingKS", "DDSPerfRPongKS"]
subscribe = ["DDSPerfCPUStats", "DDSPerfRPingKS", "DDSPerfRPongKS"]
"#;

/// What the rules allow the holder of a certificate.
fn allowed(name: &str) -> String {
    let access = Config::parse(RULES).expect("rules").access.expect("rules");
    permissions(&access, name, Naming::Plain).expect("permissions")
}

fn member(fleet: &Fleet, name: &str) -> Member {
    member_with(fleet, name, &allowed(name), Duration::from_secs(86_400))
}

#[test]
fn nodes_may_do_what_the_rules_allow() {
    let Some(fleet) = authority() else { return };
    let on_network = domain();
    let (pumps, hall) = (node(Some(&member(&fleet, "pump-3"))), node(Some(&member(&fleet, "hall"))));
    let (here, there) = (secure("cdr", on_network), apart("auto", &fleet, on_network, "on"));
    let publisher = pumps.publisher_on::<Pump>("plant/pumps", &here).expect("a publisher");
    let in_json = pumps.publisher_on::<Pump>("plant/json", &secure("json", on_network)).expect("a publisher");
    let subscribed = ["plant/pumps", "plant/json"].map(|topic| hall.subscriber_on::<Pump>(topic, &there).expect(topic));
    for (publisher, subscriber) in [&publisher, &in_json].into_iter().zip(&subscribed) {
        assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
        publisher.publish(&pump(1)).expect("published");
        assert_eq!(subscriber.recv_timeout(SOON).expect("a sample").value, pump(1));
    }
    for topic in ["plant/alarms/pumps", "valves"] {
        let refused = pumps.publisher_on::<Pump>(topic, &here).map(drop).expect_err(topic);
        assert!(refused.to_string().contains("not allowed by the security rules"), "{refused}");
    }
    // It may not read, not even what it may write.
    let alarms = hall.publisher_on::<Pump>("plant/alarms/hall", &apart("cdr", &fleet, on_network, "on"));
    let (alarms, denied) = (alarms.expect("a publisher"), pumps.subscriber_on::<Pump>("plant/alarms/hall", &here));
    let denied = denied.expect("a subscriber");
    until("it is announced", || pumps.discovered().iter().any(|topic| topic.announcement.topic == "plant/alarms/hall"));
    assert_eq!(alarms.wait_for_subscribers(1, Duration::from_millis(300)), 0);
    alarms.publish(&pump(2)).expect("published");
    assert!(denied.recv_timeout(Duration::from_millis(300)).is_none());
    until("both are told", || !denied.status().mismatches.is_empty() && alarms.status().refusing == 1);
    for reason in [&denied.status().mismatches[0].reason, &alarms.status().refusals[0].reason] {
        assert!(reason.contains("not allowed by the security rules"), "{reason}");
    }

    let server = hall.service::<Note, Note>("plant/count", Some(&there)).expect("a service");
    let _server = server.on_request(1, |request, _| Ok::<_, String>(request.clone())).expect("a server");
    let client = pumps.client::<Note, Note>("plant/count", Some(&here)).expect("a service");
    let client = client.open().expect("a client");
    let note = Note { text: "how many".into(), marks: vec![3] };
    assert_eq!(client.call(&note, SOON).expect("a reply"), note);
    let other = pumps.client::<Note, Note>("plant/other", Some(&here)).expect("a service").open().map(drop);
    let refused = other.expect_err("no permission").to_string();
    assert!(refused.contains("not allowed by the security rules"), "{refused}");
}

/// Its own DDS allows a participant everything, because it knows the domain by another number. That
/// of the others does not.
#[test]
fn who_does_not_keep_to_its_permissions_gains_nothing() {
    let Some(fleet) = authority() else { return };
    let on_network = domain();
    let there = apart("cdr", &fleet, on_network, "on");
    let own = there.split(['/', '?']).nth(1).expect("a number");
    let everywhere = "<id_range><min>0</min><max>230</max></id_range>";
    let rules = ALL.replace(everywhere, &format!("<id>{own}</id>"))
        + &allowed("pump-3").replace(everywhere, &format!("<id>{on_network}</id>"));
    let pumps = node(Some(&member_with(&fleet, "pump-3", &rules, Duration::from_secs(86_400))));
    let hall = node(Some(&member(&fleet, "hall")));
    let publish = |topic| pumps.publisher_on::<Pump>(topic, &there).expect("its own DDS allows it");
    let (forbidden, permitted) = (publish("plant/alarms/pumps"), publish("plant/pumps"));
    let subscribe = |topic| hall.subscriber_on::<Pump>(topic, &secure("auto", on_network)).expect("a subscriber");
    let (nothing, pumps_read) = (subscribe("plant/alarms/pumps"), subscribe("plant/pumps"));
    let alarms = hall.publisher_on::<Pump>("plant/alarms/hall", &secure("cdr", on_network)).expect("a publisher");
    let unread = pumps.subscriber_on::<Pump>("plant/alarms/hall", &there).expect("a subscriber");
    assert_eq!(permitted.wait_for_subscribers(1, SOON), 1);
    assert_eq!(forbidden.wait_for_subscribers(1, Duration::from_millis(500)), 0);
    for publisher in [&forbidden, &permitted, &alarms] {
        publisher.publish(&pump(1)).expect("published");
    }
    assert_eq!(pumps_read.recv_timeout(SOON).expect("a sample").value, pump(1));
    assert!(nothing.recv_timeout(Duration::from_millis(300)).is_none() && unread.try_recv().is_none());
    for (publisher, subscriber) in [(&forbidden, &nothing), (&alarms, &unread)] {
        until("both are told", || !subscriber.status().mismatches.is_empty() && publisher.status().refusing == 1);
        for reason in [&subscriber.status().mismatches[0].reason, &publisher.status().refusals[0].reason] {
            assert!(reason.starts_with("DDS Security does not let reader and writer meet"), "{reason}");
        }
    }
    assert!(pumps_read.status().mismatches.is_empty() && permitted.status().refusals.is_empty());
}

struct Nobody;

impl Receive for Nobody {
    fn receive(&self, _: Guid, _: Sample) -> bool {
        true
    }
}

/// Its own DDS allows the program everything, too.
#[test]
fn a_publisher_is_told_of_dds_programs_that_may_not_read_it() {
    let Some(fleet) = authority() else { return };
    let on_network = domain();
    let hall = node(Some(&member(&fleet, "hall")));
    let alarms = hall.publisher_on::<Pump>("plant/alarms/hall", &secure("cdr", on_network)).expect("a publisher");
    let there = apart("cdr", &fleet, on_network, "on");
    let [_, own, file] = there.split(['/', '?']).take(2).chain(there.split("config=").nth(1)).collect::<Vec<_>>()[..]
    else {
        panic!("{there}")
    };
    let own: u32 = own.parse().expect("a number");
    let configuration = std::fs::read_to_string(file.split('&').next().expect("a file")).expect("read");
    let everywhere = "<id_range><min>0</min><max>230</max></id_range>";
    let rules = ALL.replace(everywhere, &format!("<id>{own}</id>"))
        + &allowed("pump-3").replace(everywhere, &format!("<id>{on_network}</id>"));
    let Member { certificate, key, authority } = member_with(&fleet, "pump-3", &rules, Duration::from_secs(86_400));
    let beside = |name| certificate.with_file_name(name);
    let (governance, permissions) = (beside("governance.p7s"), beside("permissions.p7s"));
    let security = Security { authority, certificate: certificate.clone(), key, governance, permissions };
    let participant = Participant::secure(own, Some(&configuration), &Qos::default(), &security).expect("it joins");
    let topic = participant.topic("plant/alarms/hall", "plant::Pump", true).expect("a topic");
    let _reader = topic.reader(&Qos::default(), Arc::new(Nobody), |_| {}).expect("its own DDS allows it");
    until("the publisher is told", || alarms.status().refusing == 1);
    let reason = &alarms.status().refusals[0].reason;
    assert!(reason.starts_with("DDS Security does not let it read the topic"), "{reason}");
    let refused = |program: &NodeData| program.subscribers[0].refuses.iter().any(|refusal| refusal.reason == *reason);
    assert!(hall.foreign_readers().iter().any(refused), "{:?}", hall.foreign_readers());
}

#[test]
fn dds_programs_may_do_what_the_rules_allow() {
    let Some(fleet) = authority().filter(|_| has_ddsperf()) else { return };
    let domain = domain();
    let node = node(Some(&member(&fleet, "hall")));
    let topic = "DDSPerfRDataKS";
    let samples = node.subscriber_on::<KeyedSeq>(topic, &secure("auto", domain)).expect("a subscriber");
    let mode = ["pub", "100Hz", "size", "40"];
    let start = |name| ddsperf(domain, &mode, &of_program(&member(&fleet, name)));
    // It may write all that it writes to, but for the topic that is read here.
    let mut other = start("other");
    until("it gives up", || other.has_ended());
    assert!(samples.try_recv().is_none());
    let _writer = start("perf");
    samples.recv_timeout(SOON).expect("a sample");
}
