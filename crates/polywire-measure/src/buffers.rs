//! Buffer sizes of both ends of a connection: parses the axis `buffers` of scenarios, and makes the
//! configuration of a node from it.

use std::{str::FromStr, time::Duration};

use polywire::{
    Config,
    engine::{EngineOptions, Overflow},
};

/// Buffer sizes of one end, in bytes. `None` keeps the default size.
///
/// ```
/// use polywire_measure::buffers::{Buffers, Side};
///
/// let buffers: Buffers = "512/4K/8K 512/8K/16K".parse()?;
/// assert_eq!(buffers.sender, Side { transmit: Some(512), send: Some(4096), receive: Some(8192) });
/// assert_eq!("-/8K/-".parse::<Buffers>()?.receiver.send, Some(8192), "one is for both ends");
/// assert_eq!("default".parse::<Buffers>()?, Buffers::default());
/// assert!("8K/8K".parse::<Buffers>().is_err() && "0/-/-".parse::<Buffers>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// Bytes that wait in the process (TRM_BUF): the limit of the engine's queue and of the bytes
    /// gathered for one write.
    pub transmit: Option<usize>,
    /// The socket's send buffer (SSB).
    pub send: Option<usize>,
    /// The socket's receive buffer (RSB).
    pub receive: Option<usize>,
}

/// Buffer sizes of both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffers {
    /// The publisher.
    pub sender: Side,
    /// The subscriber, which also sends the message back.
    pub receiver: Side,
}

/// Parses `default`, `PROCESS/SEND/RECEIVE` for both ends, or one such group for each end.
impl FromStr for Buffers {
    type Err = String;

    fn from_str(text: &str) -> Result<Buffers, String> {
        if text == "default" {
            return Ok(Buffers::default());
        }
        match text.split(' ').collect::<Vec<_>>().as_slice() {
            [both] => side(both).map(|side| Buffers { sender: side, receiver: side }),
            [sender, receiver] => Ok(Buffers { sender: side(sender)?, receiver: side(receiver)? }),
            _ => Err(format!("buffers '{text}': default, PROCESS/SEND/RECEIVE, or two of these is expected")),
        }
    }
}

impl Side {
    /// A node's configuration with these buffers. If any size is set, a publisher blocks while
    /// the queue is full, with a patience of 30 s: small buffers make TCP pause for seconds, and no
    /// message may be dropped.
    pub fn config(&self) -> Config {
        let mut config = Config::default();
        let options: &mut EngineOptions = &mut config.engine;
        if let Some(bytes) = self.transmit {
            options.queue_bytes = bytes;
            options.write_bytes = options.write_bytes.min(bytes);
        }
        if *self != Side::default() {
            options.overflow = Overflow::Block { patience: Duration::from_secs(30) };
        }
        (options.send_buffer, options.receive_buffer) = (self.send, self.receive);
        config
    }

    /// Bytes that may wait on the sending side; `None` unless both sizes are set.
    pub fn outgoing(&self) -> Option<usize> {
        Some(self.transmit? + self.send?)
    }
}

fn side(text: &str) -> Result<Side, String> {
    match text.split('/').collect::<Vec<_>>().as_slice() {
        [transmit, send, receive] => Ok(Side { transmit: size(transmit)?, send: size(send)?, receive: size(receive)? }),
        _ => Err(format!("buffers '{text}': PROCESS/SEND/RECEIVE is expected, as 64K/8K/-")),
    }
}

fn size(text: &str) -> Result<Option<usize>, String> {
    if text == "-" {
        return Ok(None);
    }
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let bytes = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(unit)).filter(|bytes| *bytes > 0);
    bytes.map(Some).ok_or_else(|| format!("'{text}' is no number of bytes, as 512, 64K, 1M or -"))
}
