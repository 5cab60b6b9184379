//! Builds libzmq, which is linked statically.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "libzmq")]
    build();
}

/// Builds in a process of its own, whose compiler is told to keep its warnings about libzmq for
/// itself. What that process prints is for Cargo.
#[cfg(feature = "libzmq")]
fn build() {
    const FLAGS: &str = "CXXFLAGS";
    const INSIDE: &str = "POLYWIRE_ZEROMQ_BUILDS";
    println!("cargo:rerun-if-env-changed={FLAGS}");
    if std::env::var_os(INSIDE).is_some() {
        zeromq_src::Build::new().build();
        return;
    }
    let flags = format!("{} -w", std::env::var(FLAGS).unwrap_or_default());
    let program = std::env::current_exe().expect("this program has a path");
    let mut builds = std::process::Command::new(program);
    let status = builds.env(FLAGS, flags).env(INSIDE, "1").status().expect("it starts");
    assert!(status.success(), "libzmq is not built: is there a C++ compiler? ({status})");
}
