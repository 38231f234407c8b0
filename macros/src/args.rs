//! `#[args]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields, Result};

use crate::options::Options;

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let root = syn::parse2::<Options>(options)?.only("args", &[])?.root();
    let input: DeriveInput = syn::parse2(item).map_err(|error| {
        Error::new(error.span(), "`#[args]` is for a struct or an enum; the function that takes it has `#[tool]`")
    })?;
    match &input.data {
        Data::Struct(data) => {
            if let Fields::Unnamed(fields) = &data.fields {
                return Err(Error::new_spanned(fields, "arguments have names: write a struct with named fields, `{ name: Type }`"));
            }
        }
        Data::Enum(_) => {}
        Data::Union(data) => {
            return Err(Error::new(data.union_token.span, "a union cannot be read from JSON: write a struct or an enum"));
        }
    }
    let derives = derives(&root);
    Ok(quote! { #derives #input })
}

/// The derives of a type that is read from JSON, with the crates that `root` re-exports.
pub(crate) fn derives(root: &TokenStream) -> TokenStream {
    let [serde, schemars] = ["serde", "schemars"].map(|name| format!("{root}::{name}").replace(' ', ""));
    quote! {
        #[derive(#root::serde::Deserialize, #root::schemars::JsonSchema)]
        #[serde(crate = #serde)]
        #[schemars(crate = #schemars)]
    }
}
