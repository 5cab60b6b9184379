//! The examples in Rust of docs/telemetry.md and docs/commands.md compile and work: this file has
//! their lines, in the same order.

use std::time::Duration;

use polywire_testing::{
    Folder,
    markdown::{assert_shown, blocks, page},
};

mod shown {
    use std::sync::Arc;

    use polywire::Node;
    use polywire_telemetry::{Agent, Counter, Gauge, Histogram, Identity, Moment, Probe, Runner, system::Host};

    /// A pump.
    #[derive(Default, Probe)]
    #[probe(name = "plant::Pump", uuid = "152a9bd8-6a03-4d4c-85ef-e720829573c4", version = "1.0", every = 0.1)]
    struct Pump {
        #[probe(unit = "bar", deadband = 0.5)]
        pressure: Gauge<f64>,
        strokes: Counter,
        #[probe(unit = "us")]
        latency: Histogram,
    }

    pub fn run(received: impl FnOnce()) -> Result<(), Box<dyn std::error::Error>> {
        let pump = Arc::new(Pump::default());
        let identity = Identity::keep("plant.state".as_ref(), Some("plant"))?;
        let mut agent = Agent::new(Node::new(), identity, Host::this(), "cdr@local", Moment::default())?;
        agent.add_application("pump-1", &pump)?;
        let runner = Runner::start(agent)?; // a thread, until it is dropped

        pump.pressure.set(2.5); // any thread
        pump.strokes.add(1);
        pump.latency.observe(150);
        runner.flush("pump-1"); // a sample at once
        received();
        Ok(())
    }
}

mod commands {
    use polywire::{Message, Node};
    use polywire_telemetry::{Agent, Identity, Moment, Runner, system::Host};

    /// How many parts to eject.
    #[derive(Default, Message)]
    #[polywire(name = "plant::Eject")]
    struct Eject {
        parts: u32,
    }

    /// What is left.
    #[derive(Default, Message)]
    #[polywire(name = "plant::Ejected")]
    struct Ejected {
        left: u32,
    }

    pub fn run(folder: &str, called: impl FnOnce()) -> Result<(), Box<dyn std::error::Error>> {
        std::env::set_current_dir(folder)?;
        let identity = Identity::keep("press.state".as_ref(), Some("press-hall"))?;
        let mut agent = Agent::new(Node::new(), identity, Host::this(), "cdr@local", Moment::default())?;
        let mut stock = 10_u32;
        agent.add_command("eject", "Ejects parts", move |eject: &Eject| {
            stock = stock.checked_sub(eject.parts).ok_or("there are fewer parts")?;
            Ok::<_, &str>(Ejected { left: stock })
        })?;
        let runner = Runner::start(agent)?;
        called();
        drop(runner);
        Ok(())
    }
}

#[test]
fn the_pages_have_these_examples_and_they_work() {
    page_on_telemetry();
    page_on_commands();
}

fn page_on_commands() {
    #[derive(Default, polywire::Message)]
    #[polywire(name = "plant::Eject")]
    struct Eject {
        parts: u32,
    }
    #[derive(Default, polywire::Message)]
    #[polywire(name = "plant::Ejected")]
    struct Ejected {
        left: u32,
    }
    let example = blocks(&page("docs/commands.md")).into_iter().find(|block| block.info == "rust");
    assert_shown(&example.expect("a block of Rust").text, include_str!("documented.rs"));
    let folder = Folder::new("documented-commands");
    commands::run(folder.path().to_str().expect("UTF-8"), || {
        let node = polywire::Node::new();
        let client = node.client::<Eject, Ejected>("telemetry/press-hall/command/eject", Some("cdr@local"));
        let client = client.expect("a client").open().expect("opened");
        let soon = Duration::from_secs(120);
        assert_eq!(client.call(&Eject { parts: 2 }, soon).expect("ejected").left, 8);
        let failed = client.call(&Eject { parts: 9 }, soon).map(|_| ()).expect_err("too many");
        assert_eq!(failed.to_string(), "there are fewer parts");
    })
    .expect("nothing fails");
}

fn page_on_telemetry() {
    let example = blocks(&page("docs/telemetry.md")).into_iter().find(|block| block.info == "rust");
    assert_shown(&example.expect("a block of Rust").text, include_str!("documented.rs"));
    // The example keeps its state in the present folder, and meets nobody else.
    let folder = Folder::new("documented");
    std::env::set_current_dir(folder.path()).expect("a folder");
    let node = polywire::Node::new();
    let pumps = node
        .subscribe_of("probes/plant/pump-1", Some("local"), polywire::coding::Discovered::new().expect("a coding"))
        .expect("subscribes")
        .open();
    shown::run(|| {
        let sample = pumps.recv_timeout(Duration::from_secs(120)).expect("a sample");
        assert_eq!(sample.info.source.announcement.type_name, "plant::Pump");
    })
    .expect("nothing fails");
}
