//! `#[resource]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt as _;
use syn::{Error, Result};

use crate::function::{Function, arguments_local};
use crate::options::Options;
use crate::parameter::Parameter;

pub(crate) fn expand(options: &Options, item: TokenStream) -> Result<TokenStream> {
    options.only("resource", &["name", "title", "description", "mime_type", "subscribable"])?;
    let function = Function::parse(options, item, "resource")?;
    let Some(uri) = &options.first else {
        let message = "a resource has a URI: write `#[resource(\"scheme://path\")]`, with `{name}` for a variable";
        return Err(Error::new(function.name.span(), message));
    };
    if function.output.is_none() {
        return Err(Error::new(
            function.name.span(),
            "a resource returns its contents: write `-> ResourceContents`, or `-> String`",
        ));
    }
    let text = uri.value();
    let variables = variables(&text);
    for parameter in &function.parameters {
        match parameter {
            Parameter::Named { name, .. } if !variables.contains(&&*name.unraw().to_string()) => {
                let name = name.unraw();
                return Err(Error::new(
                    name.span(),
                    format!("`{text}` has no variable `{name}`: write `{{{name}}}` where its value is"),
                ));
            }
            Parameter::Whole { ty } => {
                let message =
                    "a resource takes `Context`, `State<T>` and `ResourceUri`, and variables of its URI with a doc comment";
                return Err(Error::new_spanned(ty, message));
            }
            Parameter::Uri { ty } if variables.is_empty() => {
                return Err(Error::new_spanned(ty, format!("`{text}` has no variable, so the URI is always the same")));
            }
            _ => {}
        }
    }
    let (root, name) = (&function.root, function.public_name(options)?);
    let local = arguments_local();
    let convert = quote!(#root::ResourceContents::from);
    let variable = |name: &syn::Ident, ty: &syn::Type| {
        let name = name.unraw().to_string();
        quote!(#local.variable::<#ty>(#name)?)
    };
    let (own, call) = (function.own_parameters(), function.call(variable, Some(convert)));
    let (description, texts) = (function.description(options)?, Function::texts(options, &["title", "mime_type"])?);
    let completers = function.completers();
    let is_subscribable = options.mark("subscribable")?;
    if variables.is_empty() {
        let subscribable = is_subscribable.then(|| quote!(.subscribable()));
        let made = quote! {
            #root::Resource::new(#uri, #name, async |#own| #call)
                #description #texts #subscribable
        };
        return Ok(function.replaced(&quote!(#root::Resource), None, &made));
    }
    if is_subscribable {
        return Err(Error::new(uri.span(), "a template cannot be `subscribable`: nobody knows which resources it has"));
    }
    let takes_uri = function.parameters.iter().any(|parameter| !matches!(parameter, Parameter::Own { .. }));
    let pattern = if takes_uri { quote!(#local) } else { quote!(_) };
    let made = quote! {
        #root::ResourceTemplate::new(#uri, #name, async |#own #pattern: #root::ResourceUri| #call)
            #description #texts #completers
    };
    Ok(function.replaced(&quote!(#root::ResourceTemplate), None, &made))
}

/// The variables of a template.
fn variables(template: &str) -> Vec<&str> {
    let names = template.split('{').skip(1).filter_map(|part| part.split_once('}'));
    names.map(|(name, _)| name.trim_start_matches('+')).filter(|name| !name.is_empty()).collect()
}
