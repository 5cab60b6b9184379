//! The engine `local`: nodes that find each other, come, go and restart at any time. Twenty real
//! processes of which one is killed or suspended are in `mesh_processes.rs`.

mod common;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{Arc, Barrier, atomic::Ordering, mpsc},
    thread,
    time::Duration,
};

use common::{Tap, find, until};
use polywire::{
    Message, Node, NodeError,
    engine::{Disconnect, EngineError, EngineOptions, Event, find as engine, local::Domain},
};
use polywire_core::{envelope::Id128, frame::Hello};
use polywire_testing::free_path;

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Nothing {
    none: bool,
}

/// A folder that the nodes create.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        Folder(free_path(test))
    }

    fn address(&self) -> String {
        self.0.display().to_string()
    }

    fn files(&self) -> usize {
        fs::read_dir(&self.0).map_or(0, Iterator::count)
    }
}

fn join(folder: &Folder) -> (Arc<Tap>, mpsc::Receiver<Event>) {
    Tap::open("local", &folder.address(), EngineOptions::default())
}

#[test]
fn nodes_that_come_at_once_have_one_link_each_and_lose_nothing() {
    const NODES: usize = 8;
    const LAST: u64 = 300;
    for round in 0..3 {
        let folder = Folder::new(&format!("once-{round}"));
        let together = Barrier::new(NODES);
        let nodes: Vec<_> = thread::scope(|scope| {
            let member = |number: u8| {
                together.wait();
                let (tap, events) = join(&folder);
                // From the first moment on, while links come up.
                let channel = tap.announce("t", number);
                for sequence in 1..=LAST {
                    tap.publish(channel, sequence, &[number]);
                    thread::sleep(Duration::from_micros(200));
                }
                (tap, events, channel)
            };
            let members: Vec<_> = (1..=NODES as u8).map(|number| scope.spawn(move || member(number))).collect();
            members.into_iter().map(|member| member.join().expect("no panic")).collect()
        });
        for (tap, ..) in &nodes {
            until("a link to each other node", || tap.port().links().len() == NODES - 1);
        }
        // One more message of each, to all.
        for (tap, _, channel) in &nodes {
            until("answers", || tap.port().links().len() == NODES - 1 && tap.heard().answered >= NODES - 1);
            assert_eq!(tap.publish(*channel, LAST + 1, b"last").peers, NODES - 1);
        }
        for (tap, events, _) in &nodes {
            let all = |heard: &common::Heard| {
                (heard.messages.iter().filter(|message| message.payload == b"last").count() == NODES - 1).then_some(())
            };
            tap.until("the last message of each", all);
            let heard = tap.heard().clone();
            let mut of: BTreeMap<u8, Vec<u64>> = BTreeMap::new();
            for message in heard.messages.iter().filter(|message| message.payload.len() == 1) {
                of.entry(message.payload[0]).or_default().push(message.sequence);
            }
            // From some message on, every one, once and in order.
            for (writer, sequences) in of {
                let first = sequences[0];
                assert!(sequences.iter().copied().eq(first..=LAST), "writer {writer}: {sequences:?}");
            }
            assert!(heard.lost.is_empty() && heard.down == 0);
            let bad = |event: &Event| matches!(event, Event::Disconnected { .. } | Event::Rejected { .. });
            assert!(!events.try_iter().any(|event| bad(&event)), "a link was replaced");
        }
        nodes.iter().for_each(|(tap, ..)| tap.port().close());
        assert_eq!(folder.files(), 0);
    }
}

#[test]
fn a_node_that_restarts_replaces_its_earlier_self() {
    let folder = Folder::new("restart");
    // On either side of the decision: ids below and above those of the others.
    for node in [Id128([0; 16]), Id128([0xFF; 16])] {
        let (other, events) = join(&folder);
        let open = |incarnation| {
            let hello = Hello { node, incarnation };
            Tap::as_node(&Domain, &folder.address(), hello, EngineOptions::default(), true)
        };
        let (before, _before_events) = open(1);
        other.announce("t", 1);
        other.until("answer", |heard| (heard.answered == 1).then_some(()));
        // The earlier one is still there, as one that hangs would be.
        let (after, _after_events) = open(2);
        other.until("answer", |heard| (heard.answered == 2).then_some(()));
        find(&events, |event| matches!(event, Event::Disconnected { .. }).then_some(()));
        // On a busy machine, the later one may be silent for its lease and give way for a moment.
        let links = || other.port().links().iter().map(|link| link.link.peer.incarnation).collect::<Vec<_>>();
        until("the later one", || links() == [2]);
        for tap in [before, after, other] {
            tap.port().close();
        }
    }
}

#[test]
fn who_only_looks_is_no_node_and_a_second_port_of_the_same_node_is_told() {
    let folder = Folder::new("look");
    let (tap, events) = join(&folder);
    let socket = fs::read_dir(&folder.0).expect("a folder").map(|entry| entry.expect("an entry").path());
    let socket = socket.into_iter().find(|path| path.extension().is_some_and(|e| e == "sock")).expect("a socket");
    drop(UnixStream::connect(&socket).expect("it listens"));
    let mut garbage = UnixStream::connect(&socket).expect("it listens");
    std::io::Write::write_all(&mut garbage, &[0xFF; 64]).expect("sends");
    let rejected = |event| match event {
        Event::Rejected { reason, .. } => Some(reason),
        _ => None,
    };
    assert!(matches!(find(&events, rejected), Disconnect::Protocol(_)));
    assert!(tap.port().links().is_empty());
}

#[test]
fn a_removed_folder_and_what_is_wrong_with_a_folder_are_told() {
    let folder = Folder::new("removed");
    let ((a, _a_events), (b, _b_events)) = (join(&folder), join(&folder));
    until("a link", || a.port().links().len() == 1 && b.port().links().len() == 1);
    // At one stroke: nodes make anew what is removed one by one.
    let aside = Folder::new("aside");
    fs::rename(&folder.0, &aside.0).expect("moved");
    drop(aside);
    // Nodes appear again, so that a newcomer finds them. The link they have stays.
    let (c, _c_events) = join(&folder);
    until("links", || [&a, &b, &c].iter().all(|tap| tap.port().links().len() == 2));
    assert_eq!((a.heard().down, b.heard().down), (0, 0));
    for tap in [&a, &b, &c] {
        tap.port().close();
    }
    let _ = fs::remove_dir_all(&folder.0);
    let open = |address: &str| match Node::new().open(&format!("local/{address}")) {
        Err(NodeError::Engine(EngineError::System { action: "use its folder", cause, .. })) => cause.to_string(),
        other => panic!("{other:?}"),
    };
    std::os::unix::fs::symlink("/tmp", &folder.0).expect("a link");
    assert!(open(&folder.address()).contains("symbolic link"));
    fs::remove_file(&folder.0).expect("removed");
    assert!(open(&format!("{}/below/it", folder.address())).contains("below/it: No such file"));
    let long = Folder::new(&"long".repeat(25));
    match Node::new().open(&format!("local/{}", long.address())) {
        Err(NodeError::Engine(EngineError::System { action: "listen", cause, .. })) => {
            assert!(cause.to_string().contains("choose a shorter folder"), "{cause}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_full_disk_is_told() {
    // A file system of a few inodes, in a namespace of the test's own, where the system permits it.
    let script = "mount -t tmpfs -o nr_inodes=3,mode=700 none \"$0\" && mkdir -m 700 \"$0/d\" \
                  && touch \"$0/last\" && exec \"$1\" --exact open_here --ignored --nocapture";
    let folder = Folder::new("full");
    fs::create_dir(&folder.0).expect("a folder");
    let mut command = std::process::Command::new("unshare");
    command.args(["-rm", "sh", "-c", script]).arg(&folder.0).arg(std::env::current_exe().expect("this program"));
    let output = command.env("POLYWIRE_TEST_FOLDER", folder.0.join("d")).output();
    let output = output.ok().filter(|output| !String::from_utf8_lossy(&output.stderr).contains("unshare"));
    let Some(output) = output.filter(|output| !String::from_utf8_lossy(&output.stderr).contains("mount")) else {
        println!("SKIPPED: no namespace with a file system of its own");
        return;
    };
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("cannot listen: ") && told.contains(".lock: No space left on device"), "{told}");
}

/// Not a test by itself: what the test above runs in a namespace.
#[test]
#[ignore = "run by another test"]
fn open_here() {
    let folder = std::env::var("POLYWIRE_TEST_FOLDER").expect("a folder");
    match Node::new().open(&format!("local/{folder}")) {
        Ok(endpoint) => println!("opened {endpoint}"),
        Err(error) => println!("{error}"),
    }
}

#[test]
fn an_endpoint_without_a_domain_is_the_same_port_as_with_it() {
    let domain = engine("local").expect("built in");
    assert_eq!((domain.complete("007"), domain.complete("/a/b")), ("7".into(), "/a/b".into()));
    let default = domain.complete("");
    assert!(default.parse::<u8>().is_ok(), "{default}");
    let folder = Folder::new("same");
    let (node, wire) = (Node::new(), format!("local/{}", folder.address()));
    assert_eq!(node.open(&wire).expect("opens"), node.open(&wire).expect("opens"));
    assert_eq!(folder.files(), 2, "a socket and its lock");
    node.close();
    assert_eq!(folder.files(), 0);
    // At the user's own place, the one that needs no address.
    let publisher = Node::new().publisher_on::<Nothing>("mesh-test", "cdr@local").expect("opens");
    for same in ["json@local", "json", &format!("bson@local/{default}")] {
        publisher.set_wire(same).expect(same);
    }
}

#[test]
fn a_node_that_leaves_is_no_longer_called() {
    let folder = Folder::new("leaves");
    let ((a, events), (b, _b_events)) = (join(&folder), join(&folder));
    until("a link", || a.port().links().len() == 1 && b.port().links().len() == 1);
    b.port().close();
    let reason = find(&events, |event| match event {
        Event::Disconnected { reason, .. } => Some(reason),
        _ => None,
    });
    assert_eq!(reason, Disconnect::Bye);
    thread::sleep(Duration::from_millis(200));
    // Both may have called at once. The spare call may break when the other end closes.
    let is_spare_call = |event: &Event| matches!(event, Event::Rejected { reason: Disconnect::Lost(_), .. });
    let mut told = events.try_iter().filter(|event| !is_spare_call(event));
    let told = told.find(|event| matches!(event, Event::Unreachable { .. } | Event::Rejected { .. }));
    assert_eq!(told, None);
    assert_eq!(a.count.load(Ordering::SeqCst), 0);
}
