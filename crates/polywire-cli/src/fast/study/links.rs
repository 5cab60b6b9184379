//! Publishes the messages of a recording over emulated lossy links, from one node to another in
//! real time. Each link carries four topics with different wires.

use std::{
    env, fs,
    path::PathBuf,
    process,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use indicatif::ProgressBar;
use parking_lot::Mutex;
use polywire::{
    DynPublisher, Node, Record, Subscription,
    coding::{Bytes, Dynamic},
};
use polywire_link::Emulated;
use serde::Serialize;

use super::NamedLink;
use crate::fast::Feed;

/// The emulated network. Its seed decides which packets are lost.
static NETWORK: Emulated = Emulated::new(1);

/// How long the subscribers may take to connect, and the link to deliver all messages.
const PATIENCE: Duration = Duration::from_secs(60);

/// Figures of a topic on a link.
#[derive(Debug, Serialize)]
pub struct LinkFigures {
    pub link: String,
    pub wire: &'static str,
    pub sent: usize,
    /// Average size of a message, without its envelope.
    pub bytes: f64,
    pub delivered: usize,
    /// Messages that arrived but could not be decoded, because one that they refer to is missing.
    pub undecodable: u64,
    /// Messages whose value is not the one that was published with their sequence number.
    pub wrong: usize,
}

/// The state that all links share.
pub struct Links {
    templates: Templates,
    /// Further options in the wires of FAST.
    options: String,
    messages: Arc<Vec<Record>>,
    gap: Duration,
}

impl Links {
    /// Prepares to send these messages, `rate` per second, with a key frame at least every
    /// `key_interval` messages.
    pub fn new(feed: &Feed, messages: Vec<Record>, key_interval: u64, rate: u32) -> anyhow::Result<Links> {
        let (templates, options) = (Templates::new(feed)?, format!("key_interval={key_interval},{}", feed.options()));
        let gap = Duration::from_secs(1) / rate;
        Ok(Links { templates, options, messages: Arc::new(messages), gap })
    }

    /// Returns the number of messages that each topic of a link carries.
    pub fn messages(&self) -> usize {
        self.messages.len()
    }

    /// Publishes each message on all topics in turn, from one node to another over this link.
    pub fn over(&self, link: &NamedLink, bar: &ProgressBar) -> anyhow::Result<Vec<LinkFigures>> {
        let node = || Node::builder().engine(&NETWORK).build();
        let (from, to) = (node(), node());
        let topics = self.topics(&from, &to, &format!("emulated/study {}", link.name))?;
        self.publish(&topics, bar)?;
        ensure!(from.flush(PATIENCE), "the link '{}' has not delivered everything within a minute", link.name);
        Ok(topics.iter().map(|topic| topic.figures(link)).collect())
    }

    fn topics(&self, from: &Node, to: &Node, endpoint: &str) -> anyhow::Result<Vec<Topic>> {
        let fast = |mode| format!("fast:template={},mode={mode},{}", self.templates.0.display(), self.options);
        let wires = [
            ("fast:mode=chained", fast("chained")),
            ("fast:mode=anchored", fast("anchored")),
            ("cdr", "cdr".into()),
            ("json", "json".into()),
        ];
        let open =
            |(name, wire): (_, String)| Topic::open(name, &format!("{wire}@{endpoint}"), [from, to], &self.messages);
        wires.into_iter().map(open).collect()
    }

    fn publish(&self, topics: &[Topic], bar: &ProgressBar) -> anyhow::Result<()> {
        let mut due = Instant::now();
        for message in self.messages.iter() {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            for topic in topics {
                topic.publisher.publish(message).with_context(|| format!("topic '{}'", topic.name))?;
            }
            bar.inc(1);
            due += self.gap;
        }
        Ok(())
    }
}

/// A topic: its publisher at one node, its subscriber at the other, and the counts of both.
struct Topic {
    name: &'static str,
    publisher: DynPublisher,
    sent: Arc<Sent>,
    received: Arc<Mutex<Received>>,
    subscription: Subscription,
    _beside: Subscription,
}

impl Topic {
    fn open(
        name: &'static str,
        wire: &str,
        [from, to]: [&Node; 2],
        messages: &Arc<Vec<Record>>,
    ) -> anyhow::Result<Topic> {
        let shape = messages.first().context("there are messages")?.shape();
        let coding = || Dynamic::from(shape.clone());
        let (received, sent) = (Arc::new(Mutex::new(Received::new(messages))), Arc::new(Sent::default()));
        let (taking, counting) = (received.clone(), sent.clone());
        let subscription = to
            .subscribe_of(name, Some(wire), coding())?
            .on_message_inline(move |record, info| taking.lock().take(info.sequence, record));
        // A second subscriber, on the publisher's node, counts what is published.
        let _beside = from
            .subscribe_of(name, Some(wire), Bytes::default())?
            .on_message_inline(move |_, info| counting.count(info.bytes));
        let publisher = from.publisher_of(name, Some(wire), coding())?;
        let there = publisher.wait_for_subscribers(2, PATIENCE);
        ensure!(there == 2, "topic '{name}': {there} of 2 subscribers can read it");
        Ok(Topic { name, publisher, sent, received, subscription, _beside })
    }

    fn figures(&self, link: &NamedLink) -> LinkFigures {
        let (sent, bytes) = self.sent.total();
        let Received { delivered, wrong, .. } = *self.received.lock();
        let undecodable = self.subscription.undecodable();
        let bytes = bytes as f64 / sent.max(1) as f64;
        LinkFigures { link: link.name.clone(), wire: self.name, sent, bytes, delivered, undecodable, wrong }
    }
}

/// Counts of published messages and their bytes.
#[derive(Default)]
struct Sent {
    messages: AtomicUsize,
    bytes: AtomicU64,
}

impl Sent {
    fn count(&self, bytes: usize) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn total(&self) -> (usize, u64) {
        (self.messages.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// Counts of received messages, which are compared with the published ones.
struct Received {
    messages: Arc<Vec<Record>>,
    /// For each message, whether it has arrived. A duplicate counts only once.
    came: Vec<bool>,
    delivered: usize,
    wrong: usize,
}

impl Received {
    fn new(messages: &Arc<Vec<Record>>) -> Received {
        Received { messages: messages.clone(), came: vec![false; messages.len()], delivered: 0, wrong: 0 }
    }

    /// Compares a message with the published one. Sequence numbers begin at 1.
    fn take(&mut self, sequence: u64, record: &Record) {
        let at = usize::try_from(sequence).ok().and_then(|sequence| sequence.checked_sub(1));
        let published = at.and_then(|at| self.messages.get(at).zip(self.came.get_mut(at)));
        match published {
            Some((published, came)) if published == record => {
                self.delivered += usize::from(!std::mem::replace(came, true));
            }
            _ => self.wrong += 1,
        }
    }
}

/// A temporary file with the templates. The templates have the changes of the command line, and the
/// file's name has no character with a meaning in a wire.
struct Templates(PathBuf);

impl Templates {
    fn new(feed: &Feed) -> anyhow::Result<Templates> {
        let path = env::temp_dir().join(format!("polywire-study-{}.xml", process::id()));
        fs::write(&path, feed.templates()?.to_xml()).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Templates(path))
    }
}

impl Drop for Templates {
    fn drop(&mut self) {
        // If this fails, the file stays in the folder for temporary files.
        let _ = fs::remove_file(&self.0);
    }
}
