//! `#[prompt]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, Result};

use crate::function::{Function, arguments_local};
use crate::options::Options;

pub(crate) fn expand(options: &Options, item: TokenStream) -> Result<TokenStream> {
    options.only("prompt", &["name", "title", "description", "deadline"])?.no_first("prompt")?;
    let function = Function::parse(options, item, "prompt")?;
    if function.output.is_none() {
        return Err(Error::new(
            function.name.span(),
            "a prompt returns its messages: write `-> PromptOutput`, or `-> String` for one",
        ));
    }
    let (root, name) = (&function.root, function.public_name(options)?);
    let (arguments, items) = function.arguments();
    let local = arguments_local();
    let pattern = function.pattern(&arguments);
    let convert = quote!(#root::PromptOutput::from);
    let (own, call) = (function.own_parameters(), function.call(|name, _| quote!(#local.#name), Some(convert)));
    let (description, deadline) = (function.description(options)?, Function::deadline(options)?);
    let texts = Function::texts(options, &["title"])?;
    let completers = function.completers();
    let made = quote! {
        #root::Prompt::typed(#name, async |#own #pattern| #call)
            #description #texts #deadline #completers
    };
    Ok(function.replaced(&quote!(#root::Prompt), items, &made))
}
