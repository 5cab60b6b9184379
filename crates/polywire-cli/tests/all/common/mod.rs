//! Runs the program in a temporary folder, for all tests of the command line.
#![allow(dead_code)] // `tools` is shared with tests of other crates.

pub use polywire_testing::{
    markdown, tools,
    waiting::{SOON, until},
};

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{net::UnixDatagram, process::ExitStatusExt as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

pub const WEATHER: &str = "module weather {
  enum Sky { CLEAR, CLOUDY, RAIN };
  struct Wind { float speed_ms; uint16 direction_deg; };
  struct Report {
    string station;
    double temperature_c;
    Sky sky;
    Wind wind;
    sequence<string> notes;
  };
};
";

/// An older version: fewer members, another order, and a member that was removed later.
pub const OLDER: &str = "module weather {
  struct Wind { uint16 direction_deg; };
  struct Report { double temperature_c; Wind wind; string station; @default(1013.25) double pressure_hpa; };
};
";

/// A newer version: wider numbers, another literal, and new members.
pub const NEWER: &str = "module weather {
  enum Sky { CLEAR, CLOUDY, RAIN, SNOW };
  struct Wind { @default(0) float gusts_ms; double speed_ms; uint32 direction_deg; };
  struct Report {
    @default(\"unknown\") string network;
    sequence<string> notes;
    string station;
    Wind wind;
    Sky sky;
    double temperature_c;
  };
};
";

/// An incompatible type.
pub const WRONG: &str = "module weather { struct Report { string station; string temperature_c; }; };\n";

/// A configuration for a busy machine, where a peer may be silent for a while.
const PATIENT: &str = "[engine]\nlease_ms = 60000\nlinger_ms = 60000\n";

/// A folder for one test, which is removed at its end, with the types and the configuration above.
pub struct Folder(polywire_testing::Folder);

impl Folder {
    pub fn new() -> Folder {
        let folder = Folder(polywire_testing::Folder::new("cli"));
        for (name, text) in [("weather", WEATHER), ("older", OLDER), ("newer", NEWER), ("wrong", WRONG)] {
            folder.write(&format!("{name}.idl"), text);
        }
        folder.write("patient.toml", PATIENT);
        folder
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn write(&self, name: &str, text: &str) {
        self.0.write(name, text);
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.file(name)).expect("read")
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polywire"));
        command.args(arguments).current_dir(self.path()).env("NO_COLOR", "1");
        command.env_remove("POLYWIRE_WIRE").env_remove("POLYWIRE_CONFIG").env_remove("POLYWIRE_DOMAIN");
        command.env_remove("POLYWIRE_TRACE");
        // Processes of other tests do not meet those of this one.
        command.env("XDG_RUNTIME_DIR", self.path());
        command
    }

    /// Runs the program to its end.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        self.start(arguments).end()
    }

    /// Runs the program to its end with this text on standard input.
    pub fn run_with(&self, arguments: &[&str], input: &str) -> Ended {
        let mut running = self.start(arguments);
        running.input(input);
        running.end()
    }

    pub fn start(&self, arguments: &[&str]) -> Running {
        Running::of(self.command(arguments))
    }
}

fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (send, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let _ = send.send(line);
        }
    });
    lines
}

/// A running process, killed at the latest at the end of the test.
pub struct Running {
    what: String,
    pub child: Child,
    out: Receiver<String>,
    errors: Receiver<String>,
    seen_out: Vec<String>,
    seen_errors: Vec<String>,
}

impl Running {
    /// Starts a command of [`Folder::command`].
    pub fn of(mut command: Command) -> Running {
        let what = command.get_args().map(|argument| argument.to_string_lossy()).collect::<Vec<_>>().join(" ");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("started");
        let out = lines_of(child.stdout.take().expect("piped"));
        let errors = lines_of(child.stderr.take().expect("piped"));
        Running { what, child, out, errors, seen_out: Vec::new(), seen_errors: Vec::new() }
    }

    /// Writes this text to standard input.
    pub fn write(&mut self, text: &str) {
        let input = self.child.stdin.as_mut().expect("not closed yet");
        // Fails if the process has ended without reading everything.
        let _ = input.write_all(text.as_bytes());
    }

    /// Writes this text to standard input and closes it.
    pub fn input(&mut self, text: &str) {
        self.write(text);
        drop(self.child.stdin.take());
    }

    /// The next line on standard output.
    pub fn line(&mut self) -> String {
        match self.out.recv_timeout(SOON) {
            Ok(line) => {
                self.seen_out.push(line.clone());
                line
            }
            Err(_) => panic!("{}: no line; errors: {:?}", self.what, self.errors.try_iter().collect::<Vec<_>>()),
        }
    }

    /// Reads the next line on standard output if it is there already. Returns whether it is.
    pub fn reads_line(&mut self) -> bool {
        let line = self.out.try_recv().ok();
        self.seen_out.extend(line.clone());
        line.is_some()
    }

    /// The next line on standard output that contains `text`.
    pub fn line_with(&mut self, text: &str) -> String {
        loop {
            let line = self.line();
            if line.contains(text) {
                return line;
            }
        }
    }

    /// The rest of the first line on standard error that contains `text`.
    pub fn error_after(&mut self, text: &str) -> String {
        loop {
            let Ok(line) = self.errors.recv_timeout(SOON) else { panic!("{}: no '{text}'", self.what) };
            self.seen_errors.push(line.clone());
            if let Some((_, rest)) = line.split_once(text) {
                return rest.to_owned();
            }
        }
    }

    /// Sends a signal, by its name: `TERM`.
    pub fn signal(&self, name: &str) {
        let arguments = [format!("-{name}"), self.child.id().to_string()];
        assert!(Command::new("kill").args(arguments).status().expect("kill runs").success());
    }

    /// Sends a signal and waits for the end.
    pub fn end_by(self, name: &str) -> Ended {
        self.signal(name);
        self.end()
    }

    pub fn end(mut self) -> Ended {
        drop(self.child.stdin.take());
        let until = Instant::now() + SOON;
        let status = loop {
            match self.child.try_wait().expect("waited") {
                Some(status) => break status,
                None if Instant::now() > until => panic!("{}: does not end", self.what),
                None => thread::sleep(Duration::from_millis(5)),
            }
        };
        let join = |seen: &[String], rest: &Receiver<String>| {
            let lines = seen.iter().cloned().chain(rest.iter());
            lines.fold(String::new(), |text, line| text + &line + "\n")
        };
        Ended {
            what: self.what.clone(),
            code: status.code(),
            signal: status.signal(),
            out: join(&self.seen_out, &self.out),
            errors: join(&self.seen_errors, &self.errors),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a process ended.
#[derive(Debug)]
pub struct Ended {
    what: String,
    pub code: Option<i32>,
    signal: Option<i32>,
    pub out: String,
    pub errors: String,
}

impl Ended {
    /// Checks the exit code.
    pub fn with(self, code: i32) -> Ended {
        assert_eq!(self.code, Some(code), "polywire {}\n{}\n{}", self.what, self.out, self.errors);
        self
    }

    /// The signal that ended it.
    pub fn signal(&self) -> Option<i32> {
        self.signal
    }

    /// Standard output as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{}: {error}: {}", self.what, self.out))
    }
}

/// What a command tells a service manager until it ends, which it does without being asked.
pub fn told_to_manager(folder: &Folder, arguments: &[&str]) -> Vec<String> {
    let path = folder.path().join("notify.sock");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    let status = folder.command(arguments).env("NOTIFY_SOCKET", &path).status().expect("it runs");
    assert!(status.success());
    manager.set_nonblocking(true).expect("a socket");
    let mut bytes = [0; 64];
    let next = || manager.recv(&mut bytes).ok().map(|len| String::from_utf8_lossy(&bytes[..len]).trim().to_owned());
    std::iter::from_fn(next).collect()
}

/// True if network namespaces can be made. Otherwise [`tools::missing`] reports that or fails.
pub fn hosts_are_permitted() -> bool {
    let tried = Folder::new().run(&["link", "hosts", "-b", "true"]);
    let permitted = tried.code == Some(0);
    if !permitted {
        tools::missing(&format!("permission for network namespaces ({})", tried.errors.trim()));
    }
    permitted
}

/// A weather report in JSON, whose values depend on `number`.
pub fn report(number: u32) -> String {
    let sky = ["CLEAR", "CLOUDY", "RAIN"][number as usize % 3];
    format!(
        r#"{{"station":"S{number}","temperature_c":{}.5,"sky":"{sky}","wind":{{"speed_ms":0.1,"direction_deg":270}},"notes":["a","b"]}}"#,
        number % 40
    )
}
