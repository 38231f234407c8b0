//! The parameters of a function.

use proc_macro2::{Ident, Span};
use syn::{Attribute, Error, Expr, FnArg, GenericArgument, Pat, PathArguments, PathSegment, Result, Type};

/// A parameter of a function.
pub(crate) enum Parameter {
    /// A `Context` or a `State<T>`: what is not an argument.
    Own { local: Ident, ty: Type },
    /// The only argument without a doc comment: a type with all of them.
    Whole { ty: Type },
    /// The URI of a resource.
    Uri { ty: Type },
    /// An argument on its own, with its doc comment and attributes of serde and schemars.
    Named {
        name: Ident,
        ty: Type,
        attributes: Vec<Attribute>,
        /// The function that completes it, of `#[complete(..)]`.
        completer: Option<Expr>,
    },
}

/// Takes what describes arguments from the parameters of a function, and says what they are. `what` is the attribute of the function.
pub(crate) fn parameters<'a>(inputs: impl Iterator<Item = &'a mut FnArg>, what: &str) -> Result<Vec<Parameter>> {
    let mut parameters = Vec::new();
    let mut undocumented = Vec::new();
    for input in inputs {
        let typed = match input {
            FnArg::Typed(typed) => typed,
            FnArg::Receiver(receiver) => {
                let message = format!(
                    "a method cannot have `#[{what}]`: write a function, pass the value to `Service::state`, and take it as `State<T>`"
                );
                return Err(Error::new_spanned(receiver, message));
            }
        };
        if let Some(condition) = typed.attrs.iter().find(|attribute| is_one_of(attribute, &["cfg", "cfg_attr"])) {
            let message = "a parameter has no `cfg`: write two functions";
            return Err(Error::new_spanned(condition, message));
        }
        let ty = peeled(&typed.ty).clone();
        let completer = completer(&mut typed.attrs, what)?;
        let attributes = std::mem::take(&mut typed.attrs).into_iter();
        let (attributes, others): (Vec<_>, _) =
            attributes.partition(|attribute| is_one_of(attribute, &["doc", "serde", "schemars"]));
        typed.attrs = others;
        match &ty {
            Type::Reference(_) => {
                return Err(Error::new_spanned(&ty, "a parameter is owned: write `String` for `&str`, `Vec<T>` for `&[T]`"));
            }
            Type::ImplTrait(_) => {
                return Err(Error::new_spanned(&ty, "the type of a parameter is named, since its schema is sent"));
            }
            _ => {}
        }
        if let Some(own) = own(&ty) {
            if let Some(attribute) = attributes.first() {
                return Err(Error::new_spanned(attribute, format!("a `{own}` is no argument, so it is not described")));
            }
            if let Some(completer) = completer {
                return Err(Error::new_spanned(completer, format!("a `{own}` is no argument, so it is not completed")));
            }
            let count = parameters.iter().filter(|parameter| matches!(parameter, Parameter::Own { .. })).count();
            let local = Ident::new(&format!("{}{}", own.to_lowercase(), suffix(count)), Span::mixed_site());
            parameters.push(Parameter::Own { local, ty });
            continue;
        }
        if what == "resource" && last_segment(&ty).is_some_and(|last| last.ident == "ResourceUri") {
            parameters.push(Parameter::Uri { ty });
            continue;
        }
        if attributes.is_empty() {
            if let Some(completer) = completer {
                let message = "what is completed is an argument on its own, with a doc comment: write `/// What it is` above it. For an \
                               argument in a struct, write `.complete(\"name\", function)` where the prompt is added";
                return Err(Error::new_spanned(completer, message));
            }
            undocumented.push((typed.pat.clone(), ty.clone()));
            parameters.push(Parameter::Whole { ty });
            continue;
        }
        let Pat::Ident(pattern) = &*typed.pat else {
            return Err(Error::new_spanned(
                &typed.pat,
                "an argument has a name: write `name: Type`, or take one struct of arguments",
            ));
        };
        parameters.push(Parameter::Named { name: pattern.ident.clone(), ty, attributes, completer });
    }
    let is_argument = |parameter: &&Parameter| matches!(parameter, Parameter::Whole { .. } | Parameter::Named { .. });
    let has_others = parameters.iter().filter(is_argument).count() > 1;
    if let Some((pattern, ty)) = undocumented.first() {
        let scalar = last_segment(ty).is_some_and(|last| SCALARS.contains(&&*last.ident.to_string()));
        if has_others || scalar || matches!(ty, Type::Tuple(_) | Type::Array(_)) {
            let message = "an argument on its own has a doc comment, which is its description: write `/// What it is` above it. Arguments \
                           together are one struct with `#[args]`; a shared value is taken as `State<T>`";
            return Err(Error::new_spanned(pattern, message));
        }
    }
    Ok(parameters)
}

/// Takes `#[complete(function)]` from the attributes of a parameter.
fn completer(attributes: &mut Vec<Attribute>, what: &str) -> Result<Option<Expr>> {
    let mut found = None;
    for attribute in attributes.extract_if(.., |attribute| attribute.path().is_ident("complete")) {
        if what == "tool" {
            let message = "the arguments of a tool are not completed, only those of prompts, and the variables of resources";
            return Err(Error::new_spanned(attribute, message));
        }
        if found.is_some() {
            return Err(Error::new_spanned(attribute, "`complete` is given twice"));
        }
        let function = attribute
            .parse_args()
            .map_err(|error| Error::new(error.span(), "write the function that completes it: `#[complete(function)]`"))?;
        found = Some(function);
    }
    Ok(found)
}

/// Types that are certainly no arguments, since arguments are an object.
const SCALARS: [&str; 20] = [
    "String", "bool", "char", "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32", "f64",
    "Vec", "PathBuf", "Duration",
];

fn is_one_of(attribute: &Attribute, names: &[&str]) -> bool {
    names.iter().any(|name| attribute.path().is_ident(name))
}

fn suffix(count: usize) -> String {
    if count == 0 { String::new() } else { (count.saturating_add(1)).to_string() }
}

/// `Context` or `State`, if `ty` is that. A type of this name with other generic arguments is one of the program.
fn own(ty: &Type) -> Option<&'static str> {
    let PathSegment { ident, arguments } = last_segment(ty)?;
    match arguments {
        PathArguments::None if ident == "Context" => Some("Context"),
        PathArguments::AngleBracketed(given) if ident == "State" => {
            let mut given = given.args.iter();
            matches!((given.next(), given.next()), (Some(GenericArgument::Type(_)), None)).then_some("State")
        }
        _ => None,
    }
}

/// The type itself, where a macro or parentheses are around it.
pub(crate) fn peeled(mut ty: &Type) -> &Type {
    loop {
        ty = match ty {
            Type::Group(group) => &group.elem,
            Type::Paren(paren) => &paren.elem,
            _ => return ty,
        };
    }
}

/// The last name in the path of a type, with its generic arguments.
pub(crate) fn last_segment(ty: &Type) -> Option<&PathSegment> {
    match peeled(ty) {
        Type::Path(path) => path.path.segments.last(),
        _ => None,
    }
}
