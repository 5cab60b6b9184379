//! The keyboard and the screen while something is shown live.

use std::{
    io::{self, Read as _},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use rustix::termios::tcgetwinsize;

use crate::terminal;

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Enter,
    Backspace,
    Escape,
}

/// Reads keys without waiting for Enter. When it is dropped, and when a signal ends the process,
/// the terminal is as it was.
pub struct Keys(Receiver<Key>);

impl Keys {
    /// Takes the terminal over.
    pub fn open() -> anyhow::Result<Keys> {
        terminal::take_screen()?;
        let (send, keys) = mpsc::channel();
        let read = move || {
            let mut bytes = io::stdin().lock().bytes();
            while let Some(Ok(byte)) = bytes.next() {
                if key(byte).is_some_and(|key| send.send(key).is_err()) {
                    return;
                }
            }
        };
        // It ends with the process: nothing else ends a wait for a key.
        thread::Builder::new().name("keys".into()).spawn(read)?;
        Ok(Keys(keys))
    }

    /// The next key within `timeout`.
    pub fn next(&self, timeout: Duration) -> Option<Key> {
        match self.0.recv_timeout(timeout) {
            Ok(key) => Some(key),
            Err(mpsc::RecvTimeoutError::Timeout) => None,
            // Nobody can press a key any more.
            Err(mpsc::RecvTimeoutError::Disconnected) => Some(Key::Char('q')),
        }
    }

    /// Lines and columns of the screen.
    pub fn size(&self) -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row.into(), size.ws_col.into()),
            _ => (24, 80),
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        terminal::give_screen_back();
    }
}

/// The key of a byte. Keys of several bytes, such as arrows, begin like Escape.
fn key(byte: u8) -> Option<Key> {
    match byte {
        b'\r' | b'\n' => Some(Key::Enter),
        8 | 127 => Some(Key::Backspace),
        27 => Some(Key::Escape),
        b' '..=b'~' => Some(Key::Char(byte.into())),
        _ => None,
    }
}
