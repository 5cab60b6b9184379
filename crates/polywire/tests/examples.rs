//! The examples do what they say, side by side.
#![allow(dead_code, reason = "the examples' main functions")]

use std::thread;

#[path = "../examples/any_type.rs"]
mod any_type;
#[path = "../examples/dynamic.rs"]
mod dynamic;
#[path = "../examples/publisher.rs"]
mod publisher;
#[path = "../examples/subscriber.rs"]
mod subscriber;

#[test]
fn an_older_subscriber_reads_both_formats() {
    let wire = "cdr@inproc/examples-pumps";
    let reader = thread::spawn(move || subscriber::run(wire, 4).unwrap());
    publisher::run(wire, 4).unwrap();
    let pump = |(id, pressure_bar)| subscriber::Pump { id, pressure_bar };
    let expected = [(0, 2.5), (1, 3.5), (2, 4.5), (0, 5.5)].map(pump);
    assert_eq!(reader.join().unwrap(), expected);
}

#[test]
fn a_subscriber_without_a_type_reads_what_was_defined_at_run_time() {
    let wire = "cdr@inproc/examples-any";
    let reader = thread::spawn(move || any_type::run(wire, 2).unwrap());
    dynamic::run(wire).unwrap();
    let expected = [r#"{"id":7,"pressure_bar":2.5,"mode":"OFF"}"#, r#"{"id":8,"pressure_bar":3.25,"mode":"AUTO"}"#];
    assert_eq!(reader.join().unwrap(), expected);
}
