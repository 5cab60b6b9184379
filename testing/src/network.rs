//! Several hosts on one network, on one Linux machine: network namespaces joined by a bridge.
//!
//! A test that asks for a [`Network`] is started again in namespaces of its own, whose first
//! process ends with it, so nothing is left behind however it ends. Needs `unshare` (util-linux),
//! `ip` (iproute2), and user namespaces unless run by root.

use std::{
    env,
    ffi::OsStr,
    process::{Command, Stdio},
};

use crate::tools;

/// Marks a process in namespaces of its own.
const INSIDE: &str = "POLYWIRE_TEST_NETWORK";

/// A folder that each test in namespaces has for itself.
const RUN: &str = "/run";

/// The hosts of a test, numbered from 1. Host `n` has the interface `eth0` with the address
/// `10.9.0.n`. The test itself runs on none of them.
pub struct Network {
    hosts: usize,
}

impl Network {
    /// The network of the test with this full name; `None` if the test has run elsewhere, in
    /// namespaces, or has to be skipped because they are not permitted.
    ///
    /// # Panics
    /// If the test has failed there.
    pub fn of(test: &str, hosts: usize) -> Option<Network> {
        if env::var_os(INSIDE).is_some() {
            let network = Network { hosts };
            network.set_up();
            return Some(network);
        }
        let trial = isolated().args(["sh", "-c", "ip link add bridge type bridge && mount -t tmpfs t /run"]).output();
        match trial {
            Ok(tried) if tried.status.success() => {}
            Ok(tried) => {
                tools::missing(&format!(
                    "permission for namespaces ({})",
                    String::from_utf8_lossy(&tried.stderr).trim()
                ));
                return None;
            }
            Err(error) => {
                tools::missing(&format!("the program 'unshare' ({error})"));
                return None;
            }
        }
        let mut again = isolated();
        again.arg(env::current_exe().expect("this program")).args([test, "--exact", "--nocapture"]).env(INSIDE, "1");
        // Temporary files have the number of the process in their names, which is the same in other
        // namespaces.
        again.env("TMPDIR", RUN);
        let ended = again.stdin(Stdio::null()).output().expect("it is started again");
        let out = String::from_utf8_lossy(&ended.stdout);
        assert!(
            ended.status.success() && out.contains("1 passed"),
            "{out}\n{}",
            String::from_utf8_lossy(&ended.stderr)
        );
        None
    }

    /// The address of a host.
    pub fn address(&self, host: usize) -> String {
        format!("10.9.0.{host}")
    }

    /// A command that runs on a host. Its process is that of the program itself.
    pub fn command(&self, host: usize, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("h{host}")]).arg(program);
        command
    }

    /// Runs `ip` on a host.
    pub fn ip(&self, host: usize, arguments: &str) {
        run(&format!("ip -n h{host} {arguments}"));
    }

    /// No multicast passes from one host to another any more.
    pub fn drop_multicast(&self) {
        run("ip link set bridge type bridge mcast_snooping 0");
        for host in 1..=self.hosts {
            run(&format!("ip link set port{host} type bridge_slave mcast_flood off"));
        }
    }

    fn set_up(&self) {
        run(&format!(
            "mount -t tmpfs tmpfs {RUN} && mount -t proc proc /proc
            ip link add bridge type bridge && ip link set bridge up"
        ));
        for host in 1..=self.hosts {
            let address = self.address(host);
            run(&format!(
                "ip netns add h{host}
                ip link add port{host} type veth peer name eth0 netns h{host}
                ip link set port{host} master bridge up
                ip -n h{host} link set lo up
                ip -n h{host} address add {address}/24 dev eth0
                ip -n h{host} link set eth0 up"
            ));
        }
    }
}

/// The start of a command that runs in namespaces of its own.
fn isolated() -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--"]);
    command
}

fn run(commands: &str) {
    let ended = Command::new("sh").args(["-e", "-c", commands]).output().expect("a shell");
    assert!(ended.status.success(), "{commands}\n{}", String::from_utf8_lossy(&ended.stderr));
}
