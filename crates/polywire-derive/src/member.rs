//! The parts that members of structures and cases of unions have in common.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::{Error, Ident, LitStr, Type, ext::IdentExt};

use crate::{attributes::Attributes, attributes::check_name, idl_text, location};

/// The attributes that [`builder_calls`] handles.
pub const COMMON: [&str; 9] = ["name", "id", "hashid", "idl", "must_understand", "try_construct", "unit", "min", "max"];

/// The IDL name: that of the attribute, or the Rust name without `r#`.
pub fn name(attributes: &Attributes, ident: &Ident) -> syn::Result<LitStr> {
    match attributes.text("name")? {
        Some(name) => check_name(&name, false).map(|()| name),
        None => Ok(LitStr::new(&ident.unraw().to_string(), ident.span())),
    }
}

/// The default value of a member as an expression: that of `key`, or else that of its type.
pub fn default_value(attributes: &Attributes, key: &str, ty: &Type, support: &TokenStream) -> syn::Result<TokenStream> {
    Ok(match attributes.constant(key)? {
        Some(default) => {
            let default = default.to_lit(support)?;
            quote!(#support::default_value_or::<#ty>(#default))
        }
        None => quote_spanned!(location::at(ty)=> <#ty as #support::MessageField>::default_value()),
    })
}

/// The builder call for the default in `key`, if there is one.
pub fn default_call(attributes: &Attributes, key: &str, support: &TokenStream) -> syn::Result<TokenStream> {
    let default = attributes.constant(key)?.map(|default| default.to_lit(support)).transpose()?;
    Ok(default.map(|default| quote!(.default(#default))).unwrap_or_default())
}

/// The calls of a `support::MemberBuilder` for the attributes of a member or case.
pub fn builder_calls(attributes: &Attributes, name: &LitStr, support: &TokenStream) -> syn::Result<TokenStream> {
    let mut calls = TokenStream::new();
    if let Some(id) = attributes.number("id")? {
        attributes.refuse("hashid", "a member cannot have both 'id' and 'hashid'")?;
        let value: u32 = id.base10_parse()?;
        if value > 0x0FFF_FFFF {
            return Err(Error::new(id.span(), "a member id must be below 2^28"));
        }
        calls.extend(quote!(.id(#value)));
    }
    if attributes.span("hashid").is_some() {
        let of = if attributes.flag("hashid").is_ok() {
            name.clone()
        } else {
            attributes.text("hashid")?.unwrap_or(name.clone())
        };
        calls.extend(quote!(.hash_id(#of)));
    }
    if let Some(text) = attributes.text("idl")? {
        let text = idl_text::parse(&text, support)?;
        calls.extend(quote!(.idl(#text)));
    }
    if attributes.flag("must_understand")? {
        calls.extend(quote!(.must_understand()));
    }
    if let Some(how) = attributes.text("try_construct")? {
        let variant = match how.value().to_ascii_lowercase().as_str() {
            "discard" => quote!(Discard),
            "use_default" => quote!(UseDefault),
            "trim" => quote!(Trim),
            _ => return Err(Error::new(how.span(), "expected \"discard\", \"use_default\" or \"trim\"")),
        };
        calls.extend(quote!(.try_construct(#support::TryConstruct::#variant)));
    }
    for annotation in ["unit", "min", "max"] {
        if let Some(value) = attributes.constant(annotation)? {
            let value = value.to_lit(support)?;
            calls.extend(quote!(.annotation(#annotation, #value)));
        }
    }
    Ok(calls)
}
