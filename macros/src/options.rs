//! The options in the parentheses of an attribute.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, Ident, Lit, LitBool, LitStr, Result, Token};

/// The options of one attribute, in their order.
pub(crate) struct Options {
    /// A string without a name, which comes first.
    pub(crate) first: Option<LitStr>,
    named: Vec<(Ident, Option<Expr>)>,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut options = Self { first: None, named: Vec::new() };
        if input.peek(LitStr) {
            options.first = Some(input.parse()?);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        while !input.is_empty() {
            let name = input.call(Ident::parse_any)?;
            if options.named.iter().any(|(other, _)| *other == name) {
                return Err(Error::new(name.span(), format!("`{name}` is given twice")));
            }
            let value = input.parse::<Option<Token![=]>>()?.map(|_| input.parse()).transpose()?;
            options.named.push((name, value));
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}

impl Options {
    /// Refuses options whose names are not in `known`.
    pub(crate) fn only(&self, attribute: &str, known: &[&str]) -> Result<&Self> {
        match self.named.iter().find(|(name, _)| name != "crate" && !known.contains(&&*name.to_string())) {
            None => Ok(self),
            Some((name, _)) if known.is_empty() => Err(Error::new(name.span(), format!("`#[{attribute}]` has no options"))),
            Some((name, _)) => {
                let known: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
                let known = known.join(", ");
                Err(Error::new(name.span(), format!("`#[{attribute}]` has no option `{name}`; its options are {known}")))
            }
        }
    }

    /// Refuses a string without a name.
    pub(crate) fn no_first(&self, attribute: &str) -> Result<()> {
        match &self.first {
            Some(first) => {
                let value = first.value();
                Err(Error::new(first.span(), format!("give the string a name: `#[{attribute}(name = {value:?})]`")))
            }
            None => Ok(()),
        }
    }

    /// The path of the crate that what is expanded names: `::sansmcp`, unless the option `crate` gives another.
    pub(crate) fn root(&self) -> TokenStream {
        self.get("crate").and_then(|(_, path)| path.as_ref()).map_or_else(|| quote!(::sansmcp), ToTokens::to_token_stream)
    }

    /// The value of a string, which may be an expression, such as a constant.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&Expr>> {
        match self.get(name) {
            None => Ok(None),
            Some((option, None)) => Err(Error::new(option.span(), format!("write `{name} = \"..\"`"))),
            Some((_, Some(Expr::Lit(value)))) if !matches!(value.lit, Lit::Str(_)) => {
                Err(Error::new_spanned(value, format!("`{name}` is a string: write `{name} = \"..\"`")))
            }
            Some((_, Some(value))) => Ok(Some(value)),
        }
    }

    /// The value of an expression; `example` shows one.
    pub(crate) fn value(&self, name: &str, example: &str) -> Result<Option<&Expr>> {
        match self.get(name) {
            None => Ok(None),
            Some((option, None)) => Err(Error::new(option.span(), format!("write `{name} = {example}`"))),
            Some((_, Some(Expr::Lit(value)))) => Err(Error::new_spanned(value, format!("write `{name} = {example}`"))),
            Some((_, Some(value))) => Ok(Some(value)),
        }
    }

    /// The value of a switch: `true` if it stands alone.
    pub(crate) fn switch(&self, name: &str) -> Result<Option<LitBool>> {
        match self.get(name) {
            None => Ok(None),
            Some((option, None)) => Ok(Some(LitBool::new(true, option.span()))),
            Some((_, Some(Expr::Lit(syn::ExprLit { lit: Lit::Bool(value), .. })))) => Ok(Some(value.clone())),
            Some((_, Some(value))) => Err(Error::new_spanned(value, format!("write `{name}`, or `{name} = false`"))),
        }
    }

    /// Returns `true` if a mark is there, which has no value.
    pub(crate) fn mark(&self, name: &str) -> Result<bool> {
        match self.get(name) {
            None => Ok(false),
            Some((_, None)) => Ok(true),
            Some((_, Some(value))) => Err(Error::new_spanned(value, format!("write `{name}` without a value, or leave it out"))),
        }
    }

    fn get(&self, name: &str) -> Option<&(Ident, Option<Expr>)> {
        self.named.iter().find(|(option, _)| option == name)
    }
}
