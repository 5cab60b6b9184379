//! Live measurements of Cyclone DDS through `polywire-dds`, which does not depend on Polywire: each
//! end is a participant, and frames are samples, for `callbacks`.

use std::{sync::Arc, time::Duration};

use polywire_dds::{Bytes, Error, Guid, Kind, LOOPBACK, Participant, Qos, Reader, Receive, Sample, Writer};

use super::{
    callbacks::{self, End, Out},
    carrier::Carrier,
    clock::PATIENCE,
    peer::Peer,
    receivers::Receivers,
    setup::{Setup, free_domain},
};
use crate::{scenario::Place, subject::Subject};

/// How this crate configures the engine.
pub const SETTINGS: &str = "Cyclone DDS, used directly: UDP over loopback, reliable; in floods all samples are kept and writers wait for room; both ends answer in the thread that receives";

const THERE: &str = "there";
const BACK: &str = "back";
/// Little-endian CDR.
const HEADER: [u8; 4] = [0, 1, 0, 0];

/// Joins a domain and starts the other end.
pub fn connect(mut setup: Setup, subject: &Subject, place: Place) -> Result<(Box<dyn Carrier>, Peer), String> {
    setup.address = free_domain();
    let end = open(&setup, THERE, BACK)?;
    callbacks::connect(setup, end, subject, place, receive)
}

/// Opens all subscribers, each with its own participant.
pub fn receive(setup: &Setup) -> Result<Receivers, String> {
    callbacks::receive(setup, |setup| open(setup, BACK, THERE))
}

fn error_text(error: Error) -> String {
    error.to_string()
}

/// A writer that waits for room in the thread that also receives acknowledgements would wait for
/// ever. So the writers of echoes keep a few samples and never wait: only one echo is in flight.
fn qos(setup: &Setup) -> Qos {
    Qos { reliable: Some(PATIENCE), keep_last: setup.echo.then_some(16), ..Qos::default() }
}

fn open(setup: &Setup, out: &str, into: &'static str) -> Result<Cyclone, String> {
    let domain = setup.address.parse().map_err(|_| "the address is no domain".to_owned())?;
    let participant = Participant::new(domain, Some(LOOPBACK), &Qos::default()).map_err(error_text)?;
    let topic = participant.topic(out, "Frame", false).map_err(error_text)?;
    let qos = qos(setup);
    let out = Arc::new(topic.writer(&qos, |_| {}).map_err(error_text)?);
    Ok(Cyclone { reader: None, out, into, qos, participant })
}

struct Cyclone {
    // Dropped first: its callback holds the writer, too, which must not be deleted while the reader
    // is being deleted.
    reader: Option<Reader>,
    out: Arc<Writer>,
    into: &'static str,
    qos: Qos,
    participant: Participant,
}

impl Out for Writer {
    fn send(&self, frame: &[u8]) -> Result<(), String> {
        let bytes = Bytes::new(HEADER, frame).map_err(error_text)?;
        let sample = Sample { kind: Kind::Data, is_key: false, bytes, key_hash: None, timestamp_ns: 0, sequence: None };
        self.write(&sample).map_err(error_text)
    }

    fn flush(&self) {
        self.wait_for_acknowledgments(Duration::from_secs(1));
    }
}

impl End for Cyclone {
    fn out(&self) -> Arc<dyn Out> {
        self.out.clone()
    }

    fn hear(&mut self, take: impl Fn(&[u8]) + Send + Sync + 'static) -> Result<(), String> {
        let topic = self.participant.topic(self.into, "Frame", false).map_err(error_text)?;
        self.reader = Some(topic.reader(&self.qos, Arc::new(Taken(take)), |_| {}).map_err(error_text)?);
        Ok(())
    }
}

/// Passes the payloads of samples to a function.
struct Taken<F>(F);

impl<F: Fn(&[u8]) + Send + Sync> Receive for Taken<F> {
    fn receive(&self, _: Guid, sample: Sample) -> bool {
        (self.0)(sample.bytes.payload());
        true
    }
}
