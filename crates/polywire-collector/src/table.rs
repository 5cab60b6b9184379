//! The tables of archives: a type's columns after those of the metadata.

#[cfg(feature = "parquet")]
use crate::Columns;
use crate::{CellValue, Column, columns::METADATA};

/// The table of one version of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub type_name: String,
    /// Names and types of the columns; the metadata columns come first.
    pub columns: Vec<(String, Column)>,
}

/// Receives the rows of tables one after another. Returns whether to continue.
pub(crate) type EachRow<'a> = &'a mut dyn FnMut(&Layout, &[CellValue<'_>]) -> bool;

impl Layout {
    /// Returns the table of a type. A member whose name is taken gets the suffix `~2`, or a higher
    /// number.
    #[cfg(feature = "parquet")]
    pub fn of(type_name: &str, columns: &Columns) -> Layout {
        Layout::new(type_name, columns.iter().map(|(name, column)| (name.to_owned(), column)))
    }

    /// Makes a table with these columns after those of the metadata.
    #[cfg(any(feature = "mcap", feature = "parquet"))]
    pub fn new(type_name: &str, columns: impl IntoIterator<Item = (String, Column)>) -> Layout {
        let mut all: Vec<_> = METADATA.iter().map(|(name, column)| ((*name).to_owned(), *column)).collect();
        for (name, column) in columns {
            let numbered = (2..).map(|number| format!("{name}~{number}"));
            let is_free = |name: &String| all.iter().all(|(taken, _)| taken != name);
            let free = [name.clone()].into_iter().chain(numbered).find(is_free).unwrap_or_default();
            all.push((free, column));
        }
        Layout { type_name: type_name.to_owned(), columns: all }
    }

    /// Returns whether the first columns are those of the metadata.
    #[cfg(feature = "parquet")]
    pub fn has_metadata(&self) -> bool {
        let own = METADATA.iter().map(|(name, column)| (*name, *column));
        self.columns.len() > METADATA.len()
            && own.eq(self.columns.iter().take(METADATA.len()).map(|(name, column)| (name.as_str(), *column)))
    }

    /// Returns the columns of the type.
    #[cfg(feature = "sqlite")]
    pub fn members(&self) -> impl Iterator<Item = (&str, Column)> {
        self.columns.iter().skip(METADATA.len()).map(|(name, column)| (name.as_str(), *column))
    }
}
