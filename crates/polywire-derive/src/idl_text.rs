//! Parses the IDL type of `idl = ".."`: primitives, `string<4>`, `sequence<.., 4>`, `map<.., ..>`
//! and names, each with optional array dimensions.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, LitStr};

/// The type as an expression of type `support::TypeText`.
pub fn parse(text: &LitStr, support: &TokenStream) -> syn::Result<TokenStream> {
    let whole = text.value();
    let mut parser = Parser { tokens: tokens(&whole), support };
    let parsed = parser.ty(0).and_then(|ty| match parser.tokens.is_empty() {
        true => Ok(ty),
        false => Err(parser.expected("the end")),
    });
    parsed.map_err(|what| Error::new(text.span(), format!("{what} in the IDL type '{whole}'")))
}

/// The type of a discriminator as an expression of type `support::Type`.
pub fn parse_primitive(text: &LitStr, support: &TokenStream) -> syn::Result<TokenStream> {
    let whole = text.value();
    let mut parser = Parser { tokens: tokens(&whole), support };
    match parser.primitive() {
        Some(ty) if parser.tokens.is_empty() => Ok(ty),
        _ => Err(Error::new(
            text.span(),
            "expected a primitive IDL type as 'long' or 'boolean'; for an enum use switch_type",
        )),
    }
}

/// The most nested sequences. The parser is recursive, so this bounds its stack.
const MAX_DEPTH: usize = 16;

struct Parser<'a> {
    tokens: Vec<&'a str>,
    support: &'a TokenStream,
}

impl Parser<'_> {
    fn ty(&mut self, depth: usize) -> Result<TokenStream, String> {
        if depth > MAX_DEPTH {
            return Err("too many types inside each other".into());
        }
        let support = self.support;
        let mut ty = match self.tokens.first().copied() {
            Some("string" | "wstring") => self.string()?,
            Some("sequence") => {
                self.skip(1);
                self.take("<")?;
                let element = self.ty(depth + 1)?;
                let bound = self.bound_after_comma()?;
                self.take(">")?;
                quote!(#support::TypeText::sequence(#element, #bound))
            }
            Some("map") => {
                self.skip(1);
                self.take("<")?;
                let key = self.ty(depth + 1)?;
                self.take(",")?;
                let value = self.ty(depth + 1)?;
                let bound = self.bound_after_comma()?;
                self.take(">")?;
                quote!(#support::TypeText::map(#key, #value, #bound))
            }
            _ => match self.primitive() {
                Some(ty) => quote!(#support::TypeText::Is(#ty)),
                None => self.scoped_name()?,
            },
        };
        let mut dims = Vec::new();
        while self.tokens.first() == Some(&"[") {
            self.skip(1);
            dims.push(self.number()?);
            self.take("]")?;
        }
        if !dims.is_empty() {
            ty = quote!(#support::TypeText::array(#ty, &[#(#dims),*]));
        }
        Ok(ty)
    }

    fn string(&mut self) -> Result<TokenStream, String> {
        let support = self.support;
        let wide = self.tokens.first() == Some(&"wstring");
        self.skip(1);
        let mut bound = 0;
        if self.tokens.first() == Some(&"<") {
            self.skip(1);
            bound = self.number()?;
            self.take(">")?;
        }
        Ok(match wide {
            true => quote!(#support::TypeText::Is(#support::Type::WString { bound: #bound })),
            false => quote!(#support::TypeText::Is(#support::Type::String { bound: #bound })),
        })
    }

    fn primitive(&mut self) -> Option<TokenStream> {
        const NAMES: [(&[&str], &str); 25] = [
            (&["unsigned", "long", "long"], "Uint64"),
            (&["unsigned", "long"], "Uint32"),
            (&["unsigned", "short"], "Uint16"),
            (&["long", "long"], "Int64"),
            (&["long", "double"], "Float128"),
            (&["long"], "Int32"),
            (&["short"], "Int16"),
            (&["boolean"], "Bool"),
            (&["octet"], "Octet"),
            (&["byte"], "Octet"),
            (&["int8"], "Int8"),
            (&["uint8"], "Uint8"),
            (&["int16"], "Int16"),
            (&["uint16"], "Uint16"),
            (&["int32"], "Int32"),
            (&["uint32"], "Uint32"),
            (&["int64"], "Int64"),
            (&["uint64"], "Uint64"),
            (&["float"], "Float32"),
            (&["double"], "Float64"),
            (&["float32"], "Float32"),
            (&["float64"], "Float64"),
            (&["float128"], "Float128"),
            (&["char"], "Char8"),
            (&["wchar"], "Char16"),
        ];
        let (words, name) = NAMES.iter().find(|(words, _)| self.tokens.starts_with(words))?;
        self.skip(words.len());
        let (support, name) = (self.support, proc_macro2::Ident::new(name, proc_macro2::Span::call_site()));
        Some(quote!(#support::Type::#name))
    }

    fn scoped_name(&mut self) -> Result<TokenStream, String> {
        let support = self.support;
        match self.tokens.first() {
            Some(name) if name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == ':') => {
                let name = *name;
                self.skip(1);
                Ok(quote!(#support::TypeText::Named(#name)))
            }
            _ => Err(self.expected("a type")),
        }
    }

    fn bound_after_comma(&mut self) -> Result<u32, String> {
        if self.tokens.first() != Some(&",") {
            return Ok(0);
        }
        self.skip(1);
        self.number()
    }

    fn number(&mut self) -> Result<u32, String> {
        match self.tokens.first().and_then(|t| t.parse::<u32>().ok()).filter(|n| *n > 0) {
            Some(number) => {
                self.skip(1);
                Ok(number)
            }
            None => Err(self.expected("a number above zero")),
        }
    }

    fn take(&mut self, token: &str) -> Result<(), String> {
        match self.tokens.first() == Some(&token) {
            true => {
                self.skip(1);
                Ok(())
            }
            false => Err(self.expected(&format!("'{token}'"))),
        }
    }

    fn skip(&mut self, count: usize) {
        self.tokens.drain(..count);
    }

    fn expected(&self, what: &str) -> String {
        match self.tokens.first() {
            Some(found) => format!("expected {what}, found '{found}'"),
            None => format!("expected {what}, found the end"),
        }
    }
}

/// Splits the text into words (including `::`), numbers and single characters.
fn tokens(text: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let end = match is_word(first) {
            true => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (token, after) = rest.split_at(end);
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;
    use proc_macro2::Span;

    fn parsed(text: &str) -> Result<String, String> {
        let tokens = parse(&LitStr::new(text, Span::call_site()), &quote!(s));
        tokens.map(|t| t.to_string().replace(' ', "")).map_err(|e| e.to_string())
    }

    #[test]
    fn types_inside_types() {
        let want = "s::TypeText::sequence(s::TypeText::Is(s::Type::String{bound:4u32}),4u32)";
        assert_eq!(parsed("sequence<string<4>, 4>").unwrap(), want);
        let want = "s::TypeText::map(s::TypeText::Is(s::Type::Int64),s::TypeText::Named(\"A::B\"),0u32)";
        assert_eq!(parsed("map<long long,A::B>").unwrap(), want);
        let want = "s::TypeText::array(s::TypeText::Is(s::Type::Float128),&[2u32,3u32])";
        assert_eq!(parsed(" long  double [2][3] ").unwrap(), want);
    }

    #[test]
    fn mistakes_say_where() {
        let cases = [
            ("sequence<octet", "expected '>', found the end in the IDL type 'sequence<octet'"),
            ("string<0>", "expected a number above zero, found '0' in the IDL type 'string<0>'"),
            ("octet octet", "expected the end, found 'octet' in the IDL type 'octet octet'"),
            ("", "expected a type, found the end in the IDL type ''"),
        ];
        for (text, want) in cases {
            assert_eq!(parsed(text).unwrap_err(), want);
        }
        assert!(parsed(&"sequence<".repeat(1000)).is_err());
    }
}
