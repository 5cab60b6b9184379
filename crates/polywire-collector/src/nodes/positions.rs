//! The file of the positions up to which the samples of nodes are stored. A line is a position with
//! a checksum; later lines of a stream replace earlier ones.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use polywire_telemetry::{LockedFile, intake::Position};

use crate::files::{beside, sync_folder};

/// The number of lines that the file may have beyond twice the needed ones, before it is rewritten.
const SPARE_LINES: usize = 10_000;

/// The file, open and locked against other processes.
pub(super) struct Positions {
    path: PathBuf,
    file: File,
    lines: usize,
    /// The number of lines after the file was last rewritten.
    needed: usize,
    /// Whether the last line may be incomplete.
    is_torn: bool,
    /// The lock on a file of its own, because the file itself is replaced when it is rewritten.
    _lock: LockedFile,
}

impl Positions {
    /// Opens a file, and creates it if it does not exist. Returns the positions in it, in the order
    /// in which they were added. Damaged lines are reported and left out: the samples may be
    /// received again.
    pub(super) fn open(path: &Path) -> io::Result<(Positions, Vec<Position>)> {
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(beside(path, "lock"))?;
        let lock = LockedFile::lock(lock, "another collector uses it")?;
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        sync_folder(path)?;
        let text = fs::read(path)?;
        let lines: Vec<_> = text.split_inclusive(|byte| *byte == b'\n').map(parse).collect();
        let found: Vec<Position> = lines.iter().copied().flatten().collect();
        if found.len() < lines.len() {
            let damaged = lines.len() - found.len();
            log::warn!("{}: {damaged} lines are damaged; samples that are stored may come again", path.display());
        }
        let is_torn = text.last().is_some_and(|last| *last != b'\n');
        let path = path.to_owned();
        Ok((Positions { path, file, lines: lines.len(), needed: 0, is_torn, _lock: lock }, found))
    }

    /// Adds positions. They are on the disk when this returns without an error. `known` returns the
    /// last position of each stream before them, in case the file is rewritten.
    pub(super) fn add<I>(&mut self, positions: &[Position], known: impl FnOnce() -> I) -> io::Result<()>
    where
        I: Iterator<Item = Position>,
    {
        if self.lines > self.needed.saturating_mul(2).saturating_add(SPARE_LINES) {
            self.replace(known())?;
        }
        let mut text = String::from(if self.is_torn { "\n" } else { "" });
        positions.iter().for_each(|position| text.push_str(&line(position)));
        self.is_torn = true;
        self.file.write_all(text.as_bytes())?;
        self.file.sync_data()?;
        self.is_torn = false;
        self.lines += positions.len();
        Ok(())
    }

    fn replace(&mut self, positions: impl Iterator<Item = Position>) -> io::Result<()> {
        let fresh = beside(&self.path, "new");
        let mut file = File::create(&fresh)?;
        let lines: Vec<String> = positions.map(|position| line(&position)).collect();
        file.write_all(lines.concat().as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, &self.path)?;
        sync_folder(&self.path)?;
        (self.file, self.lines, self.needed, self.is_torn) = (file, lines.len(), lines.len(), false);
        Ok(())
    }
}

fn line(position: &Position) -> String {
    let text = position.to_string();
    format!("{text} {:08x}\n", crc32fast::hash(text.as_bytes()))
}

fn parse(line: &[u8]) -> Option<Position> {
    let (text, sum) = str::from_utf8(line).ok()?.strip_suffix('\n')?.rsplit_once(' ')?;
    if u32::from_str_radix(sum, 16).ok()? != crc32fast::hash(text.as_bytes()) {
        return None;
    }
    let mut parts = text.split(' ');
    let mut part = || parts.next();
    let node = part()?.parse().ok()?;
    let start = u64::from_str_radix(part()?, 16).ok()?;
    Some(Position { node, start, stream: part()?.parse().ok()?, sequence: part()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use polywire_telemetry::Uuid;

    use super::*;

    fn position(stream: u32, sequence: u64) -> Position {
        Position { node: Uuid([7; 16]), start: u64::MAX / 3, stream, sequence }
    }

    /// Returns a path in a folder of its own.
    fn path(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("pw-positions-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        folder.join("positions")
    }

    #[test]
    fn what_was_added_is_there_wherever_the_file_ends() {
        let path = path("ends");
        let (mut file, found) = Positions::open(&path).expect("opened");
        assert!(found.is_empty() && Positions::open(&path).is_err(), "one process alone");
        let added: Vec<_> = (0..4).map(|sequence| position(sequence as u32 % 3, sequence)).collect();
        added.iter().for_each(|position| file.add(&[*position], std::iter::empty).expect("added"));
        drop(file);
        let text = fs::read(&path).expect("read");
        let width = text.len() / added.len();
        for end in (0..=text.len()).rev() {
            fs::write(&path, &text[..end]).expect("written");
            let (mut file, found) = Positions::open(&path).expect("opened");
            let whole = text[..end].iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(found, added[..whole], "at {end} of lines of about {width}");
            file.add(&[position(9, 9)], std::iter::empty).expect("added");
            drop(file);
            assert_eq!(Positions::open(&path).expect("opened").1.last(), Some(&position(9, 9)), "at {end}");
        }
        fs::remove_dir_all(path.parent().expect("a folder")).expect("removed");
    }

    #[test]
    fn a_flipped_bit_costs_its_line_alone() {
        let path = path("bits");
        let (mut file, _) = Positions::open(&path).expect("opened");
        let added = [position(1, 100), position(2, 200), position(3, 300)];
        file.add(&added, std::iter::empty).expect("added");
        drop(file);
        let text = fs::read(&path).expect("read");
        for at in 0..text.len() {
            let mut damaged = text.clone();
            damaged[at] ^= 0x10;
            fs::write(&path, damaged).expect("written");
            let (_, found) = Positions::open(&path).expect("opened");
            assert!(found.iter().all(|position| added.contains(position)) && !found.is_empty(), "at {at}: {found:?}");
        }
        fs::remove_dir_all(path.parent().expect("a folder")).expect("removed");
    }

    #[test]
    fn the_file_does_not_grow_without_bound() {
        let path = path("grows");
        let (mut file, _) = Positions::open(&path).expect("opened");
        let many: Vec<_> = (0..1000).map(|sequence| position(0, sequence)).collect();
        let mut last = None;
        for round in 0..50 {
            file.add(&many, || last.into_iter()).expect("added");
            last = many.last().copied();
            assert!(file.lines <= SPARE_LINES + 2 * many.len(), "round {round}");
        }
        drop(file);
        assert_eq!(Positions::open(&path).expect("opened").1.last(), last.as_ref());
        fs::remove_dir_all(path.parent().expect("a folder")).expect("removed");
    }
}
