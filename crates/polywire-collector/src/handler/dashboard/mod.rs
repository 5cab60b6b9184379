//! The kind `dashboard`: a page for browsers that shows the system while it runs, and changes it.
//!
//! The page is in `page/` and compiled in. It receives samples by the protocol of [`foxglove`] from
//! the same server. By the same connection it also receives the state of the nodes from `system`,
//! and replies to commands, which `control` sends to nodes.
//!
//! [`foxglove`]: super::foxglove

mod control;
mod files;
#[cfg(feature = "sqlite")]
mod recorded;
mod system;

use std::{
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use self::{control::Control, files::respond, system::Watch};
use super::{
    Handler, Kind,
    foxglove::{Extension, Live, Reply},
};
use crate::{Entry, Expects, HandlerContext, HandlerError, Setting, Settings};

/// How often the state of the system is sent to the pages.
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
    open: |settings, context| Ok(Box::new(Dashboard::open(settings, context)?)),
};

struct Dashboard {
    live: Live,
    /// Dropping the sender ends the thread.
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The pages and the commands of a server.
struct Pages {
    control: Option<Control>,
    #[cfg(feature = "sqlite")]
    recorded: recorded::Recorded,
}

impl Dashboard {
    fn open(settings: &Settings, context: &HandlerContext) -> Result<Dashboard, HandlerError> {
        let node = context.node();
        let failed = |what: &str, cause: std::io::Error| HandlerError::Failed(format!("{what}: {cause}"));
        let mut watch = Watch::new(context.clone());
        let file = settings.text("control");
        if let Some(file) = file {
            // The address of the previous start is no longer valid, whatever happens from here on.
            control::remove(file.as_ref()).map_err(|cause| failed(file, cause))?;
        }
        let control = file.map(|_| Control::new(node.clone(), watch.known())).transpose();
        let control = control.map_err(|cause| failed("no secret", cause))?;
        let secret = control.as_ref().map(|control| control.secret().to_owned());
        let pages = Pages {
            control,
            #[cfg(feature = "sqlite")]
            recorded: recorded::Recorded::new(context.clone()),
        };
        let live = Live::open(settings, node, Some(Arc::new(pages)))?;
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

    /// Has no effect, because nothing is stored.
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
    #[cfg(feature = "sqlite")]
    fn respond(&self, head: &str) -> Vec<u8> {
        respond(head, |query| self.recorded.answer(query))
    }

    #[cfg(not(feature = "sqlite"))]
    fn respond(&self, head: &str) -> Vec<u8> {
        respond(head, |_| Err("this build reads no archives: it needs the feature 'sqlite'".into()))
    }

    fn ask(&self, text: &str, reply: Reply) -> Result<(), String> {
        match &self.control {
            Some(control) => control.ask(text, reply),
            None => Err("this page is read-only: the handler has no 'control'".into()),
        }
    }
}
