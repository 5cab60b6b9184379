//! The examples in Rust of docs/telemetry.md and docs/commands.md compile and work: this file has
//! their lines, in the same order.

use std::time::Duration;

use polywire::{Message as _, Node};
use polywire_idl::{Compiler, emit};
use polywire_telemetry::{Agent, Identity, Moment, Runner, system::Host};
use polywire_testing::{
    Folder,
    markdown::{assert_shown, blocks, page},
};

use operations::plant::{Tank, TankDrainIn, TankDrainOut, TankFillIn, TankFillOut};

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

/// An operation of a probe, with the types that `polywire idl rust` writes.
mod operations {
    // Written by Polywire from IDL; changes here will be lost.

    pub mod plant {
        #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
        #[polywire(name = "plant::Tank")]
        pub struct Tank {
            #[polywire(unit = "m")]
            pub level: f64,
        }

        /// Drains down to a level. Returns what ran out, in litres.
        #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
        #[polywire(name = "plant::Tank_drain_In", nested)]
        pub struct TankDrainIn {
            #[polywire(unit = "m")]
            pub level: f64,
            pub who: String,
        }

        #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
        #[polywire(name = "plant::Tank_drain_Out", nested)]
        pub struct TankDrainOut {
            pub return_: f64,
        }

        /// Fills the tank.
        #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
        #[polywire(name = "plant::Tank_fill_In", nested)]
        pub struct TankFillIn {}

        #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
        #[polywire(name = "plant::Tank_fill_Out", nested)]
        pub struct TankFillOut {}
    }

    use plant::{TankDrainIn, TankDrainOut};
    use polywire_telemetry::{Agent, AgentError};

    pub fn declare(agent: &mut Agent) -> Result<(), AgentError> {
        let mut level = 2.0;
        agent.add_command("tank.drain", "Drains down to a level", move |request: &TankDrainIn| {
            match request.level {
                wanted if wanted <= level => {
                    let litres = 750.0 * (level - wanted);
                    level = wanted;
                    Ok(TankDrainOut { return_: litres })
                }
                _ => Err(format!("the level is only {level} m")),
            }
        })?;
        Ok(())
    }
}

#[test]
fn the_pages_have_these_examples_and_they_work() {
    page_on_telemetry();
    page_on_commands();
    page_on_operations();
}

fn page_on_operations() {
    let all = blocks(&page("docs/commands.md"));
    let pdl = all.iter().find(|block| block.info == "idl tank.pdl").expect("a block of PDL");
    let document = Compiler::new().parse_str("tank.pdl", &pdl.text).expect("it compiles");
    assert_shown(&emit::rust(document.definitions()).expect("Rust"), include_str!("documented.rs"));
    let example = all.iter().filter(|block| block.info == "rust").nth(1).expect("a second block of Rust");
    assert_shown(&example.text, include_str!("documented.rs"));

    let (wire, identity) = ("cdr@inproc/documented-operations", Identity::new("plant").expect("a name"));
    let mut agent = Agent::new(Node::new(), identity, Host::this(), wire, Moment::default()).expect("a node");
    operations::declare(&mut agent).expect("declared");
    let described = agent.description().commands.remove(0);
    let operation = document.operations("Tank").expect("known").next().expect("an operation");
    assert_eq!(TankDrainIn::shape().schema().type_hash(), operation.request.type_hash());
    assert_eq!(TankDrainOut::shape().schema().type_hash(), operation.reply.type_hash());
    let (fill, filled) = (TankFillIn::default(), TankFillOut {});
    assert_eq!((fill, filled, Tank { level: 0.0 }), (TankFillIn {}, TankFillOut::default(), Tank::default()));
    let runner = Runner::start(agent).expect("a thread");
    let client = Node::new().client::<TankDrainIn, TankDrainOut>(&described.service, Some(wire));
    let client = client.expect("a client").open().expect("opened");
    let drain = |level| client.call(&TankDrainIn { level, who: "ann".into() }, Duration::from_secs(120));
    assert_eq!(drain(0.5).expect("drained").return_, 1125.0);
    assert_eq!(drain(1.0).expect_err("too much").to_string(), "the level is only 0.5 m");
    drop(runner);
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
