//! The command `polywire link hosts`: runs commands on two emulated hosts with a link between them.
//! Linux only.

use std::{
    os::unix::process::CommandExt as _,
    time::{Duration, Instant},
};

use clap::{Args, ValueEnum};
use polywire_link::hosts::{self, ADDRESSES, Between, Event, Hosts, HostsError};
use serde_json::json;

use crate::{
    network::{Network, models, show},
    outcome::{self, Missed, Misuse, Outcome},
    seconds::Seconds,
    stop::{self, Stop},
    terminal::Terminal,
    verb::{Action, Verb},
};

pub const VERB: Verb =
    Verb::new::<LinkHosts>("hosts", "Makes two hosts with a link between them, and runs a shell command on each")
        .details(
            "The hosts are network namespaces of this machine, which see nothing but each other. They and all their \
         processes end with this command. Commands find the addresses in $A and $B. `link hosts` ends when the \
         command of B ends, or that of A if B has none, and fails if that command fails.",
        )
        .example(r#"polywire link hosts --model wan-high --seed 7 -a "$WAITS" -b "$CALLS""#);

#[derive(Args)]
#[command(after_help = models())]
pub struct LinkHosts {
    /// Command on host A, at 192.0.2.1, for example a server
    #[arg(short, long, value_name = "COMMAND")]
    a: Option<String>,
    /// Command on host B, at 192.0.2.2, for example a client
    #[arg(short, long, value_name = "COMMAND", required_unless_present = "a")]
    b: Option<String>,
    /// The kind of link between the hosts
    #[arg(long, value_enum, default_value = "model")]
    by: By,
    #[command(flatten)]
    network: Network,
    /// Ends with exit code 1 after this many seconds
    #[arg(long = "for", value_name = "SECONDS", default_value = "60")]
    duration: Seconds,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// TUN interfaces, whose packets go through the emulated network
    Model,
    /// Virtual Ethernet with the kernel's netem, if the kernel has it; without --seed, --script and
    /// --capture
    Netem,
    /// Virtual Ethernet without emulation, as fast as the kernel can
    Veth,
}

impl Action for LinkHosts {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        if let Some(word) = self.network.only_for_our_model().filter(|_| self.by == By::Netem) {
            return Err(Misuse(format!("{word} needs --by model")).into());
        }
        if self.by == By::Veth && !self.network.is_plain() {
            return Err(Misuse(
                "--by veth emulates nothing: leave out --model, --back, --seed, --script and --capture".into(),
            )
            .into());
        }
        // Wrong arguments are reported before anything is started.
        let seed = self.network.seed();
        let plan = self.network.plan(seed)?;
        if let Some(mut again) = hosts::isolated()? {
            return Err(again.exec().into());
        }
        let between = match self.by {
            By::Model => Between::Tun,
            By::Netem => Between::Netem,
            By::Veth => Between::Veth,
        };
        stop::hold()?;
        let mut hosts = Hosts::open(between, plan)?;
        let [a, b] = ADDRESSES;
        match terminal.json {
            true => terminal.value(&json!({ "a": a, "b": b, "seed": seed }))?,
            false if self.by == By::Model => terminal.line(&format!("a {a}, b {b}, seed {seed}"))?,
            false => terminal.line(&format!("a {a}, b {b}"))?,
        }
        for (host, command) in [&self.a, &self.b].into_iter().enumerate() {
            if let Some(command) = command {
                hosts.run(host, command)?;
            }
        }
        self.watch(&hosts, terminal)
    }
}

impl LinkHosts {
    /// Prints output and statistics until the decisive command ends, or the time is over.
    fn watch(&self, hosts: &Hosts, terminal: &Terminal) -> outcome::Result {
        let (start, stop) = (Instant::now(), Stop::new()?);
        let every = self.network.every.0;
        let mut next = start + every;
        let decisive = usize::from(self.b.is_some());
        let mut before = hosts.stats();
        loop {
            let event = hosts.event(Duration::from_millis(20))?;
            if let Some((host, event)) = &event {
                tell(*host, event, terminal)?;
            }
            let ended = match event {
                Some((host, Event::Ended(code))) if host == decisive => Some(Ok(code)),
                _ if stop.outcome().is_some() => stop.outcome().map(Err),
                _ if start.elapsed() >= self.duration.0 => Some(Err(Outcome::Missed)),
                _ => None,
            };
            let due = Instant::now() >= next && !every.is_zero();
            if ended.is_some() || due {
                let now = hosts.stats();
                if let Some(now) = now.as_ref().filter(|_| now != before || ended.is_some()) {
                    show(start.elapsed(), now, terminal)?;
                }
                (before, next) = (now, Instant::now() + every);
            }
            match ended {
                None => {}
                Some(Ok(Some(0))) => return Ok(Outcome::Fine),
                Some(Ok(code)) => return Err(Missed(failed(decisive, code)).into()),
                Some(Err(Outcome::Missed)) => {
                    let seconds = self.duration.0.as_secs_f64();
                    return Err(Missed(format!("{} still runs after {seconds} s", name(decisive))).into());
                }
                Some(Err(outcome)) => return Ok(outcome),
            }
        }
    }
}

fn name(host: usize) -> &'static str {
    if host == 0 { "a" } else { "b" }
}

fn failed(host: usize, code: Option<i32>) -> String {
    let how = code.map_or("was killed".to_owned(), |code| format!("ended with exit code {code}"));
    format!("the command of {} {how}", name(host))
}

fn tell(host: usize, event: &Event, terminal: &Terminal) -> anyhow::Result<()> {
    let name = name(host);
    match (event, terminal.json) {
        (Event::Line(line), true) => terminal.value(&json!({ "host": name, "line": line })),
        (Event::ErrorLine(line), true) => terminal.value(&json!({ "host": name, "error": line })),
        (Event::Ended(code), true) => terminal.value(&json!({ "host": name, "exit_code": code })),
        (Event::Line(line) | Event::ErrorLine(line), false) => Ok(terminal.line(&format!("{name}  {line}"))?),
        _ => Ok(()),
    }
}

pub const HOST_VERB: Verb = Verb::new::<LinkHost>("link-host", "One of the hosts of `polywire link hosts`").hidden();

#[derive(Args)]
pub struct LinkHost {}

impl Action for LinkHost {
    fn run(self, _: &Terminal) -> outcome::Result {
        hosts::serve().map_err(HostsError::from)?;
        Ok(Outcome::Fine)
    }
}
