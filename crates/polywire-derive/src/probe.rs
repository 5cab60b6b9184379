//! The derive for probes of applications: structures of cells.

use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};
use syn::{
    Attribute, Data, DeriveInput, Error, Expr, ExprLit, Fields, Ident, Lit, LitStr, Meta, Type, ext::IdentExt,
    meta::ParseNestedMeta,
};

/// The attributes of the structure.
#[derive(Default)]
struct Container {
    name: Option<LitStr>,
    uuid: Option<u128>,
    version: Option<LitStr>,
    every_ms: u64,
    heartbeat: Option<String>,
    change: bool,
}

/// A cell, and its attributes.
struct Member {
    ident: Ident,
    ty: Type,
    unit: Option<LitStr>,
    deadband: Option<String>,
    docs: Vec<Attribute>,
}

pub fn derive(input: &DeriveInput) -> syn::Result<TokenStream> {
    if let Some(parameter) = input.generics.params.first() {
        return Err(Error::new_spanned(parameter, "a probe has no parameters: every type needs a UUID of its own"));
    }
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(&input.ident, "a probe is a structure of cells"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new_spanned(&input.ident, "a probe is a structure whose cells have names"));
    };
    let container = Container::read(input)?;
    let members = fields.named.iter().map(Member::read).collect::<syn::Result<Vec<_>>>()?;
    let sample = sample(input, &container, &members);
    let application = application(input, &container, &members)?;
    Ok(quote!(#sample #application))
}

impl Container {
    fn read(input: &DeriveInput) -> syn::Result<Container> {
        let mut found = Container { every_ms: 1000, ..Container::default() };
        each(&input.attrs, |entry| {
            match word(&entry).as_str() {
                "name" => found.name = Some(entry.value()?.parse()?),
                "uuid" => found.uuid = Some(uuid(&entry.value()?.parse()?)?),
                "version" => found.version = Some(entry.value()?.parse()?),
                "every" => found.every_ms = milliseconds(&entry)?,
                "heartbeat" => found.heartbeat = Some(number(&entry)?),
                "change" => found.change = true,
                _ => return Err(unknown(&entry, "name, uuid, version, every, heartbeat, change")),
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// The thinning of the members' deadbands, as text.
    fn thin(&self, members: &[Member]) -> String {
        let bound = |member: &Member| Some(format!("{}={}", member.name(), member.deadband.as_ref()?));
        let mut rules: Vec<String> = members.iter().filter_map(bound).collect();
        if rules.is_empty() && !self.change {
            return "off".to_owned();
        }
        rules.extend(self.heartbeat.as_ref().map(|seconds| format!("heartbeat={seconds}")));
        if rules.is_empty() { "change".to_owned() } else { rules.join(",") }
    }
}

impl Member {
    fn read(field: &syn::Field) -> syn::Result<Member> {
        let Some(ident) = field.ident.clone() else { return Err(Error::new_spanned(field, "cells need names")) };
        let docs = field.attrs.iter().filter(|attribute| attribute.path().is_ident("doc")).cloned().collect();
        let mut member = Member { ident, ty: field.ty.clone(), unit: None, deadband: None, docs };
        each(&field.attrs, |entry| {
            match word(&entry).as_str() {
                "unit" => member.unit = Some(entry.value()?.parse()?),
                "deadband" => member.deadband = Some(number(&entry)?),
                _ => return Err(unknown(&entry, "unit, deadband")),
            }
            Ok(())
        })?;
        Ok(member)
    }

    fn name(&self) -> String {
        self.ident.unraw().to_string()
    }
}

/// The structure of the samples.
fn sample(input: &DeriveInput, container: &Container, members: &[Member]) -> TokenStream {
    let (visibility, name, sample) = (&input.vis, full_name(input, container), sample_name(input));
    let doc = format!("A sample of [`{}`].", input.ident);
    let fields = members.iter().map(|Member { ident, ty, unit, docs, .. }| {
        let unit = unit.iter();
        let docs = if docs.is_empty() { quote!(#[doc = "The cell of this name."]) } else { quote!(#(#docs)*) };
        quote! {
            #docs
            #(#[polywire(unit = #unit)])*
            pub #ident: <#ty as ::polywire_telemetry::Cell>::Value,
        }
    });
    quote! {
        #[doc = #doc]
        #[derive(Clone, Debug, PartialEq, ::polywire_telemetry::__private::Message)]
        #[polywire(name = #name, crate = "::polywire_telemetry::__private")]
        #visibility struct #sample { #(#fields)* }
    }
}

/// The implementation of the trait.
fn application(input: &DeriveInput, container: &Container, members: &[Member]) -> syn::Result<TokenStream> {
    let missing = |what: &str| Error::new_spanned(&input.ident, format!("a probe needs #[probe({what})]"));
    let uuid = Literal::u128_suffixed(container.uuid.ok_or_else(|| missing("uuid = \"..\""))?);
    let version = container.version.as_ref().ok_or_else(|| missing("version = \"1.0\""))?;
    let (ident, sample, thin) = (&input.ident, sample_name(input), container.thin(members));
    let (name, every_ms) = (full_name(input, container), container.every_ms);
    let (type_name, summary) = (ident.unraw().to_string(), summary(&input.attrs));
    let idents: Vec<&Ident> = members.iter().map(|member| &member.ident).collect();
    let cells = members.iter().map(|member| {
        let (name, ty) = (member.name(), &member.ty);
        let unit = member.unit.as_ref().map(LitStr::value).unwrap_or_default();
        quote!(::polywire_telemetry::__private::Line::of::<#ty>(#name, #unit))
    });
    Ok(quote! {
        const _: () = {
            fn pdl() -> &'static str {
                static TEXT: ::std::sync::OnceLock<::std::string::String> = ::std::sync::OnceLock::new();
                TEXT.get_or_init(|| {
                    ::polywire_telemetry::__private::pdl(#name, ::polywire_telemetry::Uuid::of(#uuid), #version, &[#(#cells),*])
                })
            }

            impl ::polywire_telemetry::Application for #ident {
                type Sample = #sample;

                const TYPE: ::polywire_telemetry::ProbeType = ::polywire_telemetry::ProbeType {
                    name: #type_name,
                    summary: #summary,
                    uuid: ::polywire_telemetry::Uuid::of(#uuid),
                    version: #version,
                    pdl: ::polywire_telemetry::Pdl::Of(pdl),
                    every: ::std::time::Duration::from_millis(#every_ms),
                    parameters: &[],
                    shape: <#sample as ::polywire_telemetry::__private::Message>::shape,
                    open: ::polywire_telemetry::__private::not_by_name,
                };

                const THIN: &'static str = #thin;

                fn read(&self, sample: &mut #sample) {
                    #(::polywire_telemetry::Cell::read(&self.#idents, &mut sample.#idents);)*
                }
            }
        };
    })
}

fn sample_name(input: &DeriveInput) -> Ident {
    format_ident!("{}Sample", input.ident.unraw())
}

/// The scoped name in PDL: that of the attribute, or the Rust name.
fn full_name(input: &DeriveInput, container: &Container) -> String {
    container.name.as_ref().map_or_else(|| input.ident.unraw().to_string(), LitStr::value)
}

/// The first line of the documentation.
fn summary(attributes: &[Attribute]) -> String {
    let text = |attribute: &Attribute| match &attribute.meta {
        Meta::NameValue(doc) if doc.path.is_ident("doc") => match &doc.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
                Some(text.value().trim().trim_end_matches('.').to_owned())
            }
            _ => None,
        },
        _ => None,
    };
    attributes.iter().find_map(text).unwrap_or_default()
}

/// Calls a function for each entry of `#[probe(..)]`.
fn each(attributes: &[Attribute], mut entry: impl FnMut(ParseNestedMeta<'_>) -> syn::Result<()>) -> syn::Result<()> {
    let ours = attributes.iter().filter(|attribute| attribute.path().is_ident("probe"));
    ours.into_iter().try_for_each(|attribute| attribute.parse_nested_meta(&mut entry))
}

fn word(entry: &ParseNestedMeta<'_>) -> String {
    entry.path.get_ident().map(ToString::to_string).unwrap_or_default()
}

fn unknown(entry: &ParseNestedMeta<'_>, known: &str) -> Error {
    entry.error(format!("there is no attribute '{}' here; there are {known}", word(entry)))
}

/// A number from 0 up, as it is written.
fn number(entry: &ParseNestedMeta<'_>) -> syn::Result<String> {
    let literal: Lit = entry.value()?.parse()?;
    match &literal {
        Lit::Int(number) => Ok(number.base10_digits().to_owned()),
        Lit::Float(number) => Ok(number.base10_digits().to_owned()),
        _ => Err(Error::new_spanned(&literal, "a number from 0 up is expected")),
    }
}

/// Seconds, from a millisecond to a day, in milliseconds.
fn milliseconds(entry: &ParseNestedMeta<'_>) -> syn::Result<u64> {
    let seconds: f64 = number(entry)?.parse().map_err(|_| entry.error("a number of seconds is expected"))?;
    match (0.001..=86_400.0).contains(&seconds) {
        true => Ok((seconds * 1000.0).round() as u64),
        false => Err(entry.error("a number of seconds from 0.001 to 86400 is expected")),
    }
}

fn uuid(text: &LitStr) -> syn::Result<u128> {
    let written = text.value();
    let ok = written.split('-').map(str::len).eq([8, 4, 4, 4, 12]) && !written.contains('+');
    let bits = u128::from_str_radix(&written.replace('-', ""), 16).ok().filter(|_| ok);
    bits.ok_or_else(|| Error::new(text.span(), "a UUID is expected: 8-4-4-4-12 hexadecimal digits"))
}
