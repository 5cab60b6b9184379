use std::{io::Read, os::unix::net::UnixStream, thread};

use super::*;
use crate::engine::{Batch, PayloadEnd, stream::Descriptors};
use polywire_core::{
    envelope::Id128,
    frame::{Hello, Limits, Step, StreamDecoder},
};

/// Returns the sending side of a link, and the peer's socket.
fn outbox(change: impl FnOnce(&mut EngineOptions)) -> (Outbox, UnixStream) {
    let limits = Limits { document_bytes: 64 << 10, ..Limits::default() };
    let mut options = EngineOptions { limits, ..EngineOptions::default() };
    change(&mut options);
    let (here, there) = UnixStream::pair().expect("sockets");
    let both = Descriptors::new(here.try_clone().expect("a clone"), here).expect("descriptors");
    let pace = Arc::new(Pace::new(&options));
    (Outbox::new(Arc::new(both), &options, pace), there)
}

fn document() -> Frame<'static> {
    Frame::Document { document: Id128::ZERO, bytes: Some(&[7; 4096]) }
}

fn announce(outbox: &Outbox, writer: u8) -> ChannelId {
    let channel = ChannelId(u32::from(writer));
    let announcement = Announcement { writer: Id128([writer; 16]), topic: "t".into(), ..Announcement::default() };
    outbox.announce(channel, Start::default(), &announcement).expect("fits");
    channel
}

fn send(outbox: &Outbox, channel: ChannelId, sequence: u64, size: usize) -> Result<Outcome, FrameError> {
    let (payload, turn) = (vec![0; size], Turn::AtOnce(Instant::now()));
    let (envelope, mut sent) = (Envelope::data(channel, sequence, 0), Sent::default());
    outbox.send(&envelope, &mut Payload::Bytes(&payload), turn, &mut sent)?;
    Ok(match sent {
        Sent { dropped: 1, .. } => Outcome::Dropped,
        Sent { peers: 0, .. } => Outcome::Unwanted,
        Sent { subscribers, .. } => Outcome::Sent(subscribers as u32),
    })
}

#[test]
fn a_peer_that_does_not_read_its_answers_is_waited_for_and_then_cut_off() {
    let (outbox, mut there) = outbox(|_| {});
    there.set_read_timeout(Some(Duration::from_secs(10))).expect("a time-out");
    let crowd = || {
        while outbox.lock().queue.reply_bytes() <= 64 << 10 {
            outbox.control(&document());
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| outbox.run_flusher(|_| {}));
        crowd();
        // A peer that reads late is still served.
        let late = scope.spawn(move || {
            thread::sleep(Duration::from_millis(50));
            let mut left: usize = 256 << 10;
            while left > 0 {
                left = left.saturating_sub(there.read(&mut [0; 4096]).expect("there is more"));
            }
            there
        });
        assert!(outbox.replies_leave(Duration::from_secs(10)));
        // Bytes that the peer does not read stay in the queue.
        (0..64).for_each(|_| outbox.control(&document()));
        let _there = late.join().expect("no panic");
        // The socket's buffer takes some more first.
        let mut rounds = 0;
        while outbox.replies_leave(Duration::from_millis(200)) {
            rounds += 1;
            assert!(rounds < 100, "it is never cut off");
            crowd();
        }
        assert_eq!(outbox.reason(), Some(Disconnect::Unread));
    });
}

#[test]
fn a_link_that_broke_by_itself_is_still_read() {
    let (outbox, there) = outbox(|_| {});
    drop(there);
    outbox.control(&document());
    assert!(outbox.lock().broken && outbox.replies_leave(Duration::ZERO));
    assert_eq!(outbox.reason(), None);
}

#[test]
fn what_waits_for_a_peer_beside_messages_is_bounded() {
    let (outbox, _there) = outbox(|options| options.send_buffer = Some(16 << 10));
    let frame = document();
    let most = 2 * CONTROL_BYTES / 4096;
    let cut = (0..most).position(|_| {
        outbox.control(&frame);
        outbox.reason().is_some()
    });
    assert!(cut.is_some(), "{most} documents wait");
    assert!(outbox.lock().queue.control_bytes() <= CONTROL_BYTES + 8192);
}

#[test]
fn a_busy_publisher_writes_what_the_flusher_asks_for() {
    let (outbox, _there) = outbox(|_| {});
    let channel = announce(&outbox, 1);
    outbox.answered(channel, &Answer::Accept(1));
    let begins_burst = (0..10_000).any(|_| {
        let turn = outbox.pace.begin(1, 1);
        outbox.pace.end(turn);
        turn == Turn::Gather
    });
    assert!(begins_burst, "calls without a pause begin a burst");
    let publish = |sequence| {
        let (envelope, mut sent) = (Envelope::data(channel, sequence, 0), Sent::default());
        outbox.send(&envelope, &mut Payload::Bytes(&[0; 10]), Turn::Gather, &mut sent).expect("fits");
        // Other messages of the port keep the burst alive.
        outbox.pace.begin(100, 1);
    };
    let look = || {
        let mut state = outbox.lock();
        outbox.look(&mut state);
        (state.queue.is_empty(), state.burst.asked)
    };
    (1..=50).for_each(publish);
    assert_eq!(look(), (false, true), "the publisher is busy");
    publish(51);
    assert!(outbox.lock().queue.is_empty(), "the publisher has written all messages");
    (52..=100).for_each(publish);
    assert_eq!(look(), (false, false), "something was written since the last check");
    (101..=150).for_each(publish);
    assert_eq!(look(), (false, true));
    assert_eq!(look(), (true, false), "the publisher has stopped, so the flusher writes");
    publish(151);
    assert_eq!(look(), (true, false), "one message does not make a publisher busy");
}

#[test]
fn what_is_not_confirmed_is_known() {
    let (outbox, there) = outbox(|_| {});
    let (a, b) = (announce(&outbox, 1), announce(&outbox, 2));
    outbox.answered(a, &Answer::Accept(1));
    (1..=5).for_each(|sequence| assert_eq!(send(&outbox, a, sequence, 10), Ok(Outcome::Sent(1))));
    assert_eq!(send(&outbox, b, 1, 10), Ok(Outcome::Sent(0)), "held, and perhaps not wanted");
    assert_eq!(outbox.unconfirmed(), 5);
    outbox.confirmed(3);
    outbox.confirmed(2);
    assert_eq!(outbox.unconfirmed(), 2);
    outbox.confirmed(u64::MAX);
    assert_eq!(outbox.unconfirmed(), 0, "nobody confirms more than was sent");
    outbox.answered(b, &Answer::Accept(1));
    assert_eq!(outbox.unconfirmed(), 1);
    drop(there);
    (6..=9).for_each(|sequence| drop(send(&outbox, a, sequence, 10)));
    assert_eq!(outbox.unconfirmed(), 2, "the one that found the link broken");
}

#[test]
fn heartbeats_of_thin_streams_confirm() {
    let (outbox, there) = outbox(|options| (options.thin, options.lease) = (true, Duration::from_millis(20)));
    assert!(outbox.confirms_by_heartbeats());
    outbox.confirm_later(7);
    let mut buffer = [0; 64];
    thread::scope(|scope| {
        scope.spawn(|| outbox.run_flusher(|_| {}));
        let mut came = Vec::new();
        while came.len() < 5 {
            let count = (&there).read(&mut buffer).expect("there is more");
            came.extend_from_slice(&buffer[..count]);
        }
        assert_eq!(came[..5], [2, 0x40, 7, 1, 8], "Taken, and then a heartbeat");
        outbox.break_off();
    });
}

/// Returns the sequence numbers that arrive, and how many are reported as missing.
fn read(there: &UnixStream, sequences: usize) -> (Vec<u64>, u64) {
    let (mut decoder, mut hello, mut input) = (StreamDecoder::default(), Vec::new(), Vec::new());
    StreamEncoder::default().hello(&Hello { node: Id128::ZERO, incarnation: 1 }, &mut hello);
    assert!(decoder.step(&hello).is_ok());
    let (mut came, mut lost) = (Vec::new(), 0);
    let mut buffer = [0; 4096];
    while came.len() < sequences {
        let count = (&mut &*there).read(&mut buffer).expect("there is more");
        input.extend_from_slice(&buffer[..count]);
        while let Step::Frame { frame, used } = decoder.step(&input).expect("frames") {
            match frame {
                Frame::Data(envelope, _) => came.push(envelope.sequence),
                Frame::Position { lost: more, .. } => lost += more,
                _ => {}
            }
            input.drain(..used);
        }
    }
    (came, lost)
}

#[test]
fn messages_dropped_behind_held_ones_leave_the_numbers_right() {
    let small = |options: &mut EngineOptions| {
        (options.queue_bytes, options.overflow) = (3 * (500 + size_of::<Held>()), Overflow::DropNewest);
    };
    let (outbox, there) = outbox(small);
    let channel = announce(&outbox, 1);
    let outcomes: Vec<_> = (1..=5).map(|sequence| send(&outbox, channel, sequence, 490)).collect();
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Ok(Outcome::Sent(0))).count(), 3);
    assert_eq!(outcomes.last(), Some(&Ok(Outcome::Dropped)));
    outbox.answered(channel, &Answer::Accept(1));
    assert_eq!(send(&outbox, channel, 6, 490), Ok(Outcome::Sent(1)));
    assert_eq!(read(&there, 4), (vec![1, 2, 3, 6], 2));
}

#[test]
fn a_message_that_cannot_be_sent_takes_no_loss_with_it() {
    let (outbox, there) = outbox(|options| options.limits.frame_bytes = 1000);
    let channel = announce(&outbox, 1);
    outbox.answered(channel, &Answer::Accept(1));
    assert_eq!(send(&outbox, channel, 1, 10), Ok(Outcome::Sent(1)));
    outbox.lose(channel, Start { sequence: 3, timestamp_ns: 0 }, 2);
    assert!(matches!(send(&outbox, channel, 4, 2000), Err(FrameError::TooLong { .. })));
    assert_eq!(send(&outbox, channel, 4, 10), Ok(Outcome::Sent(1)));
    assert_eq!(read(&there, 2), (vec![1, 4], 2));
}

#[test]
fn a_message_that_is_too_large_is_refused_even_if_the_peer_has_not_answered() {
    let (outbox, there) = outbox(|options| options.limits.frame_bytes = 1000);
    let channel = announce(&outbox, 1);
    assert_eq!(send(&outbox, channel, 1, 900), Ok(Outcome::Sent(0)));
    assert!(matches!(send(&outbox, channel, 2, 1000), Err(FrameError::TooLong { what: "frame", .. })));
    assert_eq!(send(&outbox, channel, 2, 10), Ok(Outcome::Sent(0)));
    outbox.answered(channel, &Answer::Accept(1));
    assert_eq!(read(&there, 2), (vec![1, 2], 0));
}

#[test]
fn only_as_many_messages_as_wanted_are_sent() {
    let (outbox, there) = outbox(|_| {});
    let channel = announce(&outbox, 1);
    outbox.answered(channel, &Answer::Accept(1));
    let ends = [1, 2, 3].map(|offset| PayloadEnd { offset, anchor: None });
    let batch = |first| Batch::new(Envelope::data(channel, first, 0), b"abc", &ends);
    let mut sent = Sent::default();
    for (first, count) in [(1, 0), (1, 2), (3, 0), (3, 1), (4, 3)] {
        let turn = Turn::AtOnce(Instant::now());
        assert!(outbox.send_all(&batch(first), count, turn, &mut sent, |_| {}).is_ok());
        assert_eq!(sent.peers as u64, first - 1 + count as u64);
    }
    assert_eq!(read(&there, 6), ((1..=6).collect(), 0));
}

#[test]
fn messages_of_several_channels_are_sent_in_their_order() {
    let (outbox, there) = outbox(|_| {});
    let channels = [1, 2].map(|writer| announce(&outbox, writer));
    for channel in channels {
        outbox.answered(channel, &Answer::Accept(1));
    }
    let of = [0, 0, 1, 0, 1, 1].map(|index: usize| channels[index]);
    let messages: Vec<_> =
        (1..).zip(of).map(|(sequence, channel)| (Envelope::data(channel, sequence, 0), &b"any"[..])).collect();
    let (turn, mut sent) = (Turn::AtOnce(Instant::now()), Sent::default());
    assert!(outbox.send_all(&messages[..], messages.len(), turn, &mut sent, |_| {}).is_ok());
    assert_eq!((sent.peers, sent.dropped), (6, 0));
    assert_eq!(read(&there, 6), ((1..=6).collect(), 0));
}

#[test]
fn messages_that_leave_together_are_written_at_once() {
    let (outbox, mut there) = outbox(|_| {});
    let channels = [1, 2, 3].map(|writer| announce(&outbox, writer));
    for channel in channels {
        outbox.answered(channel, &Answer::Accept(1));
    }
    there.set_nonblocking(true).expect("set");
    let mut buffer = [0; 4096];
    while there.read(&mut buffer).is_ok() {}
    for channel in channels {
        let (mut payload, mut sent) = (Payload::Bytes(&[7; 100]), Sent::default());
        let done = outbox.send(&Envelope::data(channel, 1, 0), &mut payload, Turn::Together, &mut sent);
        assert_eq!((done, sent.peers, sent.subscribers), (Ok(None), 1, 1));
    }
    assert!(there.read(&mut buffer).is_err_and(|error| is_full(&error)), "they wait for each other");
    outbox.leave();
    let count = there.read(&mut buffer).expect("they have left");
    assert!((300..400).contains(&count), "{count} bytes at once");
    outbox.leave();
    assert!(there.read(&mut buffer).is_err_and(|error| is_full(&error)));
}

#[test]
fn a_publisher_writes_again_when_much_waits() {
    let (outbox, mut there) = outbox(|options| options.write_bytes = 4096);
    let channel = announce(&outbox, 1);
    outbox.answered(channel, &Answer::Accept(1));
    let mut numbers = 1..;
    let mut next = || send(&outbox, channel, numbers.next().expect("endless"), 1000);
    while !outbox.lock().full {
        assert_eq!(next(), Ok(Outcome::Sent(1)));
    }
    // No flusher runs.
    there.set_nonblocking(true).expect("a socket");
    let mut read = || std::iter::from_fn(|| there.read(&mut [0; 4096]).ok()).sum::<usize>();
    assert!(read() > 0);
    (0..3).for_each(|_| assert_eq!(next(), Ok(Outcome::Sent(1))));
    assert_eq!(read(), 0, "not for each message");
    (0..3).for_each(|_| assert_eq!(next(), Ok(Outcome::Sent(1))));
    assert!(read() > 4096 && !outbox.lock().full);
}
