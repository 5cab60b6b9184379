//! The thread of a client: sends waiting messages, and handles the client's requests.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use serde::Deserialize;
use tungstenite::{
    Error, Message, WebSocket,
    handshake::server::{Request, Response},
    protocol::WebSocketConfig,
};

use super::{Client, Extension, Hub, MAX_CHANNELS, status};

/// The time limit for a client to open a connection, and to read messages.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long the thread waits for requests before it sends waiting messages.
const TURN: Duration = Duration::from_millis(20);

/// The maximum size of the head of a request for a page in bytes.
const MAX_HEAD: usize = 8 << 10;

/// The maximum size of a request in bytes.
const MAX_REQUEST: usize = 1 << 20;

/// A request of a client, with the parts that concern this server.
#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "camelCase")]
enum Asked {
    Subscribe {
        subscriptions: Vec<Subscription>,
    },
    #[serde(rename_all = "camelCase")]
    Unsubscribe {
        subscription_ids: Vec<u32>,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Subscription {
    id: u32,
    channel_id: u32,
}

/// Serves a client until it disconnects or stops reading, or until the server ends.
pub(super) fn run(stream: TcpStream, client: &Arc<Client>, hub: &Hub) {
    let Some(mut socket) = open(stream, hub) else { return };
    hub.greet(client);
    match serve(&mut socket, client, hub) {
        Err(Error::Io(error)) if is_timeout(&error) => {
            log::warn!("foxglove: a client does not read and is dropped, {} until now", hub.count_stalled());
        }
        Err(error) => log::debug!("foxglove: a client has gone: {error}"),
        Ok(()) => {
            let _ = socket.close(None).and_then(|()| socket.flush());
        }
    }
}

fn open(stream: TcpStream, hub: &Hub) -> Option<WebSocket<TcpStream>> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    stream.set_nodelay(true).ok()?;
    if let Some(extension) = &hub.extension
        && !is_for_protocol(&stream)?
    {
        respond(stream, &**extension).ok();
        return None;
    }
    let config = WebSocketConfig::default()
        .read_buffer_size(16 << 10)
        .max_message_size(Some(MAX_REQUEST))
        .max_frame_size(Some(MAX_REQUEST));
    #[expect(clippy::result_large_err, reason = "the library has these types")]
    let answer = |request: &Request, response: Response| hub.admission.answer(request, response);
    let opened = tungstenite::accept_hdr_with_config(stream, answer, Some(config));
    let socket = opened.inspect_err(|error| log::debug!("foxglove: no connection: {error}")).ok()?;
    socket.get_ref().set_read_timeout(Some(TURN)).ok()?;
    Some(socket)
}

/// Returns whether a request asks for the WebSocket protocol. Peeks at its head without consuming
/// it. `None` if no complete head arrives.
fn is_for_protocol(stream: &TcpStream) -> Option<bool> {
    let (mut head, until) = (vec![0; MAX_HEAD], Instant::now() + PATIENCE);
    let mut seen = 0;
    while Instant::now() < until {
        let count = stream.peek(&mut head).ok().filter(|count| *count > 0)?;
        let text = String::from_utf8_lossy(&head[..count]).to_ascii_lowercase();
        if text.contains("\r\n\r\n") {
            return Some(text.lines().any(|line| line.starts_with("upgrade:") && line.contains("websocket")));
        }
        if count == MAX_HEAD {
            return None;
        }
        if count == seen {
            thread::sleep(Duration::from_millis(5));
        }
        seen = count;
    }
    None
}

fn respond(mut stream: TcpStream, extension: &dyn Extension) -> io::Result<()> {
    let mut head = vec![0; MAX_HEAD];
    let count = stream.read(&mut head)?;
    stream.write_all(&extension.respond(&String::from_utf8_lossy(&head[..count])))
}

/// Returns `Ok` if the client closes the connection or the server ends.
fn serve(socket: &mut WebSocket<TcpStream>, client: &Arc<Client>, hub: &Hub) -> Result<(), Error> {
    while !hub.ends() {
        let (texts, messages) = client.take();
        for text in texts {
            socket.write(Message::text(text))?;
        }
        for message in messages {
            socket.write(Message::binary(message))?;
        }
        socket.flush()?;
        match socket.read() {
            Ok(Message::Text(text)) => {
                if let Err(problem) = ask(text.as_str(), client, hub) {
                    client.lock().texts.push(status(2, &problem));
                }
            }
            Ok(Message::Close(_)) | Err(Error::ConnectionClosed) => return Ok(()),
            // Clients cannot publish through this server.
            Ok(_) => {}
            Err(Error::Io(error)) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Executes a request of the client. The error is a text for its user.
fn ask(text: &str, client: &Arc<Client>, hub: &Hub) -> Result<(), String> {
    let asked: Asked = match (serde_json::from_str(text), &hub.extension) {
        (Ok(asked), _) => asked,
        (Err(_), Some(extension)) => {
            let client = client.clone();
            return extension.ask(text, Box::new(move |reply| client.lock().texts.push(reply)));
        }
        (Err(error), None) => return Err(format!("this server knows subscribe and unsubscribe: {error}")),
    };
    match asked {
        Asked::Unsubscribe { subscription_ids } => {
            client.lock().subscriptions.retain(|_, id| !subscription_ids.contains(id));
        }
        Asked::Subscribe { subscriptions } => {
            for Subscription { id, channel_id } in subscriptions {
                if !(1..=MAX_CHANNELS).contains(&(channel_id as usize)) {
                    return Err(format!("there is no channel {channel_id}"));
                }
                hub.subscribe(client, channel_id, id)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_subscribe_to_channels() {
        let (client, hub) = (Arc::new(Client::default()), Hub::default());
        let ask = |text: &str, client: &Arc<Client>| ask(text, client, &hub);
        let subscriptions = || client.lock().subscriptions.clone().into_iter().collect::<Vec<_>>();
        let subscribe = |id: u32, channel: u32| {
            ask(&format!(r#"{{"op":"subscribe","subscriptions":[{{"id":{id},"channelId":{channel}}}]}}"#), &client)
        };
        assert_eq!((subscribe(7, 1), subscribe(8, 2)), (Ok(()), Ok(())));
        assert_eq!(subscriptions(), [(1, 7), (2, 8)]);
        assert!(subscribe(9, 1).is_err() && subscribe(7, 3).is_err() && subscribe(9, 0).is_err());
        assert!(subscribe(9, u32::MAX).is_err());
        ask(r#"{"op":"unsubscribe","subscriptionIds":[7,99]}"#, &client).expect("known");
        assert_eq!(subscriptions(), [(2, 8)]);
        for text in
            ["", "{}", "[]", r#"{"op":"advertise","channels":[]}"#, r#"{"op":"subscribe","subscriptions":[{}]}"#]
        {
            assert!(ask(text, &client).is_err(), "{text}");
        }
    }
}
