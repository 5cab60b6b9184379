//! The receiving end of buses without callbacks (libzmq, iceoryx2): a thread for each subscriber,
//! which waits or polls for messages.

use std::{thread, time::Duration};

use super::{
    bus::{Ends, Subscriber},
    receivers::Receivers,
    setup::Setup,
};

/// Interval at which a receiver checks whether the case is over.
const LOOKS: Duration = Duration::from_millis(200);

/// Interval at which a polling receiver checks whether its turn has come.
const DOZE: Duration = Duration::from_millis(5);

/// Starts a thread for each subscriber, which opens its end with `ends`.
pub fn receive<E: Ends>(
    setup: &Setup,
    ends: impl Fn(&Setup) -> Result<E, String> + Clone + Send + 'static,
) -> Result<Receivers, String> {
    let (all, receivers) = Subscriber::all(setup)?;
    for subscriber in all {
        let (setup, ends) = (setup.clone(), ends.clone());
        // A subscriber that cannot be opened does not answer, which the sender reports.
        thread::spawn(move || ends(&setup).map(|ends| run(subscriber, ends)));
    }
    Ok(receivers)
}

fn run<E: Ends>(mut subscriber: Subscriber, mut ends: E) {
    let mut answer = Vec::new();
    while !subscriber.is_over() {
        answer.clear();
        let patience = match E::POLLS && subscriber.rests() {
            true => {
                thread::sleep(DOZE);
                Duration::ZERO
            }
            false => LOOKS,
        };
        let came =
            ends.receive(patience, &mut |frame| answer.extend_from_slice(subscriber.take(frame).unwrap_or_default()));
        // A failure to send or read shows as a missing message.
        if came.is_ok() && !answer.is_empty() {
            let _ = ends.send(&answer);
        }
    }
}
