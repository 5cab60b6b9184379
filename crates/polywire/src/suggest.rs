//! "Did you mean" hints for mistyped names, for error messages of tools.

/// Returns the name in `known` that is nearest to `word`. `None` if every name differs by more than
/// about one edit for three letters.
///
/// ```
/// use polywire::suggest::{hint, nearest};
/// assert_eq!(nearest("jsn", ["cdr", "json"]), Some("json"));
/// assert_eq!(hint("jsn", ["cdr", "json"]), ", did you mean 'json'?");
/// assert_eq!(hint("protobuf", ["cdr", "json"]), "");
/// ```
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = (word.chars().count() / 3).max(1) + 1;
    let near = known.into_iter().map(|name| (distance(word, name), name)).filter(|(distance, _)| *distance <= most);
    near.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// Returns the text `, did you mean 'x'?` for the nearest name, or an empty text if none is near.
pub fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map(|name| format!(", did you mean '{name}'?")).unwrap_or_default()
}

/// Returns the hint for a `serde` message about an unknown field or variant. Such a message has the
/// unknown name in back quotes, and then the known names.
///
/// ```
/// use polywire::suggest::unknown_name;
/// let hint = unknown_name("unknown field `wrie`, expected `wire` or `queue`");
/// assert_eq!(hint, ", did you mean 'wire'?");
/// ```
pub fn unknown_name(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let is_unknown = ["unknown field", "unknown variant"].iter().any(|kind| message.starts_with(kind));
    match (is_unknown, quoted.next()) {
        (true, Some(word)) => hint(word, quoted),
        _ => String::new(),
    }
}

/// The edit distance: insertions, deletions, replacements and swaps of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        assert_eq!(distance("tpc", "tcp"), 1);
        assert_eq!(nearest("tpc", ["udp", "tcp", "unix"]), Some("tcp"));
        assert_eq!(nearest("jsno", ["cdr", "json", "bson"]), Some("json"));
        assert_eq!(nearest("protobuf", ["cdr", "json"]), None);
    }
}
