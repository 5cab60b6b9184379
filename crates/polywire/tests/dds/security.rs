//! DDS Security: members of a fleet reach each other, and nobody else gets or sends anything.
//!
//! Documents are signed by the program `openssl`, as those of other people are. Nodes of the same
//! process are strangers to each other's DDS by the configuration: their domains have numbers of
//! their own within the process, and the same one on the network.

use std::{
    env, fs,
    io::{ErrorKind, Read as _},
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc,
    thread,
    time::{Duration, Instant, SystemTime},
};

use polywire::{
    Config, Events, Node, NodeEvent,
    engine::{Disconnect, Event, Identity},
};
use polywire_testing::tools;
use rcgen::{DistinguishedName, DnType};
use socket2::{Domain, Protocol, Socket, Type};

use super::{
    KeyedSeq, Pump,
    fleet::{Fleet, Member},
    program::{Program, SOON, domain},
    pump, wire,
};

/// What a member may do, unless a test says otherwise.
pub const ALL: &str = "<allow_rule><domains><id_range><min>0</min><max>230</max></id_range></domains>\
<publish><topics><topic>*</topic></topics><partitions><partition>*</partition></partitions></publish>\
<subscribe><topics><topic>*</topic></topics><partitions><partition>*</partition></partitions></subscribe></allow_rule>";

const GOVERNANCE: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><dds><domain_access_rules><domain_rule>\
<domains><id_range><min>0</min><max>230</max></id_range></domains>\
<allow_unauthenticated_participants>false</allow_unauthenticated_participants>\
<enable_join_access_control>true</enable_join_access_control>\
<discovery_protection_kind>ENCRYPT</discovery_protection_kind>\
<liveliness_protection_kind>ENCRYPT</liveliness_protection_kind>\
<rtps_protection_kind>ENCRYPT</rtps_protection_kind>\
<topic_access_rules><topic_rule><topic_expression>*</topic_expression>\
<enable_discovery_protection>true</enable_discovery_protection>\
<enable_liveliness_protection>true</enable_liveliness_protection>\
<enable_read_access_control>true</enable_read_access_control>\
<enable_write_access_control>true</enable_write_access_control>\
<metadata_protection_kind>ENCRYPT</metadata_protection_kind><data_protection_kind>NONE</data_protection_kind>\
</topic_rule></topic_access_rules></domain_rule></domain_access_rules></dds>";

/// The certificate of a member, which expires after this time, and its documents with these rules.
pub fn member_with(fleet: &Fleet, name: &str, rules: &str, lifetime: Duration) -> Member {
    let member = fleet.member_with(&[name], |params| {
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_after = (SystemTime::now() + lifetime).into();
    });
    let permissions = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><dds><permissions><grant name=\"{name}\">\
         <subject_name>CN={name}</subject_name>\
         <validity><not_before>2020-01-01T00:00:00Z</not_before><not_after>2120-01-01T00:00:00Z</not_after></validity>\
         {rules}<default>DENY</default></grant></permissions></dds>"
    );
    sign(fleet, GOVERNANCE, &member.certificate.with_file_name("governance.p7s"));
    sign(fleet, &permissions, &member.certificate.with_file_name("permissions.p7s"));
    member
}

pub fn member(fleet: &Fleet, name: &str) -> Member {
    member_with(fleet, name, ALL, Duration::from_secs(86_400))
}

/// A new authority. `None` if this machine cannot sign documents.
pub fn authority() -> Option<Fleet> {
    tools::has_program("openssl", "version").then(Fleet::new)
}

fn sign(fleet: &Fleet, document: &str, to: &Path) {
    let mut command = Command::new("openssl");
    command.args(["smime", "-sign", "-text", "-signer"]).arg(fleet.folder.join("authority.pem"));
    command.arg("-inkey").arg(fleet.folder.join("authority.key"));
    fs::write(to, tools::output_of(&mut command, document.as_bytes()).expect("signed")).expect("written");
}

/// A node of which others are told soon that they cannot reach it.
pub fn node(identity: Option<&Member>) -> Node {
    let mut config = Config::default();
    if let Some(Member { certificate, key, authority }) = identity {
        config.engine.identity = Identity::new(certificate, key, authority);
    }
    config.engine.hello_timeout = Duration::from_millis(300);
    Node::builder().config(config).build()
}

/// A wire of a domain that has this number on the network, and another one in this process.
pub fn apart(format: &str, fleet: &Fleet, on_network: u32, security: &str) -> String {
    let domain = domain();
    let file = fleet.folder.join(format!("cyclone-{domain}.xml"));
    let text = format!(
        "<CycloneDDS><Domain><General><Interfaces><NetworkInterface address=\"127.0.0.1\"/></Interfaces></General>\
         <Discovery><ExternalDomainId>{on_network}</ExternalDomainId></Discovery></Domain></CycloneDDS>"
    );
    fs::write(&file, text).expect("written");
    format!("{format}@dds/{domain}?config={}&security={security}", file.display())
}

pub fn secure(format: &str, domain: u32) -> String {
    wire(format, domain) + "&security=on"
}

/// Waits until the node is told that somebody was turned away.
fn turned_away(events: &Events) -> String {
    loop {
        let event = events.recv_timeout(SOON).expect("somebody is turned away");
        if let NodeEvent::Engine { event: Event::Rejected { reason: Disconnect::Untrusted(reason), .. }, .. } = event {
            return reason;
        }
    }
}

#[test]
fn members_of_a_fleet_reach_each_other() {
    let Some(fleet) = authority() else { return };
    let on_network = domain();
    let (here, there) = (node(Some(&member(&fleet, "here"))), node(Some(&member(&fleet, "there"))));
    let (other, one) = (apart("auto", &fleet, on_network, "on"), secure("cdr", on_network));
    for (topic, format) in [("pumps/cdr", "cdr"), ("pumps/xcdr2", "xcdr2"), ("pumps/json", "json")] {
        let subscriber = there.subscriber_on::<Pump>(topic, &other).expect("a subscriber");
        let publisher = here.publisher_on::<Pump>(topic, &one.replace("cdr@", &format!("{format}@"))).expect(topic);
        assert_eq!(publisher.wait_for_subscribers(1, SOON), 1, "{format}");
        for id in 1..=300 {
            publisher.publish(&pump(id)).expect("published");
        }
        publisher.publish(&Pump { id: 301, level: 0.0, name: "x".repeat(200_000) }).expect("published");
        for id in 1..=300 {
            assert_eq!(subscriber.recv_timeout(SOON).expect("a sample").value, pump(id), "{format}");
        }
        assert_eq!(subscriber.recv_timeout(SOON).expect("a long sample").value.name.len(), 200_000, "{format}");
        assert_eq!((subscriber.lost(), subscriber.undecodable()), (0, 0), "{format}");
    }
}

#[test]
fn strangers_get_nothing_and_both_sides_are_told() {
    let (Some(fleet), Some(elsewhere)) = (authority(), authority()) else { return };
    let on_network = domain();
    let publishing = node(Some(&member(&fleet, "hall")));
    let events = publishing.events();
    let publisher = publishing.publisher_on::<Pump>("pumps", &secure("cdr", on_network)).expect("a publisher");
    let strangers = [
        (node(None), "off", "this node needs 'security=on' as well"),
        (node(Some(&member(&elsewhere, "hall"))), "on", "files of the same authority"),
    ];
    for (stranger, security, advice) in &strangers {
        let told = stranger.events();
        let wire = apart("cdr", &fleet, on_network, security);
        let subscriber = stranger.subscriber_on::<Pump>("pumps", &wire).expect("a subscriber");
        let own = stranger.publisher_on::<Pump>("pumps", &wire).expect("a publisher");
        let reason = turned_away(&told);
        assert!(reason.contains(advice), "{reason}");
        assert!(turned_away(&events).contains("'security=on'"), "{security}");
        publisher.publish(&pump(1)).expect("published");
        own.publish(&pump(2)).expect("published");
        assert_eq!((publisher.status().accepting, own.status().accepting), (0, 1), "only its own node");
        assert_eq!(subscriber.recv_timeout(SOON).expect("its own").value, pump(2));
        assert!(subscriber.recv_timeout(Duration::from_millis(300)).is_none());
    }
    // A member of the fleet gets it meanwhile.
    let member = node(Some(&member(&fleet, "member")));
    let wire = apart("cdr", &fleet, on_network, "on");
    let subscriber = member.subscriber_on::<Pump>("pumps", &wire).expect("a subscriber");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    publisher.publish(&pump(3)).expect("published");
    assert_eq!(subscriber.recv_timeout(SOON).expect("a sample").value, pump(3));
}

#[test]
fn what_the_permissions_do_not_allow_is_refused() {
    let Some(fleet) = authority() else { return };
    let domain = domain();
    let rules = ALL.replacen("<topic>*</topic>", "<topic>polywire_*</topic><topic>pumps*</topic>", 1);
    let node = node(Some(&member_with(&fleet, "pump", &rules, SOON)));
    node.publisher_on::<Pump>("pumps/1", &secure("cdr", domain)).expect("a publisher");
    let refused = node.publisher_on::<Pump>("valves", &secure("cdr", domain)).map(drop).expect_err("no permission");
    assert!(refused.to_string().contains("not allowed by the security rules"), "{refused}");
}

#[test]
fn wrong_files_are_named() {
    let (Some(fleet), Some(elsewhere)) = (authority(), authority()) else { return };
    let domain = domain();
    let open = |member: Option<&Member>| {
        let error = node(member).open(&format!("dds/{domain}?interface=127.0.0.1&security=on"));
        error.map(drop).expect_err("wrong files").to_string()
    };
    assert!(open(None).contains("POLYWIRE_CERTIFICATE"), "{}", open(None));
    let pump = member(&fleet, "pump");
    let (governance, permissions) =
        (pump.certificate.with_file_name("governance.p7s"), pump.certificate.with_file_name("permissions.p7s"));
    let of_hall = fs::read(member(&fleet, "hall").certificate.with_file_name("permissions.p7s")).expect("read");
    let strange = member(&elsewhere, "pump").certificate.with_file_name("governance.p7s");
    let check = |file: &PathBuf, content: Option<&[u8]>, expected: &[&str]| {
        let before = fs::read(file).expect("read");
        match content {
            Some(content) => fs::write(file, content).expect("written"),
            None => fs::remove_file(file).expect("removed"),
        }
        let told = open(Some(&pump));
        assert!(expected.iter().all(|part| told.contains(part)), "{told}");
        fs::write(file, before).expect("written");
    };
    check(&permissions, None, &["permissions.p7s", "'polywire identity sign --dds' makes it"]);
    check(&governance, None, &["governance.p7s"]);
    check(&permissions, Some(&of_hall), &["DDS Security", "permissions"]);
    check(
        &governance,
        Some(&fs::read(strange).expect("read")),
        &["governance.p7s", "by the authority in", "authority.pem"],
    );
    check(&governance, Some(b"garbage"), &["governance.p7s", "no S/MIME"]);
    check(&governance, Some(&of_hall), &["governance"]);
    check(&pump.authority, Some(b"garbage"), &["authority.pem"]);
    node(Some(&pump)).open(&format!("dds/{domain}?interface=127.0.0.1&security=on")).expect("all is well again");
}

/// Where Debian has the plug-ins.
fn plugins() -> String {
    format!("/usr/lib/{}-linux-gnu/libddsc0debian", env::consts::ARCH)
}

/// Whether this machine has `ddsperf` and what it needs for security.
pub fn has_ddsperf() -> bool {
    let has_plugins = Path::new(&plugins()).exists();
    if !has_plugins {
        tools::missing("the plug-ins of DDS Security, which Debian has in the package libddsc0debian");
    }
    has_plugins && tools::has_program("idlc", "-v")
}

pub fn ddsperf(domain: u32, mode: &[&str], configuration: &str) -> Program {
    let mut command = Command::new("ddsperf");
    command.args(["-i", &domain.to_string(), "-D", "60"]).args(mode);
    Program::start(command.env("CYCLONEDDS_URI", configuration))
}

/// The configuration of `ddsperf` with the files of a member.
pub fn of_program(Member { certificate, key, authority }: &Member) -> String {
    let plugins = plugins();
    let library = |name: &str, init: &str| {
        format!(
            "<Library path=\"{plugins}/{name}.so\" initFunction=\"init_{init}\" finalizeFunction=\"finalize_{init}\"/>"
        )
    };
    let file = |path: &Path| format!("file:{}", path.display());
    let beside = |name: &str| file(&certificate.with_file_name(name));
    format!(
        "<CycloneDDS><Domain><General><Interfaces><NetworkInterface address=\"127.0.0.1\" multicast=\"true\"/>\
         </Interfaces></General><Security><Authentication>{}<IdentityCA>{authority}</IdentityCA>\
         <IdentityCertificate>{}</IdentityCertificate><PrivateKey>{}</PrivateKey></Authentication>\
         <AccessControl>{}<PermissionsCA>{authority}</PermissionsCA><Governance>{}</Governance>\
         <Permissions>{}</Permissions></AccessControl><Cryptographic>{}</Cryptographic></Security></Domain></CycloneDDS>",
        library("libdds_security_auth", "authentication"),
        file(certificate),
        file(key),
        library("libdds_security_ac", "access_control"),
        beside("governance.p7s"),
        beside("permissions.p7s"),
        library("libdds_security_crypto", "crypto"),
        authority = file(authority),
    )
}

#[test]
fn ddsperf_with_security_is_read_and_reads() {
    let Some(fleet) = authority().filter(|_| has_ddsperf()) else { return };
    let domain = domain();
    let node = node(Some(&member(&fleet, "hall")));
    let topic = "DDSPerfRDataKS";
    let samples = node.subscriber_on::<KeyedSeq>(topic, &secure("auto", domain)).expect("a subscriber");
    let program = |mode: &[&str], configuration: &str| ddsperf(domain, mode, configuration);
    // Without security it is not read.
    let stranger = program(&["pub", "100Hz", "size", "40"], super::program::LOOPBACK);
    assert!(samples.recv_timeout(Duration::from_secs(1)).is_none());
    drop(stranger);
    let configuration = of_program(&member(&fleet, "perf"));
    let writer = program(&["pub", "100Hz", "size", "40"], &configuration);
    let first = samples.recv_timeout(SOON).expect("a sample").value;
    let second = samples.recv_timeout(SOON).expect("a sample").value;
    assert_eq!((second.seq, second.keyval), (first.seq + 1, first.keyval));
    assert_eq!(samples.undecodable(), 0);
    drop((writer, samples));

    // This version of Cyclone DDS does not know all types.
    let wire = secure("cdr", domain) + "&types=off";
    let publisher = node.publisher_on::<KeyedSeq>(topic, &wire).expect("a publisher");
    let reader = program(&["sub"], &configuration);
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    let (ended, ends) = mpsc::channel::<()>();
    let publishing = thread::spawn(move || {
        for seq in 0.. {
            publisher.publish(&KeyedSeq { seq, keyval: 0, baggage: vec![1; 28] }).expect("published");
            if ends.recv_timeout(Duration::from_millis(5)) != Err(mpsc::RecvTimeoutError::Timeout) {
                return;
            }
        }
    });
    // `size 40 total 123 ..`, as often as it has received something.
    while !reader.line().contains("size 40 total ") {}
    drop(ended);
    publishing.join().expect("it ends");
}

#[test]
fn nothing_is_readable_on_the_network() {
    const SECRET: &str = "a text that nobody else may read";
    // Every packet of this machine's interfaces.
    let every = Protocol::from(i32::from(0x0003_u16.to_be()));
    let packets = match Socket::new(Domain::PACKET, Type::RAW, Some(every)) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return tools::skipped("packets are root's to see");
        }
        packets => packets.expect("a socket"),
    };
    packets.set_read_timeout(Some(Duration::from_millis(20))).expect("set");
    packets.set_recv_buffer_size(8 << 20).expect("set");
    let Some(fleet) = authority() else { return };
    let (here, there) = (node(Some(&member(&fleet, "here"))), node(Some(&member(&fleet, "there"))));
    // Both the value and the topic's name are seen without security: the test can see them.
    for (security, expected) in [("off", [true, true]), ("on", [false, false])] {
        let on_network = domain();
        let topic = format!("observed/{security}");
        let secret = format!("{SECRET}: {security}");
        let subscriber = there.subscriber_on::<Pump>(&topic, &apart("auto", &fleet, on_network, security));
        let subscriber = subscriber.expect("a subscriber");
        let wire = wire("cdr", on_network) + "&security=" + security;
        let publisher = here.publisher_on::<Pump>(&topic, &wire).expect("a publisher");
        let (seen, see) = mpsc::channel::<()>();
        let (packets, parts) = (packets.try_clone().expect("a socket"), [secret.clone(), topic.clone()]);
        let watching = thread::spawn(move || {
            let (mut packets, mut packet, mut found) = (packets, vec![0; 70_000], [false; 2]);
            while found != [true; 2] && see.try_recv() == Err(mpsc::TryRecvError::Empty) {
                let length = packets.read(&mut packet).unwrap_or(0);
                for (found, part) in found.iter_mut().zip(&parts) {
                    *found |= packet[..length].windows(part.len()).any(|bytes| bytes == part.as_bytes());
                }
            }
            found
        });
        assert_eq!(publisher.wait_for_subscribers(1, SOON), 1, "{security}");
        let until = Instant::now() + if security == "on" { Duration::from_millis(500) } else { SOON };
        // A busy machine does not show every packet.
        for id in (0..).take_while(|_| !watching.is_finished() && Instant::now() < until) {
            publisher.publish(&Pump { id, level: 0.5, name: secret.clone() }).expect("published");
            assert_eq!(subscriber.recv_timeout(SOON).expect("a sample").value.name, secret);
        }
        drop(seen);
        assert_eq!(watching.join().expect("it ends"), expected, "{security}");
    }
}

#[test]
fn a_node_whose_certificate_expires_says_so() {
    let Some(fleet) = authority() else { return };
    let on_network = domain();
    let there = node(Some(&member(&fleet, "there")));
    let subscriber = there.subscriber_on::<Pump>("pumps", &apart("auto", &fleet, on_network, "on"));
    let subscriber = subscriber.expect("a subscriber");
    // A busy machine may not have matched both before the certificate expires.
    let (here, events, publisher, begun, lifetime) = [16, 32, 64]
        .into_iter()
        .map(Duration::from_secs)
        .find_map(|lifetime| {
            let begun = Instant::now();
            let here = node(Some(&member_with(&fleet, "here", ALL, lifetime)));
            let events = here.events();
            let publisher = here.publisher_on::<Pump>("pumps", &secure("cdr", on_network)).ok()?;
            let is_matched = publisher.wait_for_subscribers(1, lifetime) == 1 && publisher.publish(&pump(1)).is_ok();
            is_matched.then_some((here, events, publisher, begun, lifetime))
        })
        .expect("matched in time");
    assert_eq!(subscriber.recv_timeout(SOON).expect("a sample").value, pump(1));
    loop {
        let event = events.recv_timeout(SOON).expect("the link ends");
        let NodeEvent::Engine { event: Event::Disconnected { reason, .. }, .. } = event else { continue };
        assert!(reason.to_string().contains("the certificate or the permissions of this node expire"), "{reason}");
        break;
    }
    // Also after Cyclone has deleted what the entities stand for.
    while begun.elapsed() < lifetime + Duration::from_secs(1) {
        let error = publisher.publish(&pump(2)).expect_err("it has expired");
        assert!(error.to_string().contains("have expired"), "{error}");
        let error = here.publisher_on::<Pump>("more", &secure("cdr", on_network)).map(drop).expect_err("expired");
        assert!(error.to_string().contains("have expired"), "{error}");
        thread::sleep(Duration::from_millis(100));
    }
    here.close();
    let here = node(Some(&member_with(&fleet, "here", ALL, Duration::ZERO)));
    let again = here.open(&format!("dds/{on_network}?interface=127.0.0.1&security=on")).expect_err("expired");
    assert!(again.to_string().contains("expired"), "{again}");
}
