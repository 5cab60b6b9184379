//! Bitmasks and bitsets: structures around one unsigned integer.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::quote;
use syn::{
    DataStruct, DeriveInput, Error, Fields, LitInt, LitStr, Token,
    ext::IdentExt,
    parenthesized,
    parse::{Parse, ParseStream, Parser},
    punctuated::Punctuated,
};

use crate::{
    attributes::{Attributes, definition, span_of},
    idl_text, location, structure,
};

const CONTAINER: [&str; 9] =
    ["name", "crate", "final", "appendable", "mutable", "nested", "autoid", "bitmask", "bitset"];

/// Whether the type has `#[polywire(bitmask(..))]` or `#[polywire(bitset(..))]`.
pub fn is_bits(input: &DeriveInput) -> bool {
    let polywire = input.attrs.iter().filter(|a| a.path().is_ident("polywire"));
    polywire.filter_map(|a| a.meta.require_list().ok()).any(|list| has_bits(list.tokens.clone()))
}

/// Whether an entry of the attribute begins with the word and a list in parentheses. A name or a
/// default may contain the word as well.
fn has_bits(tokens: TokenStream) -> bool {
    let mut begins = true;
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let is_word = matches!(&token, TokenTree::Ident(word) if word == "bitmask" || word == "bitset");
        if begins && is_word && matches!(tokens.peek(), Some(TokenTree::Group(_))) {
            return true;
        }
        begins = matches!(&token, TokenTree::Punct(comma) if comma.as_char() == ',');
    }
    false
}

pub fn derive(input: &DeriveInput, data: &DataStruct) -> syn::Result<TokenStream> {
    let attributes = Attributes::read(&input.attrs, "a bitmask or bitset", &CONTAINER)?;
    let support = location::support(attributes.text("crate")?)?;
    let ident = &input.ident;
    let def = definition(&attributes, ident, &support)?;
    let inner = match &data.fields {
        Fields::Unnamed(fields) if fields.unnamed.len() == 1 => &fields.unnamed[0].ty,
        _ => {
            return Err(Error::new_spanned(
                ident,
                "a bitmask or bitset wraps one integer, as in `struct Equipment(pub u8)`",
            ));
        }
    };
    let call = match (attributes.list("bitmask")?, attributes.list("bitset")?) {
        (Some(list), None) => bitmask(&list, &def, inner)?,
        (None, Some(list)) => bitset(&list, &def, inner, &support)?,
        _ => return Err(Error::new_spanned(ident, "write either bitmask(..) or bitset(..), not both")),
    };
    let message = structure::message(ident, &support);
    Ok(quote! {
        const _: () = {
            const _: () = #support::assert_transparent::<#ident, #inner>(::core::mem::offset_of!(#ident, 0));

            // SAFETY: `assert_transparent` checks that the type has the layout of the integer that
            // it wraps.
            unsafe impl #support::MessageField for #ident {
                fn default_value() -> Self {
                    #ident(<#inner as #support::MessageField>::default_value())
                }

                fn describe(describe: &mut #support::Describe) -> #support::Described {
                    // SAFETY: the description is that of the integer, which has the same layout.
                    unsafe { #call }
                }

                fn from_lit(lit: #support::Lit) -> ::core::option::Option<Self> {
                    <#inner as #support::MessageField>::from_lit(lit).map(#ident)
                }
            }
        };
        #message
    })
}

fn bitmask(list: &TokenStream, def: &TokenStream, inner: &syn::Type) -> syn::Result<TokenStream> {
    let entries = Punctuated::<Flag, Token![,]>::parse_terminated.parse2(list.clone())?;
    let mut bit_bound = 32u8;
    let mut flags = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let value: u8 = entry.value.base10_parse()?;
        // A flag may also have the name `bit_bound`.
        if index == 0 && entry.name == "bit_bound" {
            if !(1..=64).contains(&value) {
                return Err(Error::new(entry.value.span(), "a bitmask has 1 to 64 bits"));
            }
            bit_bound = value;
        } else {
            flags.push((entry.name.unraw().to_string(), value, entry.value.span()));
        }
    }
    if let Some((.., span)) = flags.iter().find(|(_, position, _)| *position >= bit_bound) {
        return Err(Error::new(*span, format!("the highest bit is {}", bit_bound - 1)));
    }
    let flags = flags.iter().map(|(name, position, _)| quote!((#name, #position)));
    Ok(quote!(describe.bitmask::<Self, #inner>(#def, #bit_bound, &[#(#flags),*])))
}

struct Flag {
    name: Ident,
    value: LitInt,
}

impl Parse for Flag {
    fn parse(input: ParseStream<'_>) -> syn::Result<Flag> {
        let name = Ident::parse_any(input)?;
        input.parse::<Token![=]>()?;
        Ok(Flag { name, value: input.parse()? })
    }
}

fn bitset(list: &TokenStream, def: &TokenStream, inner: &syn::Type, support: &TokenStream) -> syn::Result<TokenStream> {
    let entries = Punctuated::<BitEntry, Token![,]>::parse_terminated.parse2(list.clone())?;
    if entries.is_empty() {
        return Err(Error::new(span_of(list), "a bitset needs fields, as in bitset(mode(3), _(2), valid(1))"));
    }
    let (mut base, mut fields) = (quote!(::core::option::Option::None), Vec::new());
    for entry in &entries {
        match entry {
            BitEntry::Base(path) => {
                let path: syn::Path = path.parse()?;
                base = quote!(::core::option::Option::Some(describe.switch_type::<#path>()));
            }
            BitEntry::Field(field) => fields.push(field.to_field(support)?),
        }
    }
    Ok(quote! {{
        let base = #base;
        describe.bitset::<Self, #inner>(#def, base, #support::Vec::from([#(#fields),*]))
    }})
}

/// An entry of a bitset: `base = "path"`, or a field.
enum BitEntry {
    Base(LitStr),
    Field(BitField),
}

impl Parse for BitEntry {
    fn parse(input: ParseStream<'_>) -> syn::Result<BitEntry> {
        // A field may also have the name `base`.
        if input.peek2(Token![=]) {
            let key = Ident::parse_any(input)?;
            if key != "base" {
                return Err(Error::new(key.span(), "expected a field as in mode(3), or base = \"path\""));
            }
            input.parse::<Token![=]>()?;
            return input.parse().map(BitEntry::Base);
        }
        input.parse().map(BitEntry::Field)
    }
}

struct BitField {
    name: Option<Ident>,
    width: LitInt,
    ty: Option<LitStr>,
}

impl Parse for BitField {
    fn parse(input: ParseStream<'_>) -> syn::Result<BitField> {
        let name = match input.peek(Token![_]) {
            true => input.parse::<Token![_]>().map(|_| None)?,
            false => Some(Ident::parse_any(input)?),
        };
        let content;
        parenthesized!(content in input);
        let width = content.parse()?;
        let ty = match content.is_empty() {
            true => None,
            false => {
                content.parse::<Token![,]>()?;
                Some(content.parse()?)
            }
        };
        Ok(BitField { name, width, ty })
    }
}

impl BitField {
    fn to_field(&self, support: &TokenStream) -> syn::Result<TokenStream> {
        let width: u8 = self.width.base10_parse()?;
        if !(1..=64).contains(&width) {
            return Err(Error::new(self.width.span(), "a field has 1 to 64 bits"));
        }
        let name = match &self.name {
            Some(name) => {
                let name = name.unraw().to_string();
                quote!(::core::option::Option::Some(#name))
            }
            None => quote!(::core::option::Option::None),
        };
        let ty = match &self.ty {
            Some(text) => {
                let ty = idl_text::parse_primitive(text, support)?;
                quote!(::core::option::Option::Some(#ty))
            }
            None => quote!(::core::option::Option::None),
        };
        Ok(quote!(#support::bit_field(#name, #width, #ty)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_attribute_makes_a_bitmask() {
        let bits = |text: &str| is_bits(&syn::parse_str(text).expect("an item"));
        assert!(bits("#[polywire(bitmask(bit_bound = 8, A = 0))] struct S(u8);"));
        assert!(bits("#[polywire(name = \"S\", final)] #[polywire(final, bitset(a(3)))] struct S(u64);"));
        assert!(!bits("#[polywire(name = \"Plant::bitmask_state\")] struct S { a: u8 }"));
        assert!(!bits("#[polywire(name = \"bitset(a(3))\", crate = \"bitset\")] struct S { a: u8 }"));
        assert!(!bits("#[other(bitmask(A = 0))] struct S { a: u8 }"));
    }
}
