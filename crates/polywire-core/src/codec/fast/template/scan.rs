//! Checks the limits of a document before the XML parser reads it. The parser has no limits of its
//! own: its run time grows with the square of the number of attributes and namespaces, and its
//! stack use with the depth. `read` calls this file. It reads the text only.

use alloc::{format, string::String};

use super::TemplateLimits;

/// Largest number of attributes of an element, including namespaces. Template elements have at most
/// eight attributes.
const MAX_ATTRIBUTES: usize = 64;

/// Largest number of namespaces in a document.
const MAX_NAMESPACES: usize = 256;

/// Additional nesting around groups and sequences: the document, the template, a field and its
/// operator, and elements of other namespaces.
const AROUND: usize = 8;

/// Checks a document against the limits. Returns the offset and a description of the first excess.
/// All other errors are left to the parser.
pub(super) fn scan(xml: &str, limits: &TemplateLimits) -> Result<(), (usize, String)> {
    let (bytes, mut at, mut depth, mut namespaces) = (xml.as_bytes(), 0, 0usize, 0);
    while let Some(tag) = find(bytes, at, b"<") {
        let rest = &bytes[tag..];
        let end = match rest.get(1) {
            Some(b'!') if rest.starts_with(b"<!--") => find(bytes, tag + 4, b"-->"),
            Some(b'!') if rest.starts_with(b"<![CDATA[") => find(bytes, tag + 9, b"]]>"),
            // The parser refuses document type definitions and reads nothing after them.
            Some(b'!') | None => return Ok(()),
            Some(b'?') => find(bytes, tag + 2, b"?>"),
            Some(b'/') => {
                depth = depth.saturating_sub(1);
                find(bytes, tag + 2, b">")
            }
            Some(_) => {
                let element = Element::of(&rest[1..]);
                namespaces += element.namespaces;
                depth += 1;
                if element.attributes > MAX_ATTRIBUTES {
                    return Err((tag, format!("an element has more than {MAX_ATTRIBUTES} attributes")));
                }
                if namespaces > MAX_NAMESPACES {
                    return Err((tag, format!("there are more than {MAX_NAMESPACES} namespaces")));
                }
                if depth > limits.depth + AROUND {
                    return Err((tag, "elements are nested too deeply".into()));
                }
                depth -= usize::from(element.is_empty);
                Some(tag + element.len)
            }
        };
        match end {
            Some(end) => at = end,
            None => return Ok(()),
        }
    }
    Ok(())
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    let rest = bytes.get(from..)?;
    match what {
        [byte] => rest.iter().position(|b| b == byte),
        _ => rest.windows(what.len()).position(|window| window == what),
    }
    .map(|found| from + found)
}

/// A start tag.
#[derive(Default)]
struct Element {
    attributes: usize,
    namespaces: usize,
    /// True if it ends with `/>`.
    is_empty: bool,
    /// Length in bytes up to its end.
    len: usize,
}

impl Element {
    /// Scans a tag, starting after its `<`. Text in quotes is not markup.
    fn of(bytes: &[u8]) -> Element {
        let (mut element, mut quote, mut word) = (Element { len: bytes.len(), ..Element::default() }, None, 0);
        for (i, byte) in bytes.iter().enumerate() {
            match (quote, byte) {
                (Some(open), byte) if byte == open => quote = None,
                (Some(_), _) => {}
                (None, b'"' | b'\'') => {
                    quote = Some(byte);
                    element.attributes += 1;
                    element.namespaces += usize::from(bytes[word..].starts_with(b"xmlns"));
                }
                (None, b'>') => {
                    element.is_empty = bytes[..i].ends_with(b"/");
                    element.len = i + 1;
                    break;
                }
                // White space may separate the name, the `=` and the value.
                (None, byte) if !byte.is_ascii_whitespace() && *byte != b'=' => {
                    let starts = i == 0 || bytes[i - 1].is_ascii_whitespace() || matches!(bytes[i - 1], b'"' | b'\'');
                    word = if starts { i } else { word };
                }
                _ => {}
            }
        }
        element
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(xml: &str) -> String {
        scan(xml, &TemplateLimits::default()).expect_err(xml).1
    }

    fn passes(xml: &str) {
        assert_eq!(scan(xml, &TemplateLimits::default()), Ok(()), "{xml}");
    }

    #[test]
    fn quotes_comments_and_instructions_hide_no_element() {
        let deep = |open: &str, close: &str| open.repeat(60) + &close.repeat(60);
        for open in [
            "<a>",
            "<a b='/>'>",
            "<a b=\"</a>\">",
            "<a b = '>' c='</'>",
            "<a>/>",
            "<a><!--</a>-->",
            "<a><?x />?>",
            "<a><![CDATA[</a>]]>",
        ] {
            assert!(refused(&deep(open, "</a>")).contains("nested"), "{open}");
            passes(&(open.repeat(30) + &"</a>".repeat(30)));
        }
        for flat in ["<a/>", "<a b='>'/>", "<a></a>", "<!--<a>-->", "<?x <a> ?>", "<![CDATA[<a>]]>", "<a b='<a>' />"] {
            passes(&flat.repeat(1000));
        }
        passes("<");
        passes("<a b='");
        passes("<!--");
        passes("<!DOCTYPE a [ <!ENTITY b '<a>'> ]>");
    }

    #[test]
    fn attributes_and_namespaces_are_counted() {
        let attributes = |n: usize| (0..n).map(|i| format!(" a{i} = '='")).collect::<String>();
        passes(&format!("<a{}>", attributes(64)));
        assert!(refused(&format!("<a{}>", attributes(65))).contains("attributes"));
        let spaces = |n: usize| (0..n).map(|i| format!("<a xmlns:n{i}\n=\n'u{i}' b='xmlns'/>")).collect::<String>();
        passes(&spaces(256));
        assert!(refused(&spaces(257)).contains("namespaces"));
        assert!(refused(&"<a b='c'xmlns='d'/>".repeat(257)).contains("namespaces"));
    }
}
