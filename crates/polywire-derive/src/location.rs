//! The paths of Polywire in generated code, and the locations that errors in it point at.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use std::{env, fs, path::Path};
use syn::{LitStr, Type, spanned::Spanned};

/// The path of the support module that generated code calls: the one of the attribute `crate`, or
/// through the crate that the user depends on.
pub fn support(given: Option<LitStr>) -> syn::Result<TokenStream> {
    if let Some(text) = given {
        let path: syn::Path = text.parse()?;
        return Ok(quote!(#path::layout::support));
    }
    // The tests of the core and of the facade can also name the core.
    let package = env::var("CARGO_PKG_NAME").unwrap_or_default();
    let through_core = matches!(package.as_str(), "polywire" | "polywire-core" | "polywire-derive")
        || env::var_os("CARGO_MANIFEST_DIR").is_some_and(|folder| names_only_core(Path::new(&folder)));
    Ok(match through_core {
        true => quote!(::polywire_core::layout::support),
        false => quote!(::polywire::__private::layout::support),
    })
}

/// The span for generated code that does not compile if a member's type is unsuitable: errors then
/// point at the type. Names resolve at the derive, because a type that was passed to a
/// `macro_rules!` has another context than the structure and would not see our variables.
pub fn at(ty: &Type) -> Span {
    Span::call_site().located_at(ty.span())
}

/// Whether a manifest depends on `polywire-core` and not on `polywire`.
fn names_only_core(folder: &Path) -> bool {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    depends_on(&manifest, "polywire-core") && !depends_on(&manifest, "polywire")
}

/// Searches for a line with `name = ..`, `name.workspace = ..` or `[dependencies.name]`. Users who
/// rename the crate must write `crate = ".."`.
fn depends_on(manifest: &str, name: &str) -> bool {
    let mut in_dependencies = false;
    manifest.lines().map(str::trim).any(|line| {
        if let Some(table) = line.strip_prefix('[').and_then(|l| l.split(']').next()) {
            in_dependencies = table.ends_with("dependencies");
            return table.contains("dependencies.") && table.ends_with(&format!(".{name}"));
        }
        let key = line.split(['=', '.', ' ']).next().unwrap_or_default().trim_matches('"');
        in_dependencies && key == name
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_found_however_they_are_written() {
        for manifest in [
            "[dependencies]\npolywire = \"0.1\"",
            "[dev-dependencies]\npolywire.workspace = true",
            "[target.'cfg(unix)'.dependencies]\npolywire={path=\"..\"}",
            "[dependencies.polywire]\nversion = \"0.1\"",
        ] {
            assert!(depends_on(manifest, "polywire"), "{manifest}");
            assert!(!depends_on(manifest, "polywire-core"), "{manifest}");
        }
        assert!(!depends_on("[package]\npolywire = 1", "polywire"));
        assert!(!depends_on("[dependencies]\npolywire-core = \"0.1\"", "polywire"));
    }
}
