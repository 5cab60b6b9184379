//! The keyboard and the screen during the live display.

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

/// Reads keys without waiting for Enter. When this is dropped, or when a signal ends the process,
/// the terminal's settings are restored.
pub struct Keys(Receiver<Key>);

impl Keys {
    /// Takes control of the terminal.
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
        // The thread ends with the process, because nothing else interrupts the read.
        thread::Builder::new().name("keys".into()).spawn(read)?;
        Ok(Keys(keys))
    }

    /// Returns the next key within `timeout`.
    pub fn next(&self, timeout: Duration) -> Option<Key> {
        match self.0.recv_timeout(timeout) {
            Ok(key) => Some(key),
            Err(mpsc::RecvTimeoutError::Timeout) => None,
            // The input has ended.
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

/// Returns the key of a byte. Keys of several bytes, such as arrows, begin with the byte of Escape.
fn key(byte: u8) -> Option<Key> {
    match byte {
        b'\r' | b'\n' => Some(Key::Enter),
        8 | 127 => Some(Key::Backspace),
        27 => Some(Key::Escape),
        b' '..=b'~' => Some(Key::Char(byte.into())),
        _ => None,
    }
}
