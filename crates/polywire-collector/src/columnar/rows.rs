//! The encoding of a table's rows, for journals and for the checksum of a file: the columns of the
//! metadata, then those of the type. Each has one byte that says whether there is a value, and the
//! value in little-endian order.

use crate::{CellValue, Column, HandlerError, table::Layout};

/// The maximum size of a row in bytes.
pub(crate) const MAX_ROW: usize = 64 << 20;

impl Layout {
    /// Appends a row to `bytes`.
    pub fn encode<'a>(
        &self,
        cells: impl Iterator<Item = &'a CellValue<'a>>,
        bytes: &mut Vec<u8>,
    ) -> Result<(), HandlerError> {
        let start = bytes.len();
        for ((name, column), cell) in self.columns.iter().zip(cells) {
            if !put(*column, cell, bytes) {
                return Err(HandlerError::Refused(format!("'{name}' has another value than its type says")));
            }
        }
        match bytes.len() - start <= MAX_ROW {
            true => Ok(()),
            false => Err(HandlerError::Refused(format!("it has more than {MAX_ROW} bytes"))),
        }
    }

    /// Decodes the cells of a row; `None` if the bytes are not a row.
    pub fn decode<'a>(&self, mut bytes: &'a [u8]) -> Option<Vec<CellValue<'a>>> {
        let mut cells = Vec::with_capacity(self.columns.len());
        for (_, column) in &self.columns {
            cells.push(take(*column, &mut bytes)?);
        }
        bytes.is_empty().then_some(cells)
    }
}

/// Appends a cell. Returns false if the cell does not fit the column.
fn put(column: Column, cell: &CellValue<'_>, bytes: &mut Vec<u8>) -> bool {
    bytes.push(u8::from(*cell != CellValue::Absent));
    match (column, cell) {
        (_, CellValue::Absent) => {}
        (Column::Bool, CellValue::Bool(truth)) => bytes.push((*truth).into()),
        (Column::Int, CellValue::Int(number)) => bytes.extend_from_slice(&number.to_le_bytes()),
        (Column::Int, CellValue::Uint(number)) => match i64::try_from(*number) {
            Ok(number) => bytes.extend_from_slice(&number.to_le_bytes()),
            Err(_) => return false,
        },
        (Column::Uint, CellValue::Uint(number)) => bytes.extend_from_slice(&number.to_le_bytes()),
        (Column::Float32, CellValue::Float32(number)) => bytes.extend_from_slice(&number.to_le_bytes()),
        (Column::Float64, CellValue::Float64(number)) => bytes.extend_from_slice(&number.to_le_bytes()),
        (Column::Text, CellValue::Text(text)) => put_bytes(text.as_bytes(), bytes),
        (Column::Text, CellValue::Char(character)) => put_bytes(character.encode_utf8(&mut [0; 4]).as_bytes(), bytes),
        // The value of an enum literal without a name, or an unpaired surrogate.
        (Column::Text, CellValue::Int(number)) => put_bytes(number.to_string().as_bytes(), bytes),
        (Column::Bytes, CellValue::Bytes(content)) => put_bytes(content, bytes),
        (Column::Json, CellValue::Json(text)) => put_bytes(text.as_bytes(), bytes),
        _ => return false,
    }
    true
}

/// Appends octets after their length. The caller checks the size of the whole row afterwards.
fn put_bytes(content: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&(content.len() as u64).to_le_bytes());
    bytes.extend_from_slice(content);
}

fn take<'a>(column: Column, bytes: &mut &'a [u8]) -> Option<CellValue<'a>> {
    Some(match take_array::<1>(bytes)? {
        [0] => CellValue::Absent,
        [1] => match column {
            Column::Bool => CellValue::Bool(take_array::<1>(bytes)? != [0]),
            Column::Int => CellValue::Int(i64::from_le_bytes(take_array(bytes)?)),
            Column::Uint => CellValue::Uint(u64::from_le_bytes(take_array(bytes)?)),
            Column::Float32 => CellValue::Float32(f32::from_le_bytes(take_array(bytes)?)),
            Column::Float64 => CellValue::Float64(f64::from_le_bytes(take_array(bytes)?)),
            Column::Text => CellValue::Text(std::str::from_utf8(take_bytes(bytes)?).ok()?),
            Column::Bytes => CellValue::Bytes(take_bytes(bytes)?),
            Column::Json => CellValue::Json(std::str::from_utf8(take_bytes(bytes)?).ok()?.to_owned()),
        },
        _ => return None,
    })
}

fn take_array<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*first)
}

fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(u64::from_le_bytes(take_array(bytes)?)).ok()?;
    let (first, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(first)
}

/// Returns the name of a column's type in files.
pub(crate) fn content_name(column: Column) -> &'static str {
    CONTENTS.iter().find(|(of, _)| *of == column).map_or("json", |(_, name)| name)
}

/// Returns the column type with this name.
pub(crate) fn content_of(name: &str) -> Option<Column> {
    CONTENTS.iter().find(|(_, of)| *of == name).map(|(column, _)| *column)
}

const CONTENTS: [(Column, &str); 8] = [
    (Column::Bool, "boolean"),
    (Column::Int, "integer"),
    (Column::Uint, "unsigned"),
    (Column::Float32, "float"),
    (Column::Float64, "double"),
    (Column::Text, "text"),
    (Column::Bytes, "octets"),
    (Column::Json, "json"),
];
