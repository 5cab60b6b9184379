//! The derive for enums with data, which are IDL unions.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::{DataEnum, DeriveInput, Error, Fields, Ident, Path, Token, Variant, parse::Parser, punctuated::Punctuated};

use crate::{
    attributes::{Attributes, Constant, definition, span_of},
    idl_text, location, member, structure,
};

const CONTAINER: [&str; 10] =
    ["name", "crate", "final", "appendable", "mutable", "nested", "autoid", "switch", "switch_type", "key"];
/// `default` is the label, `default = 5` the default value of the case.
const CASE: [&str; 3] = ["case", "default", "default="];

pub fn derive(input: &DeriveInput, data: &DataEnum) -> syn::Result<TokenStream> {
    let attributes = Attributes::read(&input.attrs, "an enum with data", &CONTAINER)?;
    let support = location::support(attributes.text("crate")?)?;
    let ident = &input.ident;
    let def = definition(&attributes, ident, &support)?;
    let key = attributes.flag("key")?;
    let switch = switch(&attributes, ident, &support)?;
    let cases = data.variants.iter().map(|v| case(v, &support)).collect::<syn::Result<Vec<Case<'_>>>>()?;
    let variants: Vec<&Ident> = cases.iter().map(|c| &c.variant.ident).collect();
    let values = cases.iter().map(|c| &c.fresh);
    let numbers: Vec<u32> = (0..cases.len() as u32).collect();
    let described = cases.iter().map(|c| &c.describe);
    let fresh = default_case(&attributes, &cases, &support)?;
    let message = structure::message(ident, &support);
    Ok(quote! {
        const _: () = {
            // SAFETY: every case is described with its own type, in order.
            unsafe impl #support::MessageField for #ident {
                fn default_value() -> Self {
                    <Self as #support::UnionCases>::default_case(#fresh).expect("a case's number")
                }

                fn describe(describe: &mut #support::Describe) -> #support::Described {
                    fn cases(cases: &mut #support::UnionBuilder<'_>) {
                        // SAFETY: the payload's type of each variant describes its case.
                        unsafe { #(#described)* }
                    }
                    let switch = #switch;
                    // SAFETY: `cases` describes the variants of `Self`, in their order.
                    unsafe { describe.union::<Self>(#def, switch, #key, cases) }
                }
            }

            // SAFETY: cases are numbered in order of declaration, as they are described.
            unsafe impl #support::UnionCases for #ident {
                fn selected(&self) -> (u32, *const u8) {
                    match self {
                        #(#ident::#variants(value) => (#numbers, (&raw const *value).cast()),)*
                    }
                }

                fn payload(&mut self, case: u32) -> *mut u8 {
                    match (case, self) {
                        #((#numbers, #ident::#variants(value)) => (&raw mut *value).cast(),)*
                        _ => ::core::ptr::null_mut(),
                    }
                }

                fn default_case(case: u32) -> ::core::option::Option<Self> {
                    match case {
                        #(#numbers => ::core::option::Option::Some(#ident::#variants(#values)),)*
                        _ => ::core::option::Option::None,
                    }
                }
            }
        };
        #message
    })
}

struct Case<'a> {
    variant: &'a Variant,
    fresh: TokenStream,
    labels: Vec<TokenStream>,
    is_default: bool,
    describe: TokenStream,
}

fn case<'a>(variant: &'a Variant, support: &TokenStream) -> syn::Result<Case<'a>> {
    let attributes = Attributes::read(&variant.attrs, "a case", &[&member::COMMON[..], &CASE].concat())?;
    let field = match &variant.fields {
        Fields::Unnamed(fields) if fields.unnamed.len() == 1 => &fields.unnamed[0],
        _ => return Err(Error::new_spanned(variant, "a case of a union has exactly one value, as in `Gust(f32)`")),
    };
    let labels = match attributes.list("case")? {
        Some(list) => Punctuated::<Constant, Token![,]>::parse_terminated
            .parse2(list.clone())
            .map_err(|e| Error::new(span_of(&list), e))?,
        None => Punctuated::new(),
    };
    let is_default = attributes.flag("default")?;
    if labels.is_empty() && !is_default {
        return Err(Error::new_spanned(
            &variant.ident,
            "a case needs labels, as in #[polywire(case(1))], or #[polywire(default)]",
        ));
    }
    let labels = labels.iter().map(|l| l.to_lit(support)).collect::<syn::Result<Vec<_>>>()?;
    let name = member::name(&attributes, &variant.ident)?;
    let mut calls = member::builder_calls(&attributes, &name, support)?;
    calls.extend(member::default_call(&attributes, "default=", support)?);
    let ty = &field.ty;
    let fresh = member::default_value(&attributes, "default=", ty, support)?;
    let describe =
        quote_spanned!(location::at(ty)=> let _ = cases.case::<#ty>(#name, &[#(#labels),*], #is_default) #calls;);
    Ok(Case { variant, fresh, labels, is_default, describe })
}

/// The discriminator, as an expression of type `support::Described`.
fn switch(attributes: &Attributes, ident: &Ident, support: &TokenStream) -> syn::Result<TokenStream> {
    match (attributes.text("switch")?, attributes.text("switch_type")?) {
        (Some(text), None) => {
            let ty = idl_text::parse_primitive(&text, support)?;
            Ok(quote!(#support::Describe::primitive(#ty)))
        }
        (None, Some(path)) => {
            let path: Path = path.parse()?;
            Ok(quote!(describe.switch_type::<#path>()))
        }
        (Some(_), Some(second)) => {
            Err(Error::new(second.span(), "an enum cannot have both 'switch' and 'switch_type'"))
        }
        (None, None) => {
            let what =
                "an enum with data needs #[polywire(switch = \"int32\")] or #[polywire(switch_type = \"path::Enum\")]";
            Err(Error::new(ident.span(), what))
        }
    }
}

/// The number of the case that the default value of the discriminator selects, as an expression.
/// Otherwise it is the default case, else the first.
fn default_case(attributes: &Attributes, cases: &[Case<'_>], support: &TokenStream) -> syn::Result<TokenStream> {
    let otherwise = cases.iter().position(|c| c.is_default).unwrap_or(0) as u32;
    let labels = cases.iter().map(|c| &c.labels).map(|labels| quote!(&[#(#labels),*]));
    let chooses = match attributes.text("switch_type")? {
        Some(path) => {
            let path: Path = path.parse()?;
            quote!(#support::is_default_literal::<#path>)
        }
        None => quote!(#support::is_zero),
    };
    Ok(quote!(#support::default_case(&[#(#labels),*], #chooses, #otherwise)))
}
