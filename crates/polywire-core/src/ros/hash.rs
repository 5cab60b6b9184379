//! The hash of a ROS 2 type.

use core::{fmt, str::FromStr};

use sha2::{Digest as _, Sha256};

use super::{TypeError, description, properties::property, service_description};
use crate::schema::{Schema, SchemaLimits};

/// What a hash begins with: version 1 of ROS 2's hashes of interfaces (REP 2016).
const PREFIX: &str = "RIHS01_";

/// The property of user data that has a hash.
const KEY: &str = "typehash";

/// Identifies a ROS 2 type: the SHA-256 of its [`description`]. ROS 2 has it since Iron.
///
/// ```
/// use polywire_core::ros::{ParseTypeHashError, TypeHash};
/// let text = "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18";
/// let hash: TypeHash = text.parse()?;
/// assert_eq!((hash.to_string(), hash.to_bytes()[0]), (text.into(), 0xdf));
/// assert_eq!(TypeHash::of_user_data(hash.to_user_data().as_bytes()), Some(hash));
/// assert_eq!("RIHS02_00".parse::<TypeHash>(), Err(ParseTypeHashError));
/// # Ok::<(), ParseTypeHashError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeHash([u8; 32]);

/// The text is not the hash of a ROS 2 type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the hash of a ROS 2 type is RIHS01_ and 64 hexadecimal digits")]
pub struct ParseTypeHashError;

impl TypeHash {
    /// The hash of a type.
    ///
    /// # Errors
    /// If the type cannot be one of ROS 2.
    pub fn of(schema: &Schema) -> Result<TypeHash, TypeError> {
        Ok(TypeHash::of_text(&description(schema)?))
    }

    /// The hash of a service with these requests and replies.
    ///
    /// # Errors
    /// If the types cannot be those of one service of ROS 2.
    pub fn of_service(request: &Schema, reply: &Schema) -> Result<TypeHash, TypeError> {
        Ok(TypeHash::of_text(&service_description(request, reply)?))
    }

    /// The first of these documents that is a schema with this hash.
    ///
    /// ```
    /// use polywire_core::ros::TypeHash;
    /// use polywire_core::schema::{Def, Member, SchemaBuilder, Type};
    /// let mut types = SchemaBuilder::new();
    /// let text = types.add(Def::structure("std_msgs::msg::String", vec![Member::new("data", Type::string())]));
    /// let schema = types.finish(Type::Def(text))?;
    /// let documents = [b"?".to_vec(), schema.to_bytes()];
    /// assert_eq!(TypeHash::of(&schema)?.find(&documents), Some(schema));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn find(self, documents: impl IntoIterator<Item: AsRef<[u8]>>) -> Option<Schema> {
        let limits = SchemaLimits::default();
        let mut read = documents.into_iter().filter_map(|bytes| Schema::from_bytes(bytes.as_ref(), &limits).ok());
        read.find(|schema| TypeHash::of(schema) == Ok(self))
    }

    fn of_text(text: &str) -> TypeHash {
        TypeHash(Sha256::digest(text.as_bytes()).into())
    }

    /// Makes a hash from its bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> TypeHash {
        TypeHash(bytes)
    }

    /// The hash's bytes.
    pub const fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// The hash that the user data of a writer or reader of DDS has. The bytes may come from
    /// anybody.
    pub fn of_user_data(user_data: &[u8]) -> Option<TypeHash> {
        property(user_data, KEY)?.parse().ok()
    }

    /// The property of user data.
    pub fn to_user_data(self) -> alloc::string::String {
        alloc::format!("{KEY}={self};")
    }
}

impl fmt::Display for TypeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TypeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TypeHash({self})")
    }
}

impl FromStr for TypeHash {
    type Err = ParseTypeHashError;

    fn from_str(text: &str) -> Result<TypeHash, ParseTypeHashError> {
        let digits = text.strip_prefix(PREFIX).map(str::as_bytes).filter(|digits| digits.len() == 64);
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.ok_or(ParseTypeHashError)?.chunks(2)) {
            // ROS 2 writes lower case only.
            let digit = |c: u8| match c {
                b'0'..=b'9' => Ok(c - b'0'),
                b'a'..=b'f' => Ok(c - b'a' + 10),
                _ => Err(ParseTypeHashError),
            };
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(TypeHash(bytes))
    }
}

#[cfg(test)]
mod tests {
    use alloc::{format, string::ToString as _};

    use super::*;

    #[test]
    fn hashes_are_parsed_strictly() {
        let hash = TypeHash([0xab; 32]);
        assert_eq!(hash.to_string().parse(), Ok(hash));
        let digits = "ab".repeat(32);
        for text in
            ["".into(), digits.clone(), format!("RIHS01_{digits}a"), format!("RIHS01_{}", digits.to_uppercase())]
        {
            assert_eq!(text.parse::<TypeHash>(), Err(ParseTypeHashError), "{text}");
        }
        assert_eq!(format!("RIHS01_{}\u{e4}", &digits[2..]).parse::<TypeHash>(), Err(ParseTypeHashError));
    }
}
