//! Starts, reads and ends the processes of the demonstration. They end when the process that
//! started them ends.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::Sender,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use super::{protocol::Told, types::Version};

/// How long a process may take to end after it was told to.
const GRACE: Duration = Duration::from_secs(5);

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Publishes or subscribes, with this version of the type.
    Of(Version),
    /// Collects the probes of this machine.
    Probes,
}

impl Part {
    pub fn name(self) -> &'static str {
        match self {
            Part::Of(version) => version.name(),
            Part::Probes => "probes",
        }
    }
}

/// A report of a process; `told` is `None` when the process has ended.
pub struct Heard {
    pub from: Part,
    pub told: Option<Told>,
}

/// The processes that run. Dropping them ends them.
#[derive(Default)]
pub struct Children(Vec<Running>);

struct Running {
    part: Part,
    child: Child,
    orders: Option<ChildStdin>,
}

impl Children {
    /// Starts this executable with a hidden command.
    pub fn start(&mut self, part: Part, arguments: &[String], heard: Sender<Heard>) -> anyhow::Result<u32> {
        let program = std::env::current_exe().context("this program cannot be found")?;
        let mut command = Command::new(program);
        command.args(arguments).env_remove("POLYWIRE_WIRE").env_remove("POLYWIRE_CONFIG");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("the {} process cannot be started", part.name()))?;
        let id = child.id();
        let (orders, said) = (child.stdin.take(), child.stdout.take());
        self.0.push(Running { part, child, orders });
        thread::spawn(move || {
            let lines = said.into_iter().flat_map(|said| BufReader::new(said).lines().map_while(Result::ok));
            for told in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
                // Fails if the demonstration has ended and no longer receives.
                let _ = heard.send(Heard { from: part, told: Some(told) });
            }
            let _ = heard.send(Heard { from: part, told: None });
        });
        Ok(id)
    }

    /// Sends a line to the standard input of a process.
    pub fn order(&mut self, part: Part, order: &str) -> anyhow::Result<()> {
        let running = self.0.iter_mut().find(|running| running.part == part);
        let orders = running.and_then(|running| running.orders.as_mut()).context("the process is gone")?;
        Ok(writeln!(orders, "{order}").and_then(|()| orders.flush())?)
    }

    /// Waits for processes that have been told to end.
    pub fn finish(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + GRACE;
        for running in &mut self.0 {
            loop {
                match running.child.try_wait()? {
                    Some(status) if status.success() => break,
                    Some(status) => bail!("the {} process ended with {status}", running.part.name()),
                    None if Instant::now() > until => bail!("the {} process did not end", running.part.name()),
                    None => thread::sleep(Duration::from_millis(5)),
                }
            }
        }
        Ok(())
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for running in &mut self.0 {
            // Fails if the process has already ended.
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
    }
}
