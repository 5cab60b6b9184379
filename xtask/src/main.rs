//! Maintenance tasks of the repository. `cargo run -p xtask -- api` writes the lists of the public
//! API, `docs/api/CRATE.txt`; `cargo run -p xtask -- dist` makes the packages of a release.

use std::{env, error::Error, fs, path::PathBuf, process::ExitCode};

use xtask::{
    api,
    dist::{Dist, LEVEL},
    root,
};

const USAGE: &str = "usage: cargo run -p xtask -- api
       cargo run -p xtask -- dist [--features LIST] [--binary FILE] [--output FOLDER]";

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let done = match words.split_first() {
        Some((task, [])) if task == "api" => renew(),
        Some((task, options)) if task == "dist" => pack(options),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes `docs/api/CRATE.txt` for each crate in [`api::CRATES`].
fn renew() -> Result<(), Box<dyn Error>> {
    for krate in api::CRATES {
        let path = api::golden_file(krate);
        fs::create_dir_all(path.parent().expect("the file is in a folder"))?;
        fs::write(&path, api::of_crate(krate)).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Makes the packages of a release and prints their paths.
fn pack(options: &[String]) -> Result<(), Box<dyn Error>> {
    let (mut features, mut binary, mut output) = (String::new(), None, root().join("target/dist"));
    for option in options.chunks(2) {
        match option {
            [name, value] if name == "--features" => features.clone_from(value),
            [name, value] if name == "--binary" => binary = Some(fs::canonicalize(value)?),
            [name, value] if name == "--output" => output = PathBuf::from(value),
            _ => return Err(USAGE.into()),
        }
    }
    let dist = match binary {
        Some(binary) => Dist { output, binary, features, level: LEVEL },
        None => Dist::build(output, &features)?,
    };
    for package in dist.pack()? {
        println!("{}", package.display());
    }
    Ok(())
}
