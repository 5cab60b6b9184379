//! Runs Fast CDR in a child process: a small program in C++ (`peers/fastcdr.cpp`), which is
//! compiled with this machine's `g++` in a temporary folder. Parent and child communicate through
//! pipes.

use std::{
    env, fs,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{self, Child, ChildStdout, Command, Stdio},
    time::Duration,
};

const SOURCE: &str = include_str!("../../peers/fastcdr.cpp");
const HEADER: &str = "/usr/include/fastcdr/Cdr.h";

/// The workloads for which the program in C++ has types.
pub const SPOKEN: &[&str] = &[
    "MarketData",
    "CodecsTest_10",
    "CodecsTest_50",
    "CodecsTest_100",
    "CodecsTest_250",
    "CodecsTest_500",
    "ProcessorProbe",
    "LinuxProcessorProbe",
    "100 KB of floats",
];

/// The compiled program. Dropping this deletes its folder.
#[derive(Debug)]
pub struct Program {
    folder: PathBuf,
}

/// Compiles the program.
///
/// # Errors
/// The reason why it cannot be compiled, as a text.
pub fn build() -> Result<Program, String> {
    if !Path::new(HEADER).exists() {
        return Err(format!("needs Debian's libfastcdr-dev: there is no {HEADER}"));
    }
    let program = Program { folder: env::temp_dir().join(format!("polywire-bench-{}", process::id())) };
    let built = fs::create_dir_all(&program.folder)
        .and_then(|()| fs::write(program.folder.join("fastcdr.cpp"), SOURCE))
        .and_then(|()| program.compile());
    match built {
        Ok(true) => Ok(program),
        Ok(false) => Err("g++ cannot compile the program".into()),
        Err(error) => Err(format!("needs g++: {error}")),
    }
}

impl Program {
    fn compile(&self) -> io::Result<bool> {
        let flags = ["-std=c++17", "-O3", "-march=native", "-o", "fastcdr", "fastcdr.cpp", "-lfastcdr"];
        Ok(Command::new("g++").args(flags).current_dir(&self.folder).status()?.success())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // A folder that stays behind does no harm.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A child process that has a workload's messages as values of its own types.
pub struct FastCdr {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl FastCdr {
    /// Starts the child with a workload's name and its encoded messages.
    ///
    /// # Panics
    /// Unless Fast CDR decodes the messages and encodes the same bytes.
    pub fn start(program: &Program, workload: &str, encoded: &[Vec<u8>]) -> FastCdr {
        let mut child = Command::new(program.folder.join("fastcdr"))
            .arg(workload)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the compiled program starts");
        let answers = BufReader::new(child.stdout.take().expect("standard output is a pipe"));
        let mut peer = FastCdr { child, answers };
        peer.feed(encoded).expect("the child reads the messages");
        assert_eq!(peer.answer(), "ok", "Fast CDR does not read {workload}, or writes other bytes");
        peer
    }

    /// Encodes the messages for about `least`. Returns nanoseconds per message.
    pub fn encode(&mut self, least: Duration) -> f64 {
        self.measure("encode", least)
    }

    /// Decodes the messages for about `least`. Returns nanoseconds per message.
    pub fn decode(&mut self, least: Duration) -> f64 {
        self.measure("decode", least)
    }

    fn feed(&mut self, encoded: &[Vec<u8>]) -> io::Result<()> {
        let input = self.child.stdin.as_mut().expect("standard input is a pipe");
        input.write_all(&(encoded.len() as u32).to_le_bytes())?;
        for bytes in encoded {
            input.write_all(&(bytes.len() as u32).to_le_bytes())?;
            input.write_all(bytes)?;
        }
        input.flush()
    }

    fn measure(&mut self, what: &str, least: Duration) -> f64 {
        let input = self.child.stdin.as_mut().expect("standard input is a pipe");
        writeln!(input, "{what} {}", least.as_nanos()).expect("the child reads the command");
        self.answer().parse().expect("a number")
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the child answers");
        line.trim_end().into()
    }
}

impl Drop for FastCdr {
    fn drop(&mut self) {
        // The child exits when its standard input ends.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
