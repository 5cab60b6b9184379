//! The derive for structures.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::{DataStruct, DeriveInput, Error, Field, Fields, Ident, LitStr};

use crate::{
    attributes::{Attributes, definition},
    location, member,
};

const CONTAINER: [&str; 7] = ["name", "crate", "final", "appendable", "mutable", "nested", "autoid"];
const MEMBER: [&str; 4] = ["key", "default", "base", "skip"];

pub fn derive(input: &DeriveInput, data: &DataStruct) -> syn::Result<TokenStream> {
    let attributes = Attributes::read(&input.attrs, "a structure", &CONTAINER)?;
    let support = location::support(attributes.text("crate")?)?;
    let ident = &input.ident;
    let def = definition(&attributes, ident, &support)?;
    let fields = match &data.fields {
        Fields::Named(fields) => fields.named.iter().collect(),
        Fields::Unit => Vec::new(),
        Fields::Unnamed(fields) => {
            let what =
                "members need names; a bitmask or bitset needs #[polywire(bitmask(..))] or #[polywire(bitset(..))]";
            return Err(Error::new_spanned(fields, what));
        }
    };
    let mut describe = TokenStream::new();
    let mut fresh = TokenStream::new();
    for (index, field) in fields.into_iter().enumerate() {
        let part = part(field, index, ident, &support)?;
        describe.extend(part.describe);
        fresh.extend(part.fresh);
    }
    let message = message(ident, &support);
    Ok(quote! {
        const _: () = {
            // SAFETY: every member is described with its own type and offset.
            unsafe impl #support::MessageField for #ident {
                fn default_value() -> Self {
                    #ident { #fresh }
                }

                #[allow(clippy::too_many_lines)]
                fn describe(describe: &mut #support::Describe) -> #support::Described {
                    fn members(members: &mut #support::StructBuilder<'_>) {
                        // SAFETY: `offset_of` and the field's type describe each member.
                        unsafe { #describe }
                    }
                    // SAFETY: `members` describes the members of `Self` and nothing else.
                    unsafe { describe.structure::<Self>(#def, members) }
                }
            }
        };
        #message
    })
}

/// The implementations that are the same for all kinds of messages.
pub fn message(ident: &Ident, support: &TokenStream) -> TokenStream {
    quote! {
        const _: () = {
            impl #support::MessageElement for #ident {}

            // SAFETY: the cell computes the shape of this type.
            unsafe impl #support::Message for #ident {
                fn shape() -> &'static #support::Shape {
                    static SHAPE: #support::ShapeCell = #support::ShapeCell::new();
                    SHAPE.shape_of::<#ident>()
                }
            }
        };
    }
}

/// The code of one field in `describe` and in `fresh`.
struct Part {
    describe: TokenStream,
    fresh: TokenStream,
}

fn part(field: &Field, index: usize, owner: &Ident, support: &TokenStream) -> syn::Result<Part> {
    let attributes = Attributes::read(&field.attrs, "a member", &[&member::COMMON[..], &MEMBER].concat())?;
    let Some(ident) = &field.ident else { return Err(Error::new_spanned(field, "members need names")) };
    let ty = &field.ty;
    if attributes.flag("skip")? {
        let fresh = quote_spanned!(location::at(ty)=> #ident: ::core::default::Default::default(),);
        return Ok(Part { describe: TokenStream::new(), fresh });
    }
    if attributes.flag("base")? {
        if index != 0 {
            attributes.refuse("base", "the base comes first")?;
        }
        let describe = quote_spanned!(location::at(ty)=> members.base::<#ty>(::core::mem::offset_of!(#owner, #ident)););
        let value = member::default_value(&attributes, "default", ty, support)?;
        return Ok(Part { describe, fresh: quote!(#ident: #value,) });
    }
    let name = member::name(&attributes, ident)?;
    let calls = calls(&attributes, &name, support)?;
    // The builder that the last call returns is not needed.
    let describe = quote_spanned! {location::at(ty)=>
        let _ = members.member::<#ty>(#name, ::core::mem::offset_of!(#owner, #ident)) #calls;
    };
    let value = member::default_value(&attributes, "default", ty, support)?;
    let fresh = quote!(#ident: #value,);
    Ok(Part { describe, fresh })
}

fn calls(attributes: &Attributes, name: &LitStr, support: &TokenStream) -> syn::Result<TokenStream> {
    let mut calls = member::builder_calls(attributes, name, support)?;
    if attributes.flag("key")? {
        calls.extend(quote!(.key()));
    }
    calls.extend(member::default_call(attributes, "default", support)?);
    Ok(calls)
}
