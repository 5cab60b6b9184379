//! The example in Rust of docs/telemetry.md compiles and works: this file has its lines, in the
//! same order.

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

#[test]
fn it_is_the_example_of_the_page_and_works() {
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
