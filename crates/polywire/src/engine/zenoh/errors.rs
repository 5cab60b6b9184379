//! Errors of Zenoh as text. Each says where in Zenoh's source it was made, and what caused it:
//! `WHAT at FILE:LINE. - Caused by WHY at FILE:LINE.`

/// The text of an error without the places in Zenoh's source, which mean nothing to users.
pub(super) fn text(error: impl ToString) -> String {
    let (whole, mut text) = (error.to_string(), String::new());
    let mut rest = &*whole;
    while let Some((before, after)) = rest.split_once(".rs:") {
        let behind = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
        match before.rsplit_once(" at ").filter(|_| behind.len() < after.len()) {
            Some((what, _)) => (text, rest) = (text + what, behind.strip_prefix('.').unwrap_or(behind)),
            None => (text, rest) = (text + before + ".rs:", after),
        }
    }
    (text + rest).replace(" - Caused by ", ": ")
}

#[cfg(test)]
mod tests {
    use zenoh::key_expr::OwnedKeyExpr;

    use super::text;

    #[test]
    fn places_in_the_source_are_left_out() {
        let file = "/a folder/registry/zenoh-1.10.2/src/net/runtime/orchestrator.rs";
        let bound = "Can not create a listener at tcp/[::1]:7447";
        let inner = format!("{bound}: [Address in use (os error 98) at {file}:343.]");
        let whole = format!("{inner} at {file}:12. - Caused by it is closed at C:\\a b\\link.rs:9.");
        assert_eq!(text(whole), format!("{bound}: [Address in use (os error 98)]: it is closed"));
        for plain in ["", "a timeout", "it failed at a.rs: no line", "no place.rs:7."] {
            assert_eq!(text(plain), plain);
        }
    }

    #[test]
    fn an_error_of_zenoh_has_no_place() {
        let error = OwnedKeyExpr::new("a//b").expect_err("no key");
        assert!(error.to_string().contains(".rs:"), "{error}");
        let told = text(error);
        assert!(told.contains("a//b") && !told.contains(".rs"), "{told}");
    }
}
