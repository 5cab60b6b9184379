//! The kind `foxglove`: live messages for Foxglove and for browsers, over WebSocket.
//!
//! The protocol is that of Foxglove: each topic and type is a channel, with a format and a schema
//! (`coding`), and clients subscribe to channels. `client` has a thread for each client, and only
//! this thread uses the client's socket. A slow client delays nothing: messages that do not fit its
//! queue are dropped.

mod client;
mod handshake;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use polywire::{Kind as Message, Node};
use serde_json::{Value, json};

use self::handshake::Admission;
pub(super) use self::handshake::is_this_machine;
use super::{
    Handler, Kind,
    coding::{Coding, FORMAT, Format},
};
use crate::{ALERTS, Entry, Expects, HandlerError, JsonText, Setting, Settings, json::PerType};

/// The maximum number of clients at a time.
const MAX_CLIENTS: usize = 32;

/// The maximum number of channels: pairs of topic and type.
const MAX_CHANNELS: usize = 4096;

/// The number of past alerts that a new client receives.
const MAX_ALERTS: usize = 100;

/// The maximum size of the messages that wait for a client in bytes. Beyond it, the oldest are
/// dropped.
const MAX_WAITING: usize = 16 << 20;

/// How long the end of a server waits for its listener thread to notice.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) static KIND: Kind = Kind {
    name: "foxglove",
    summary: "Live messages by WebSocket, for Foxglove and browsers",
    settings: &[
        Setting {
            name: "serve",
            expects: Expects::Required,
            summary: "address of this machine to listen at, such as 127.0.0.1:8765",
        },
        FORMAT,
        Setting {
            name: "origins",
            expects: Expects::Text,
            summary: "web sites whose pages may connect, beside those of this machine, such as https://app.foxglove.dev",
        },
    ],
    open: |settings, context| Ok(Box::new(Live::open(settings, context.node(), None)?)),
};

/// The parts of a server outside the Foxglove protocol.
pub(super) trait Extension: Send + Sync {
    /// Returns the response to a request that does not ask for the protocol, given its head.
    fn respond(&self, head: &str) -> Vec<u8>;

    /// Executes a client's request that the protocol does not define. The error is a text for its
    /// user.
    fn ask(&self, text: &str, reply: Reply) -> Result<(), String>;
}

/// Sends one text to a client.
pub(super) type Reply = Box<dyn FnOnce(String) + Send>;

/// A server and its channels.
pub(super) struct Live {
    hub: Arc<Hub>,
    address: SocketAddr,
    listener: Option<JoinHandle<()>>,
    format: Format,
    /// The coding of each type, and its channels by topic.
    types: PerType<(Coding, HashMap<String, u32>)>,
    json: JsonText,
    /// The buffer for the message that is encoded.
    bytes: Vec<u8>,
}

/// Sends the same text to all clients of a server.
#[derive(Clone)]
pub(super) struct Screen(Arc<Hub>);

/// The state that the handler shares with the threads of its clients.
#[derive(Default)]
struct Hub {
    /// The first text that each client receives.
    greeting: String,
    admission: Admission,
    extension: Option<Arc<dyn Extension>>,
    state: Mutex<State>,
    ends: AtomicBool,
}

#[derive(Default)]
struct State {
    /// The descriptions of the channels for clients, in the order of their numbers from 1.
    channels: Vec<Value>,
    clients: Vec<Arc<Client>>,
    /// The latest alerts: channel, time and message.
    alerts: VecDeque<(u32, u64, Vec<u8>)>,
    /// The text that [`Screen::show`] sent last.
    shown: String,
    /// The number of clients that were disconnected because they did not read.
    stalled: u64,
}

/// The texts and messages that wait for a client.
#[derive(Default)]
struct Client {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// Texts about channels.
    texts: Vec<String>,
    /// The text of [`Screen::show`]; a newer one replaces it.
    shown: Option<String>,
    messages: VecDeque<Vec<u8>>,
    bytes: usize,
    /// The number of messages that were dropped since this was last reported to the client.
    lost: u64,
    /// The client's subscription number for each channel.
    subscriptions: BTreeMap<u32, u32>,
}

impl Live {
    pub fn open(settings: &Settings, node: &Node, extension: Option<Arc<dyn Extension>>) -> Result<Live, HandlerError> {
        let address = settings.text("serve").unwrap_or_default();
        let address: SocketAddr = address.parse().map_err(|_| {
            HandlerError::Setting(format!("'serve': an address such as 127.0.0.1:8765 is expected, not '{address}'"))
        })?;
        if !address.ip().is_loopback() {
            let reason = "other machines could reach it; use an address such as 127.0.0.1:8765";
            return Err(HandlerError::Setting(format!("'serve': {reason}")));
        }
        let format = Format::of(settings)?;
        let failed = |cause: io::Error| HandlerError::Failed(format!("{address}: {cause}"));
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let greeting = json!({
            "op": "serverInfo", "name": node.name(), "capabilities": [], "supportedEncodings": ["json"],
            "sessionId": node.hello().node.to_string(),
        });
        let hub = Arc::new(Hub {
            greeting: greeting.to_string(),
            admission: Admission::of(settings.text("origins").unwrap_or_default(), extension.is_some()),
            extension,
            state: Mutex::default(),
            ends: AtomicBool::new(false),
        });
        let shared = hub.clone();
        let listen = move || shared.listen(&listener);
        let thread = thread::Builder::new().name("foxglove".into()).spawn(listen).map_err(failed)?;
        Ok(Live {
            hub,
            address,
            listener: Some(thread),
            format,
            types: PerType::default(),
            json: JsonText::default(),
            bytes: Vec::new(),
        })
    }

    /// Returns the address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the handle that sends a text to all clients.
    pub fn screen(&self) -> Screen {
        Screen(self.hub.clone())
    }
}

impl Handler for Live {
    fn write(&mut self, entry: &Entry) -> Result<(), HandlerError> {
        if entry.kind != Message::Data {
            return Err(HandlerError::Refused("ends of instances are not shown".into()));
        }
        let Live { hub, types, json, bytes, format, .. } = self;
        let shape = entry.value.shape();
        let begin = || Ok::<_, HandlerError>((Coding::of(*format, shape), HashMap::new()));
        let (coding, channels) = types.get(shape, begin)?;
        let channel = match channels.get(entry.topic()) {
            Some(channel) => *channel,
            None => {
                let channel = hub.advertise(entry.topic(), coding)?;
                channels.insert(entry.topic().to_owned(), channel);
                channel
            }
        };
        let time = u64::try_from(entry.timestamp_ns).unwrap_or(0);
        let is_alert = entry.topic() == ALERTS;
        let mut wanting = if is_alert { Vec::new() } else { hub.wanting(channel) };
        if !is_alert && wanting.is_empty() {
            return Ok(());
        }
        coding.encode(entry, json, bytes)?;
        if is_alert {
            wanting = hub.remember(channel, time, bytes);
        }
        wanting.iter().for_each(|(client, subscription)| client.push(message(*subscription, time, bytes)));
        Ok(())
    }

    /// Has no effect, because nothing is stored.
    fn sync(&mut self) -> Result<(), HandlerError> {
        Ok(())
    }
}

impl Screen {
    /// Sends a text to all clients. It replaces the previous one.
    pub fn show(&self, text: String) {
        let mut state = self.0.lock();
        state.clients.iter().for_each(|client| client.lock().shown = Some(text.clone()));
        state.shown = text;
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.hub.ends.store(true, Ordering::Release);
        // Wakes the listener thread.
        let woken = TcpStream::connect_timeout(&self.address, PATIENCE).is_ok();
        if let Some(thread) = self.listener.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

/// Encodes a message of the protocol.
fn message(subscription: u32, time_ns: u64, payload: &[u8]) -> Vec<u8> {
    const MESSAGE_DATA: u8 = 1;
    let mut bytes = Vec::with_capacity(13 + payload.len());
    bytes.push(MESSAGE_DATA);
    bytes.extend_from_slice(&subscription.to_le_bytes());
    bytes.extend_from_slice(&time_ns.to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

impl Hub {
    fn listen(self: Arc<Hub>, listener: &TcpListener) {
        for stream in listener.incoming() {
            if self.ends() {
                return;
            }
            // A client that disconnects at once is ignored.
            let Ok(stream) = stream else { continue };
            if self.lock().clients.len() >= MAX_CLIENTS {
                log::warn!("foxglove: there are {MAX_CLIENTS} clients; another one is turned away");
                continue;
            }
            let (hub, client) = (self.clone(), Arc::new(Client::default()));
            self.lock().clients.push(client.clone());
            let run = move || {
                client::run(stream, &client, &hub);
                hub.lock().clients.retain(|other| !Arc::ptr_eq(other, &client));
            };
            if let Err(error) = thread::Builder::new().name("foxglove client".into()).spawn(run) {
                log::error!("foxglove: a client has no thread: {error}");
                self.lock().clients.pop();
            }
        }
    }

    /// Returns the channel for a topic and its type. A new channel is announced to all clients.
    fn advertise(&self, topic: &str, coding: &Coding) -> Result<u32, HandlerError> {
        let mut state = self.lock();
        // Types are compared by content, because each writer's type is a separate object in memory.
        let is_same = |channel: &Value| {
            channel["topic"] == topic && channel["schemaName"] == coding.type_name && channel["schema"] == coding.schema
        };
        if let Some(at) = state.channels.iter().position(is_same) {
            return Ok(number_of(at));
        }
        if state.channels.len() >= MAX_CHANNELS {
            return Err(HandlerError::Refused(format!("there are {MAX_CHANNELS} topics already")));
        }
        let channel = number_of(state.channels.len());
        let described = json!({
            "id": channel, "topic": topic, "encoding": coding.message_encoding, "schemaName": coding.type_name,
            "schema": coding.schema, "schemaEncoding": coding.schema_encoding,
        });
        let text = advertisement(std::slice::from_ref(&described));
        state.channels.push(described);
        state.clients.iter().for_each(|client| client.lock().texts.push(text.clone()));
        Ok(channel)
    }

    /// Returns the clients that have subscribed to a channel, with their subscription numbers.
    fn wanting(&self, channel: u32) -> Vec<(Arc<Client>, u32)> {
        self.lock().wanting(channel)
    }

    /// Stores an alert for clients that subscribe later. Returns the clients that have subscribed.
    fn remember(&self, channel: u32, time_ns: u64, bytes: &[u8]) -> Vec<(Arc<Client>, u32)> {
        let mut state = self.lock();
        state.alerts.truncate(MAX_ALERTS - 1);
        state.alerts.push_front((channel, time_ns, bytes.to_owned()));
        state.wanting(channel)
    }

    /// Subscribes a client to a channel, and sends it the stored alerts, the oldest first.
    fn subscribe(&self, client: &Client, channel: u32, id: u32) -> Result<(), String> {
        // The lock ensures that a concurrent alert is either stored already, or is sent to this
        // client.
        let state = self.lock();
        client.subscribe(channel, id)?;
        let of_channel = state.alerts.iter().rev().filter(|(of, ..)| *of == channel);
        of_channel.for_each(|(_, time, bytes)| client.push(message(id, *time, bytes)));
        Ok(())
    }

    /// Sends the greeting, the channels and the current text to a new client.
    fn greet(&self, client: &Client) {
        let state = self.lock();
        let mut waiting = client.lock();
        // The list contains the channels that were announced before this greeting.
        waiting.texts = vec![self.greeting.clone(), advertisement(&state.channels)];
        waiting.shown = Some(state.shown.clone()).filter(|shown| !shown.is_empty());
    }

    fn count_stalled(&self) -> u64 {
        let mut state = self.lock();
        state.stalled += 1;
        state.stalled
    }

    fn ends(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn wanting(&self, channel: u32) -> Vec<(Arc<Client>, u32)> {
        let subscription = |client: &Arc<Client>| Some((client.clone(), *client.lock().subscriptions.get(&channel)?));
        self.clients.iter().filter_map(subscription).collect()
    }
}

/// Returns the number of the channel at this index.
fn number_of(place: usize) -> u32 {
    u32::try_from(place + 1).unwrap_or(u32::MAX)
}

fn advertisement(channels: &[Value]) -> String {
    json!({ "op": "advertise", "channels": channels }).to_string()
}

impl Client {
    fn subscribe(&self, channel: u32, id: u32) -> Result<(), String> {
        let subscribed = &mut self.lock().subscriptions;
        if subscribed.contains_key(&channel) || subscribed.values().any(|other| *other == id) {
            return Err(format!("channel {channel} or subscription {id} is there already"));
        }
        subscribed.insert(channel, id);
        Ok(())
    }

    /// Queues a message. If the client is too slow, the oldest messages are dropped.
    fn push(&self, message: Vec<u8>) {
        let mut waiting = self.lock();
        waiting.bytes += message.len();
        waiting.messages.push_back(message);
        while waiting.bytes > MAX_WAITING && waiting.messages.len() > 1 {
            let oldest = waiting.messages.pop_front().map_or(0, |oldest| oldest.len());
            waiting.bytes -= oldest;
            waiting.lost += 1;
        }
    }

    /// Takes the texts and messages that are to be sent now.
    fn take(&self) -> (Vec<String>, VecDeque<Vec<u8>>) {
        let mut waiting = self.lock();
        waiting.bytes = 0;
        let mut texts = std::mem::take(&mut waiting.texts);
        texts.extend(waiting.shown.take());
        let lost = std::mem::take(&mut waiting.lost);
        if lost > 0 {
            texts.push(status(1, &format!("{lost} messages were left out, because this client is too slow")));
        }
        (texts, std::mem::take(&mut waiting.messages))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }
}

/// Makes a text for the user of a client; level 1 is a warning, 2 an error.
fn status(level: u8, text: &str) -> String {
    json!({ "op": "status", "level": level, "message": text }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_is_too_slow_loses_the_oldest_messages() {
        let client = Client::default();
        for number in 0..4 {
            client.push(message(1, number, &vec![0; MAX_WAITING / 2 - 100]));
        }
        let (texts, messages) = client.take();
        assert_eq!((messages.len(), messages[0][5], messages[1][5]), (2, 2, 3));
        assert!(texts[0].contains("2 messages were left out"), "{texts:?}");
        client.push(message(1, 9, &vec![0; MAX_WAITING * 2]));
        assert_eq!(client.take().1.len(), 1, "a large one passes alone");
        assert!(client.take().0.is_empty());
    }

    #[test]
    fn messages_have_the_bytes_of_the_protocol() {
        assert_eq!(message(0x0102, 3, b"{}"), [1, 2, 1, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, b'{', b'}']);
    }
}
