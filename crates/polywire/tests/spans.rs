//! Spans of the crate `tracing`, as the example prints them.
#![cfg(feature = "tracing")]

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

#[allow(dead_code, reason = "the example's main function")]
#[path = "../examples/spans.rs"]
mod spans;

/// A text that several threads write.
#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Text {
    fn read(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn each_step_of_a_message_and_of_a_call_has_its_span() {
    let text = Text::default();
    let out = text.clone();
    spans::run(move || out.clone()).expect("it runs");
    let wanted = [
        ("connect", &["wire=inproc/spans", "address="][..]),
        ("negotiate", &["topic=pumps wire=cdr writer="]),
        ("publish", &["topic=pumps wire=cdr@inproc/spans writer=", "sequence=1}"]),
        ("deliver", &["topic=pumps wire=cdr writer=", "sequence=1}"]),
        ("call", &["topic=double wire=cdr@inproc/spans writer=", "sequence=1}"]),
        ("serve", &["topic=double wire=cdr writer=", "sequence=1}"]),
    ];
    // The server ends its span after the reply has left.
    let until = Instant::now() + Duration::from_secs(60);
    for (name, fields) in wanted {
        let is_it = |line: &str| {
            line.contains(&format!("{name}{{"))
                && line.contains("close")
                && fields.iter().all(|field| line.contains(field))
        };
        while !text.read().lines().any(is_it) {
            assert!(Instant::now() < until, "{name}: {}", text.read());
            thread::sleep(Duration::from_millis(1));
        }
    }
    let nested = text.read().lines().any(|line| line.contains("call{") && line.contains(":publish{"));
    assert!(nested, "the request is published within the call: {}", text.read());
}
