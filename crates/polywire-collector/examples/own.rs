//! A collector in a program, with a handler of the program's own that sums up numbers of a topic.
//!
//! `cargo run -p polywire-collector --example own`

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use polywire::Node;
use polywire_collector::{Collector, CollectorConfig, Entry, Expects, Handler, HandlerError, Kind, Setting};

/// Adds up a member of all entries, and prints the sum when it stores.
struct Sum {
    member: String,
    sum: f64,
    tell: Sender<f64>,
}

/// Where the handler tells what it has. A program's own kinds are statics, as all kinds are.
static TELL: Mutex<Option<Sender<f64>>> = Mutex::new(None);

static SUM: Kind = Kind {
    name: "sum",
    summary: "Adds up a member of all messages",
    settings: &[Setting { name: "member", expects: Expects::Required, summary: "path of the member" }],
    open: |settings, _| {
        let tell = TELL.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let tell = tell.ok_or_else(|| HandlerError::Failed("nobody wants to know".into()))?;
        Ok(Box::new(Sum { member: settings.text("member").unwrap_or_default().to_owned(), sum: 0.0, tell }))
    },
};

impl Handler for Sum {
    fn write(&mut self, entry: &Entry) -> Result<(), HandlerError> {
        let number = entry.value.f64(&self.member);
        self.sum += number.map_err(|error| HandlerError::Refused(error.to_string()))?;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), HandlerError> {
        println!("the sum of '{}' is {}", self.member, self.sum);
        self.tell.send(self.sum).map_err(|_| HandlerError::Failed("nobody wants to know any more".into()))
    }
}

#[derive(Default, polywire::Message)]
struct Pump {
    pressure: f64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (tell, told): (_, Receiver<f64>) = channel();
    *TELL.lock().unwrap_or_else(PoisonError::into_inner) = Some(tell);
    let config = CollectorConfig::parse_with(
        "[collector]
         topics = ['plant/*']
         endpoints = ['inproc/collector-own']

         [handlers.pressure]
         kind = 'sum'
         member = 'pressure'
         sync = 0.1",
        &[&SUM],
    )?;
    let mut collector = Collector::new(Node::new());
    collector.reload(&config)?;

    let pumps = Node::new().publisher_on::<Pump>("plant/pump", "cdr@inproc/collector-own")?;
    pumps.wait_for_subscribers(1, Duration::from_secs(60));
    for pressure in [1.0, 2.5, 3.0] {
        pumps.publish(&Pump { pressure })?;
    }
    while told.recv_timeout(Duration::from_secs(60))? < 6.5 {}
    let (ended, status) = collector.stop(Duration::from_secs(60));
    assert!(ended && status[0].stored == 3);
    Ok(())
}
