//! Prints the spans of a node: `cargo run -p polywire --features tracing --example spans`.

use std::{io, time::Duration};

use polywire::{Message, Node};
use tracing_subscriber::{
    EnvFilter,
    fmt::{MakeWriter, format::FmtSpan},
};

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Pump {
    id: u32,
}

/// Publishes, receives and calls once, and writes each span at its end.
pub fn run<W>(out: W) -> Result<(), Box<dyn std::error::Error>>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new("polywire=trace"))
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(false)
        .without_time()
        .with_writer(out)
        .finish();
    tracing::subscriber::set_global_default(subscriber)?;
    let (node, wire, soon) = (Node::new(), "cdr@inproc/spans", Duration::from_secs(60));
    let pumps = node.subscriber_on::<Pump>("pumps", wire)?;
    node.publisher_on::<Pump>("pumps", wire)?.publish(&Pump { id: 7 })?;
    pumps.recv_timeout(soon).ok_or("nothing came")?;
    let double = |pump: &Pump, _: &_| Ok::<Pump, String>(Pump { id: 2 * pump.id });
    let _server = node.service::<Pump, Pump>("double", Some(wire))?.on_request(1, double)?;
    let client = node.client::<Pump, Pump>("double", Some(wire))?.open()?;
    assert_eq!(client.call(&Pump { id: 7 }, soon)?, Pump { id: 14 });
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    run(io::stderr)
}
