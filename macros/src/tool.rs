//! `#[tool]`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Error, Result};

use crate::function::{Function, arguments_local};
use crate::options::Options;

const OPTIONS: [&str; 9] =
    ["name", "title", "description", "read_only", "destructive", "idempotent", "open_world", "deadline", "inline"];

pub(crate) fn expand(options: &Options, item: TokenStream) -> Result<TokenStream> {
    options.only("tool", &OPTIONS)?.no_first("tool")?;
    let function = Function::parse(options, item, "tool")?;
    let constructor = match (function.is_async(), function.content()) {
        (true, None) => format_ident!("new"),
        (true, Some(_)) => format_ident!("with_content"),
        (false, None) => format_ident!("blocking"),
        (false, Some(content)) => {
            let message = "a function that may block returns a value: make it `async` to return a `ToolOutput`";
            return Err(Error::new_spanned(content, message));
        }
    };
    let (root, name) = (&function.root, function.public_name(options)?);
    let (arguments, items) = function.arguments();
    let local = arguments_local();
    let pattern = function.pattern(&arguments);
    let (own, call) = (function.own_parameters(), function.call(|name, _| quote!(#local.#name), None));
    let asyncness = function.is_async().then(|| quote!(async));
    let (description, deadline) = (function.description(options)?, Function::deadline(options)?);
    let texts = Function::texts(options, &["title"])?;
    let mut hints = TokenStream::new();
    for hint in ["read_only", "idempotent", "inline"] {
        if options.mark(hint)? {
            let method = format_ident!("{hint}");
            hints.extend(quote!(.#method()));
        }
    }
    for hint in ["destructive", "open_world"] {
        if let Some(value) = options.switch(hint)? {
            let method = format_ident!("{hint}");
            hints.extend(quote!(.#method(#value)));
        }
    }
    let made = quote! {
        #root::Tool::#constructor(#name, #asyncness |#own #pattern| #call)
            #description #texts #hints #deadline
    };
    Ok(function.replaced(&quote!(#root::Tool), items, &made))
}
