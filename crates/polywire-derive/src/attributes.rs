//! Parses `#[polywire(..)]`. Errors point at the wrong entry.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{
    Attribute, Error, Ident, Lit, LitInt, LitStr, Token,
    ext::IdentExt,
    parenthesized,
    parse::{Parse, ParseStream},
    punctuated::Punctuated,
};

/// The entries of all `#[polywire(..)]` of one type, field or variant. Unknown entries are refused
/// when they are read.
pub struct Attributes {
    entries: Vec<Entry>,
}

struct Entry {
    key: Ident,
    /// The name by which it is looked up: the key, or `key=` for a key with a value where both
    /// exist.
    name: String,
    value: Value,
}

enum Value {
    Flag,
    Is(Constant),
    List(TokenStream),
}

/// A literal, possibly with a minus sign.
#[derive(Clone)]
pub struct Constant {
    minus: Option<Token![-]>,
    lit: Lit,
}

impl Attributes {
    /// Reads the attributes of `place`, such as "a member". Only the entries in `known` are
    /// allowed.
    pub fn read(attributes: &[Attribute], place: &str, known: &[&str]) -> syn::Result<Attributes> {
        let mut entries: Vec<Entry> = Vec::new();
        for attribute in attributes.iter().filter(|a| a.path().is_ident("polywire")) {
            for mut entry in attribute.parse_args_with(Punctuated::<Entry, Token![,]>::parse_terminated)? {
                // If both are known, `default` and `default = 5` are different entries.
                let with_value = format!("{}=", entry.key);
                entry.name = match entry.value {
                    Value::Is(_) if known.contains(&with_value.as_str()) => with_value,
                    _ => entry.key.to_string(),
                };
                let key = &entry.name;
                if !known.contains(&key.as_str()) {
                    return Err(unknown(&entry.key, place, known));
                }
                if entries.iter().any(|e| e.name == *key) {
                    return Err(Error::new(entry.key.span(), format!("duplicate attribute '{key}'")));
                }
                entries.push(entry);
            }
        }
        Ok(Attributes { entries })
    }

    /// Whether `key` is there, without a value.
    pub fn flag(&self, key: &str) -> syn::Result<bool> {
        match self.find(key) {
            None => Ok(false),
            Some(Entry { value: Value::Flag, .. }) => Ok(true),
            Some(entry) => Err(entry.wrong(&format!("write just '{key}'"))),
        }
    }

    /// The value of `key = "text"`.
    pub fn text(&self, key: &str) -> syn::Result<Option<LitStr>> {
        match self.find(key) {
            None => Ok(None),
            Some(Entry { value: Value::Is(Constant { minus: None, lit: Lit::Str(text) }), .. }) => {
                Ok(Some(text.clone()))
            }
            Some(entry) => Err(entry.wrong(&format!("write {key} = \"..\""))),
        }
    }

    /// The value of `key = 5`.
    pub fn number(&self, key: &str) -> syn::Result<Option<LitInt>> {
        match self.find(key) {
            None => Ok(None),
            Some(Entry { value: Value::Is(Constant { minus: None, lit: Lit::Int(number) }), .. }) => {
                Ok(Some(number.clone()))
            }
            Some(entry) => Err(entry.wrong(&format!("write {key} = 5 or another number"))),
        }
    }

    /// The value of `key = -1.5` or any other literal.
    pub fn constant(&self, key: &str) -> syn::Result<Option<Constant>> {
        match self.find(key) {
            None => Ok(None),
            Some(Entry { value: Value::Is(constant), .. }) => Ok(Some(constant.clone())),
            Some(entry) => Err(entry.wrong(&format!("write {key} = followed by a literal"))),
        }
    }

    /// The tokens of `key(..)`.
    pub fn list(&self, key: &str) -> syn::Result<Option<TokenStream>> {
        match self.find(key) {
            None => Ok(None),
            Some(Entry { value: Value::List(tokens), .. }) => Ok(Some(tokens.clone())),
            Some(entry) => Err(entry.wrong(&format!("write {key}(..)"))),
        }
    }

    /// The location of `key`, if it is there.
    pub fn span(&self, key: &str) -> Option<Span> {
        self.find(key).map(|e| e.key.span())
    }

    /// Returns an error at `key`, if it is there.
    pub fn refuse(&self, key: &str, what: &str) -> syn::Result<()> {
        self.span(key).map_or(Ok(()), |span| Err(Error::new(span, what)))
    }

    fn find(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.name == key)
    }
}

impl Entry {
    fn wrong(&self, what: &str) -> Error {
        Error::new(self.key.span(), what)
    }
}

impl Parse for Entry {
    fn parse(input: ParseStream<'_>) -> syn::Result<Entry> {
        // Some keys are keywords of Rust: `final`, `default`, `crate`.
        let key = Ident::parse_any(input)?;
        let value = if input.peek(Token![=]) {
            input.parse::<Token![=]>()?;
            Value::Is(input.parse()?)
        } else if input.peek(syn::token::Paren) {
            let content;
            parenthesized!(content in input);
            Value::List(content.parse()?)
        } else {
            Value::Flag
        };
        Ok(Entry { name: key.to_string(), key, value })
    }
}

impl Parse for Constant {
    fn parse(input: ParseStream<'_>) -> syn::Result<Constant> {
        let minus: Option<Token![-]> = input.parse()?;
        let lit: Lit = input.parse()?;
        if minus.is_some() && !matches!(lit, Lit::Int(_) | Lit::Float(_)) {
            return Err(Error::new(lit.span(), "only a number can be negative"));
        }
        Ok(Constant { minus, lit })
    }
}

impl Constant {
    /// The literal as an expression of type `support::Lit`.
    pub fn to_lit(&self, support: &TokenStream) -> syn::Result<TokenStream> {
        let minus = &self.minus;
        Ok(match &self.lit {
            Lit::Bool(b) => quote!(#support::Lit::Bool(#b)),
            Lit::Int(i) => {
                let value: u128 = i.base10_parse()?;
                let value = proc_macro2::Literal::u128_unsuffixed(value);
                quote!(#support::Lit::Int(#minus #value))
            }
            Lit::Float(f) => {
                let value: f64 = f.base10_parse()?;
                let value = proc_macro2::Literal::f64_suffixed(value);
                quote!(#support::Lit::Float(#minus #value))
            }
            Lit::Byte(b) => {
                let value = b.value();
                quote!(#support::Lit::Int(#value as i128))
            }
            Lit::Char(c) => quote!(#support::Lit::Char(#c)),
            Lit::Str(s) => quote!(#support::Lit::Text(#s)),
            other => return Err(Error::new(other.span(), "expected a number, boolean, character or string")),
        })
    }
}

impl ToTokens for Constant {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.minus.to_tokens(tokens);
        self.lit.to_tokens(tokens);
    }
}

/// The attributes that all definitions have, as an expression of type `support::Definition`.
pub fn definition(attributes: &Attributes, ident: &Ident, support: &TokenStream) -> syn::Result<TokenStream> {
    let name = match attributes.text("name")? {
        Some(name) => {
            check_name(&name, true)?;
            name.value()
        }
        None => ident.unraw().to_string(),
    };
    let mut extensibility = quote!(Appendable);
    let mut given: Option<&str> = None;
    for (key, variant) in [("final", quote!(Final)), ("appendable", quote!(Appendable)), ("mutable", quote!(Mutable))] {
        if attributes.flag(key)? {
            if let Some(other) = given {
                attributes.refuse(key, &format!("the extensibility is '{other}' already; remove one of the two"))?;
            }
            given = Some(key);
            extensibility = variant;
        }
    }
    let nested = attributes.flag("nested")?;
    let hash_ids = match attributes.text("autoid")? {
        None => false,
        Some(text) => match text.value().to_ascii_lowercase().as_str() {
            "hash" => true,
            "sequential" => false,
            _ => return Err(Error::new(text.span(), "expected \"hash\" or \"sequential\"")),
        },
    };
    Ok(quote! {
        #support::Definition {
            name: #name,
            extensibility: #support::Extensibility::#extensibility,
            nested: #nested,
            hash_ids: #hash_ids,
        }
    })
}

/// Refuses names that are not IDL identifiers.
pub fn check_name(name: &LitStr, scoped: bool) -> syn::Result<()> {
    let text = name.value();
    let is_identifier = |part: &str| {
        let mut chars = part.chars();
        chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
            && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let good = if scoped { text.split("::").all(is_identifier) } else { is_identifier(&text) };
    match good {
        true => Ok(()),
        false => Err(Error::new(name.span(), "expected an IDL identifier")),
    }
}

fn unknown(key: &Ident, place: &str, known: &[&str]) -> Error {
    let name = key.to_string();
    let near = known.iter().map(|k| (distance(k, &name), k)).min().filter(|(d, k)| *d <= 1 + k.len() / 4);
    let advice = match near {
        Some((_, near)) => format!("did you mean '{near}'?"),
        None => format!("there are: {}", known.join(", ")),
    };
    Error::new(key.span(), format!("{place} has no attribute '{name}'; {advice}"))
}

/// The number of edits between two words: insertions, deletions, replacements and swaps of
/// neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// The location of the first token, for errors.
pub fn span_of(tokens: &TokenStream) -> Span {
    tokens.clone().into_iter().next().map_or_else(Span::call_site, |t: TokenTree| t.span())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_one_edit() {
        assert_eq!(distance("default", "defualt"), 1);
        assert_eq!(distance("key", "keys"), 1);
        assert_eq!(distance("nested", "nestd"), 1);
        assert_eq!(distance("id", "name"), 4);
    }

    #[test]
    fn unknown_keys_are_answered_with_the_nearest() {
        let attributes = [syn::parse_quote!(#[polywire(must_undrestand)])];
        let error = Attributes::read(&attributes, "a member", &["key", "must_understand"]).err().unwrap();
        assert_eq!(error.to_string(), "a member has no attribute 'must_undrestand'; did you mean 'must_understand'?");
    }
}
