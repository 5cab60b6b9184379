//! The derive for enums without fields.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DataEnum, DeriveInput, Error};

use crate::{
    attributes::{Attributes, definition},
    location, member, structure,
};

const CONTAINER: [&str; 8] = ["name", "crate", "final", "appendable", "mutable", "nested", "autoid", "bit_bound"];
const VARIANT: [&str; 2] = ["name", "default_literal"];

pub fn derive(input: &DeriveInput, data: &DataEnum) -> syn::Result<TokenStream> {
    let attributes = Attributes::read(&input.attrs, "an enum without data", &CONTAINER)?;
    let support = location::support(attributes.text("crate")?)?;
    let ident = &input.ident;
    let def = definition(&attributes, ident, &support)?;
    check_memory(input, data)?;
    let bit_bound: u8 = match attributes.number("bit_bound")? {
        Some(bits) => match bits.base10_parse()? {
            n @ 1..=32 => n,
            _ => return Err(Error::new(bits.span(), "an enum has 1 to 32 bits")),
        },
        None => 32,
    };
    let (mut variants, mut arms) = (TokenStream::new(), TokenStream::new());
    let mut fresh = data.variants.first().map(|v| &v.ident);
    for variant in &data.variants {
        let attributes = Attributes::read(&variant.attrs, "a literal", &VARIANT)?;
        let (rust, name) = (&variant.ident, member::name(&attributes, &variant.ident)?);
        let is_default = attributes.flag("default_literal")?;
        if is_default {
            fresh = Some(rust);
        }
        arms.extend(quote! {
            #support::Lit::Text(#name) => ::core::option::Option::Some(#ident::#rust),
            #support::Lit::Int(number) if number == #ident::#rust as i128 => ::core::option::Option::Some(#ident::#rust),
        });
        variants.extend(quote! {
            #support::Variant { name: #name, value: #ident::#rust, number: #ident::#rust as i128, is_default: #is_default },
        });
    }
    let message = structure::message(ident, &support);
    Ok(quote! {
        const _: () = {
            // SAFETY: the representation of the enum is checked before it is used.
            unsafe impl #support::MessageField for #ident {
                fn default_value() -> Self {
                    #ident::#fresh
                }

                fn describe(describe: &mut #support::Describe) -> #support::Described {
                    // SAFETY: all variants are listed, and none has fields.
                    unsafe { describe.enumeration::<Self>(#def, #bit_bound, &[#variants]) }
                }

                fn from_lit(lit: #support::Lit) -> ::core::option::Option<Self> {
                    match lit {
                        #arms
                        _ => ::core::option::Option::None,
                    }
                }
            }
        };
        #message
    })
}

fn check_memory(input: &DeriveInput, data: &DataEnum) -> syn::Result<()> {
    let has_repr = input.attrs.iter().any(|a| a.path().is_ident("repr"));
    match data.variants.len() {
        0 => Err(Error::new_spanned(&input.ident, "an enum without literals has no value")),
        1 if !has_repr => {
            Err(Error::new_spanned(&input.ident, "one literal takes no memory: give the enum a #[repr(u8)]"))
        }
        _ => Ok(()),
    }
}
