//! Values that refer to the receive buffer instead of copying from it. The publisher is on another
//! node.

use std::{sync::mpsc, time::Duration};

use polywire::{Node, Sample, SharedBytes, SharedStr};
use polywire_derive::Message;

const SOON: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Camera::Picture")]
struct Picture {
    number: u32,
    title: String,
    #[polywire(idl = "sequence<octet>")]
    pixels: Vec<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Camera::Picture")]
struct View {
    number: u32,
    title: SharedStr,
    pixels: SharedBytes,
}

fn picture(number: u32) -> Picture {
    // Small ones of which many come in one read, and some that fill buffers.
    let size = [3, 500, 20_000, 150_000][number as usize % 4];
    let pixels = (0..size).map(|i| (i as u32 * 7 + number) as u8).collect();
    Picture { number, title: format!("picture {number}"), pixels }
}

fn is_right(view: &View) -> bool {
    let Picture { title, pixels, .. } = picture(view.number);
    *view.title == *title && *view.pixels == *pixels
}

/// The publisher's wire and a subscriber's, each on its node.
fn endpoints(test: &str, codec: &str) -> Vec<(Node, String, Node, String)> {
    let (a, b, c) = (Node::new(), Node::new(), Node::new());
    let bound = a.open("tcp-listen/127.0.0.1:0").expect("listens");
    let inproc = format!("{codec}@inproc/shared-{test}-{codec}");
    let connecting = bound.replacen("tcp-listen", "tcp-connect", 1).replacen("tcp/", "tcp-connect/", 1);
    let tcp = (a, format!("{codec}@{bound}"), b, format!("{codec}@{connecting}"));
    vec![tcp, (c.clone(), inproc.clone(), c, inproc)]
}

#[test]
fn what_is_held_stays_as_it_is() {
    for codec in ["cdr", "xcdr2", "bson", "json"] {
        for (a, at_a, b, at_b) in endpoints("held", codec) {
            let publisher = a.publisher_on::<Picture>("p", &at_a).expect("publisher");
            let subscriber = b.subscriber_on::<View>("p", &at_b).expect("subscriber");
            assert_eq!(publisher.wait_for_subscribers(1, SOON), 1, "{at_a}");
            (0..24).for_each(|number| {
                publisher.publish(&picture(number)).expect("published");
            });
            // All of them are held at the same time.
            let samples: Vec<Sample<View>> =
                (0..24).map(|_| subscriber.recv_timeout(SOON).expect("a message")).collect();
            for (sample, number) in samples.iter().zip(0..) {
                assert_eq!((sample.value.number, is_right(&sample.value)), (number, true), "{at_a}: {number}");
                let (octets, text) = (&sample.value.pixels, &sample.value.title);
                assert_eq!(octets.is_shared() && text.is_shared(), codec != "json", "{at_a}: {number}");
            }
        }
    }
}

#[test]
fn callbacks_may_keep_parts() {
    for (a, at_a, b, at_b) in endpoints("callbacks", "cdr") {
        let publisher = a.publisher_on::<Picture>("p", &at_a).expect("publisher");
        let (queued, inline) = (mpsc::channel(), mpsc::channel());
        let subscribe = || b.subscribe::<View>("p", Some(&at_b)).expect("subscriber");
        let keep = |to: mpsc::Sender<View>| move |view: &View, _: &polywire::Info| drop(to.send(view.clone()));
        let _queued = subscribe().on_message(keep(queued.0)).expect("a thread");
        let _inline = subscribe().on_message_inline(keep(inline.0));
        assert_eq!(publisher.wait_for_subscribers(2, SOON), 2, "{at_a}");
        (0..40).for_each(|number| {
            publisher.publish(&picture(number)).expect("published");
        });
        for kept in [queued.1, inline.1] {
            let views: Vec<View> = (0..40).map(|_| kept.recv_timeout(SOON).expect("a message")).collect();
            assert!(views.iter().all(is_right), "{at_a}");
        }
    }
}
