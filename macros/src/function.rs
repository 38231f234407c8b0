//! A function with an attribute: what tools, prompts and resources have in common.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::ext::IdentExt as _;
use syn::{
    Attribute, Error, Expr, ExprLit, GenericArgument, Ident, ItemFn, Lit, Meta, PathArguments, PathSegment, Result, ReturnType,
    Type, Visibility,
};

use crate::args::derives;
use crate::options::Options;
use crate::parameter::{Parameter, last_segment, parameters};

/// A function with an attribute.
pub(crate) struct Function {
    /// The crate that what is expanded names.
    pub(crate) root: TokenStream,
    pub(crate) name: Ident,
    visibility: Visibility,
    /// Its doc comment.
    docs: Vec<Attribute>,
    /// The function as it was written, without its doc comment, and without what describes its parameters.
    item: ItemFn,
    pub(crate) parameters: Vec<Parameter>,
    /// The type that it returns, as it is written; `None` if there is none.
    pub(crate) output: Option<Type>,
}

impl Function {
    /// Reads the function that has the attribute `what`.
    pub(crate) fn parse(options: &Options, item: TokenStream, what: &str) -> Result<Self> {
        let mut item: ItemFn = syn::parse2(item).map_err(|error| {
            Error::new(
                error.span(),
                format!("`#[{what}]` is for a function, such as `async fn name(context: Context) -> Result<String>`"),
            )
        })?;
        let signature = &item.sig;
        if let Some(constness) = &signature.constness {
            return Err(Error::new(constness.span, format!("a function with `#[{what}]` is not `const`")));
        }
        let generics = &signature.generics;
        if !generics.params.is_empty() {
            let message = format!("a function with `#[{what}]` is not generic: its types are known when it is registered");
            return Err(Error::new_spanned(&generics.params, message));
        }
        let parameters = parameters(item.sig.inputs.iter_mut(), what)?;
        let (docs, others) = std::mem::take(&mut item.attrs).into_iter().partition(|attribute| attribute.path().is_ident("doc"));
        item.attrs = others;
        let visibility = std::mem::replace(&mut item.vis, Visibility::Inherited);
        let output = match &item.sig.output {
            ReturnType::Default => None,
            ReturnType::Type(_, ty) => Some((**ty).clone()),
        };
        Ok(Self { root: options.root(), name: item.sig.ident.clone(), visibility, docs, item, parameters, output })
    }

    /// The name in the protocol: the option `name`, or the name of the function.
    pub(crate) fn public_name(&self, options: &Options) -> Result<TokenStream> {
        let name = self.name.unraw().to_string();
        Ok(options.text("name")?.map_or_else(|| quote!(#name), |name| quote!(#name)))
    }

    /// The call of the builder method `description`, if there is a description.
    pub(crate) fn description(&self, options: &Options) -> Result<Option<TokenStream>> {
        if let Some(given) = options.text("description")? {
            return Ok(Some(quote!(.description(#given))));
        }
        let lines = self.docs.iter().filter_map(doc_line).collect::<Result<Vec<_>>>()?;
        let text = lines.join("\n");
        let text = text.trim();
        Ok((!text.is_empty()).then(|| quote!(.description(#text))))
    }

    /// Calls of builder methods that take a string, for those options that are given.
    pub(crate) fn texts(options: &Options, names: &[&str]) -> Result<TokenStream> {
        let mut calls = TokenStream::new();
        for name in names {
            if let Some(value) = options.text(name)? {
                let method = format_ident!("{name}");
                calls.extend(quote!(.#method(#value)));
            }
        }
        Ok(calls)
    }

    /// The call of the builder method `deadline`, if there is one.
    pub(crate) fn deadline(options: &Options) -> Result<Option<TokenStream>> {
        Ok(options.value("deadline", "Duration::from_secs(60)")?.map(|deadline| quote!(.deadline(#deadline))))
    }

    /// The `ToolOutput` that it returns, or that is in the `Result` that it returns.
    pub(crate) fn content(&self) -> Option<&PathSegment> {
        let last = self.output.as_ref().and_then(last_segment);
        let of_result = last.filter(|last| last.ident == "Result").and_then(|last| match &last.arguments {
            PathArguments::AngleBracketed(given) => given.args.iter().find_map(|argument| match argument {
                GenericArgument::Type(ty) => last_segment(ty),
                _ => None,
            }),
            _ => None,
        });
        of_result.or(last).filter(|last| last.ident == "ToolOutput")
    }

    pub(crate) fn is_async(&self) -> bool {
        self.item.sig.asyncness.is_some()
    }

    /// The parameters of the closure that calls the function, except for the arguments.
    pub(crate) fn own_parameters(&self) -> TokenStream {
        let own = self.parameters.iter().filter_map(|parameter| match parameter {
            Parameter::Own { local, ty } => Some(quote!(#local: #ty,)),
            _ => None,
        });
        quote!(#(#own)*)
    }

    /// Calls of the builder method `complete`, for those arguments that have a completer.
    pub(crate) fn completers(&self) -> TokenStream {
        let calls = self.parameters.iter().filter_map(|parameter| match parameter {
            Parameter::Named { name, completer: Some(completer), .. } => {
                let name = name.unraw().to_string();
                Some(quote!(.complete(#name, #completer)))
            }
            _ => None,
        });
        quote!(#(#calls)*)
    }

    /// The type of the arguments. If the function takes them one by one, also a struct with them.
    pub(crate) fn arguments(&self) -> (TokenStream, Option<TokenStream>) {
        let mut fields = Vec::new();
        for parameter in &self.parameters {
            match parameter {
                Parameter::Own { .. } | Parameter::Uri { .. } => {}
                Parameter::Whole { ty } => return (quote!(#ty), None),
                Parameter::Named { name, ty, attributes, .. } => fields.push(quote!(#(#attributes)* #name: #ty)),
            }
        }
        if fields.is_empty() {
            return (quote!(()), None);
        }
        let derives = derives(&self.root);
        // It stands beside the function, so its name is one that no function uses. No peer sees it.
        let name = format_ident!("__Arguments");
        let arguments = quote! {
            #derives
            struct #name {
                #(#fields,)*
            }
        };
        (quote!(#name), Some(arguments))
    }

    /// The parameter of the closure for the arguments, of the type `arguments`.
    pub(crate) fn pattern(&self, arguments: &TokenStream) -> TokenStream {
        let local = arguments_local();
        match self.parameters.iter().all(|parameter| matches!(parameter, Parameter::Own { .. })) {
            true => quote!((): ()),
            false => quote!(#local: #arguments),
        }
    }

    /// The call of the function, and its result as `Ok(..)`. `argument` gives the value of a named argument.
    pub(crate) fn call(&self, argument: impl Fn(&Ident, &Type) -> TokenStream, convert: Option<TokenStream>) -> TokenStream {
        let (root, name) = (&self.root, &self.name);
        let whole = arguments_local();
        let values = self.parameters.iter().map(|parameter| match parameter {
            Parameter::Own { local, .. } => quote!(#local),
            Parameter::Whole { .. } => quote!(#whole),
            // Its variables may be read after it.
            Parameter::Uri { .. } => quote!(#whole.clone()),
            Parameter::Named { name, ty, .. } => argument(name, ty),
        });
        let call = quote!(#name(#(#values),*));
        let awaited = if self.is_async() { quote!(#call.await) } else { call };
        let value = quote!({
            use #root::returned::Plain as _;
            #root::returned::Returned(#awaited).returned_result()?
        });
        let value = convert.map_or_else(|| value.clone(), |convert| quote!(#convert(#value)));
        quote!(::core::result::Result::Ok::<_, #root::ToolError>(#value))
    }

    /// The function that replaces this one: it has the same name, and returns `made`, of the type `ty`. `items` stand before `made`.
    pub(crate) fn replaced(&self, ty: &TokenStream, items: Option<TokenStream>, made: &TokenStream) -> TokenStream {
        let Self { name, visibility, docs, item, .. } = self;
        quote! {
            #(#docs)*
            #[must_use]
            #visibility fn #name() -> #ty {
                #item
                #items
                #made
            }
        }
    }
}

/// The name of the arguments in the closure that calls the function. It hides no name of the function.
pub(crate) fn arguments_local() -> Ident {
    Ident::new("arguments", Span::mixed_site())
}

/// A line of a doc comment, without the space that begins it; `None` for another attribute of rustdoc, such as `#[doc(hidden)]`. The text
/// of a macro in it is not known here.
fn doc_line(attribute: &Attribute) -> Option<Result<String>> {
    let Meta::NameValue(doc) = &attribute.meta else { return None };
    let mut value = &doc.value;
    while let Expr::Group(group) = value {
        value = &group.expr;
    }
    let Expr::Lit(ExprLit { lit: Lit::Str(line), .. }) = value else {
        let message =
            "the description cannot be read from here: write it as an option, such as `description = include_str!(\"..\")`";
        return Some(Err(Error::new_spanned(value, message)));
    };
    let line = line.value();
    Some(Ok(line.strip_prefix(' ').unwrap_or(&line).trim_end().into()))
}
