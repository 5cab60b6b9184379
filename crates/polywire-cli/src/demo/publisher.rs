//! The hidden command `demo-publisher`: the publisher of the demonstration, in its own process.
//! Publishes in one format after the other, and reports figures and digests.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use anyhow::{bail, ensure};
use clap::Args;
use polywire::{Node, PublisherOf};

use super::{
    PROGRESS, TOPIC,
    digest::{self, Digest},
    figures::Machine,
    protocol::{Figures, Told, orders, tell},
    types::{READERS, Version},
};
use crate::{
    outcome::{self, Outcome},
    publish::{Metered, Pace},
    terminal::Terminal,
    text::JsonText,
    verb::{Action, Verb},
};

/// The time limit for the subscribers to connect, to be ready for another codec, and to receive the
/// last messages.
const READY: Duration = Duration::from_secs(30);

pub const VERB: Verb =
    Verb::new::<DemoPublisher>("demo-publisher", "Publishes this machine's figures for `polywire demo`").hidden();

#[derive(Args)]
pub struct DemoPublisher {
    #[arg(long)]
    at: String,
    #[arg(long = "wire")]
    wires: Vec<String>,
    #[arg(long)]
    rate: f64,
    #[arg(long)]
    seconds: f64,
}

impl Action for DemoPublisher {
    fn run(self, _: &Terminal) -> outcome::Result {
        let orders = orders();
        let node = Node::new();
        let endpoint = node.open(&self.at)?;
        let metered = Metered::of(&Version::Published.schema()?)?;
        let first = self.wires.first().map_or("cdr", String::as_str);
        let publisher = node.publisher_of(TOPIC, Some(&format!("{first}@{}", self.at)), metered.clone())?;
        tell(&Told::Listening { endpoint })?;

        let mut run = Run { machine: Machine::new(), record: publisher.default_value(), number: 0, wires: Vec::new() };
        for wire in &self.wires {
            publisher.set_wire(wire)?;
            if publisher.wait_for_subscribers(READERS.len(), READY) < READERS.len() {
                let text = format!("not all subscribers were ready for {wire} within {} s", READY.as_secs());
                tell(&Told::Trouble { text: text.clone() })?;
                bail!(text);
            }
            run.publish(&self, wire, &publisher, &metered)?;
        }
        ensure!(publisher.flush(READY), "the subscribers have not taken everything in time");
        let last = JsonText::default().of(&run.record, None)?;
        tell(&Told::Done { wires: run.wires, lost: 0, undecodable: 0, last })?;
        // The link stays open until the subscribers have read everything.
        let _ = orders.recv();
        drop(publisher);
        node.close();
        Ok(Outcome::Fine)
    }
}

struct Run {
    machine: Machine,
    record: polywire::extend::layout::Record,
    number: u32,
    wires: Vec<Figures>,
}

impl Run {
    /// Publishes in one format for its share of the time.
    fn publish(
        &mut self,
        demo: &DemoPublisher,
        wire: &str,
        publisher: &PublisherOf<Metered>,
        metered: &Metered,
    ) -> anyhow::Result<()> {
        let bytes_before = metered.bytes.load(Ordering::Relaxed);
        let (mut pace, mut digest, mut messages) = (Pace::new(Some(demo.rate)), Digest::new(), 0);
        let (start, mut told) = (Instant::now(), Instant::now());
        let share = Duration::from_secs_f64(demo.seconds / demo.wires.len() as f64);
        while start.elapsed() < share || messages == 0 {
            pace.wait();
            self.number += 1;
            self.machine.sample(self.number, &mut self.record)?;
            digest::add(&mut digest, "", self.record.view());
            publisher.publish(&self.record)?;
            messages += 1;
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                let bytes = metered.bytes.load(Ordering::Relaxed) - bytes_before;
                let now = Figures { wire: wire.into(), messages, bytes, ..Figures::default() };
                tell(&Told::Progress { wires: self.wires.iter().map(without_digest).chain([now]).collect() })?;
            }
        }
        let bytes = metered.bytes.load(Ordering::Relaxed) - bytes_before;
        self.wires.push(Figures { wire: wire.into(), messages, bytes, digest, ..Figures::default() });
        Ok(())
    }
}

fn without_digest(figures: &Figures) -> Figures {
    Figures { digest: Digest::new(), ..figures.clone() }
}
