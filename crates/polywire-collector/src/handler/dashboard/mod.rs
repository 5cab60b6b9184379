//! The kind `dashboard`: a page for browsers that shows the system while it runs, and changes it.
//!
//! The page is in `page/` and compiled in. It gets samples by the protocol of [`foxglove`], from
//! the same server, and beside them what `system` knows of nodes, and replies to commands, which
//! `control` sends to nodes.
//!
//! [`foxglove`]: super::foxglove

mod control;
mod files;
mod system;

use std::{
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use polywire::Node;

use self::{control::Control, system::Watch};
use super::{
    Handler, Kind,
    foxglove::{Extension, Live, Reply},
};
use crate::{Entry, Expects, HandlerError, Setting, Settings};

/// How often the picture of the system is made anew.
const EVERY: Duration = Duration::from_secs(1);

pub(super) static KIND: Kind = Kind {
    name: "dashboard",
    summary: "A page for browsers: the system, live plots, alerts, and commands to probes",
    settings: &[
        Setting {
            name: "serve",
            expects: Expects::Required,
            summary: "address of this machine to listen at, such as 127.0.0.1:8080",
        },
        Setting {
            name: "control",
            expects: Expects::Text,
            summary: "file for the address of the page with a secret, which allows commands; without it there are none",
        },
    ],
    open: |settings, node| Ok(Box::new(Dashboard::open(settings, node)?)),
};

struct Dashboard {
    live: Live,
    /// Dropping it ends the thread.
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The pages and the commands of a server.
struct Pages {
    control: Option<Control>,
}

impl Dashboard {
    fn open(settings: &Settings, node: &Node) -> Result<Dashboard, HandlerError> {
        let failed = |what: &str, cause: std::io::Error| HandlerError::Failed(format!("{what}: {cause}"));
        let mut watch = Watch::new(node.clone());
        let file = settings.text("control");
        if let Some(file) = file {
            // The address of the last time is no longer right, whatever happens from here on.
            control::remove(file.as_ref()).map_err(|cause| failed(file, cause))?;
        }
        let control = file.map(|_| Control::new(node.clone(), watch.known())).transpose();
        let control = control.map_err(|cause| failed("no secret", cause))?;
        let secret = control.as_ref().map(|control| control.secret().to_owned());
        let live = Live::open(settings, node, Some(Arc::new(Pages { control })))?;
        let address = live.address();
        if let (Some(file), Some(secret)) = (file, secret) {
            let text = format!("http://{address}/#{secret}\n");
            control::write_private(file.as_ref(), &text).map_err(|cause| failed(file, cause))?;
        }
        log::info!("dashboard: http://{address}/");
        let (end, ended) = mpsc::channel();
        let screen = live.screen();
        let run = move || {
            while ended.recv_timeout(EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                watch.poll();
                screen.show(watch.picture());
            }
        };
        let thread = thread::Builder::new().name("dashboard".into()).spawn(run);
        let thread = thread.map_err(|cause| failed("no thread", cause))?;
        Ok(Dashboard { live, end: Some(end), thread: Some(thread) })
    }
}

impl Handler for Dashboard {
    fn write(&mut self, entry: &Entry) -> Result<(), HandlerError> {
        self.live.write(entry)
    }

    /// Nothing is kept.
    fn sync(&mut self) -> Result<(), HandlerError> {
        Ok(())
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Extension for Pages {
    fn respond(&self, head: &str) -> Vec<u8> {
        files::respond(head)
    }

    fn ask(&self, text: &str, reply: Reply) -> Result<(), String> {
        match &self.control {
            Some(control) => control.ask(text, reply),
            None => Err("this page is read-only: the handler has no 'control'".into()),
        }
    }
}
