//! Maintenance tasks of the repository. `cargo run -p xtask -- api` writes the lists of the public
//! API, `docs/api/CRATE.txt`.

use std::{env, fs, process::ExitCode};

use xtask::api;

fn main() -> ExitCode {
    match env::args().nth(1).as_deref() {
        Some("api") => renew(),
        _ => {
            eprintln!("usage: cargo run -p xtask -- api");
            ExitCode::FAILURE
        }
    }
}

/// Writes `docs/api/CRATE.txt` for each crate in [`api::CRATES`].
fn renew() -> ExitCode {
    for krate in api::CRATES {
        let path = api::golden_file(krate);
        let written = fs::create_dir_all(path.parent().expect("the file is in a folder"))
            .and_then(|()| fs::write(&path, api::of_crate(krate)));
        if let Err(error) = written {
            eprintln!("{}: {error}", path.display());
            return ExitCode::FAILURE;
        }
        println!("{}", path.display());
    }
    ExitCode::SUCCESS
}
