//! Functions as handlers: their parameters beside the arguments are a context and states.

use core::any::{Any, TypeId, type_name};
use core::fmt;
use core::ops::Deref;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::context::Context;
use crate::tool_error::{Result, ToolError};

/// A value of the service that its handlers share, as a parameter of a handler: the value of type `T` that was passed to
/// [`Service::state`](crate::Service::state).
///
/// ```
/// use std::sync::Mutex;
///
/// use endpoint::{Context, Result, Service, State, Tool};
///
/// #[derive(Default)]
/// struct Visits(Mutex<u64>);
///
/// async fn visit(_: Context, State(visits): State<Visits>, (): ()) -> Result<u64> {
///     let mut visits = visits.0.lock().map_err(|_| "the counter is broken")?;
///     *visits += 1;
///     Ok(*visits)
/// }
///
/// let service = Service::new("door", "1.0").state(Visits::default()).tool(Tool::new("visit", visit));
/// # drop(service);
/// ```
#[derive(Debug)]
pub struct State<T>(pub Arc<T>);

impl<T> Clone for State<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// The values of a service, one of each type, with the names of the types. Clones share the values.
#[derive(Clone, Default)]
#[allow(unnameable_types, reason = "only hidden methods take it")]
pub struct States(Option<Arc<BTreeMap<TypeId, Value>>>);

#[derive(Clone)]
struct Value {
    type_name: &'static str,
    value: Arc<dyn Any + Send + Sync>,
}

/// The type of a state that a handler takes.
#[derive(Clone, Copy)]
#[allow(unnameable_types, reason = "only hidden methods return it")]
pub struct Need {
    id: TypeId,
    type_name: &'static str,
}

/// The states that a handler takes.
#[derive(Clone)]
pub(crate) struct Needs {
    types: Vec<Need>,
    /// The states of the service that the handler was merged from.
    own: Option<States>,
}

impl Needs {
    pub(crate) const fn of(types: Vec<Need>) -> Self {
        Self { types, own: None }
    }

    /// The states for the handler. `service` are those of the service that has it now.
    pub(crate) fn states<'a>(&'a self, service: &'a States) -> &'a States {
        self.own.as_ref().unwrap_or(service)
    }

    /// Takes the states of another handler, too, which belongs to the same entry.
    pub(crate) fn add(&mut self, other: &Self) {
        self.types.extend_from_slice(&other.types);
    }

    /// Keeps the states of the service that the handler leaves.
    pub(crate) fn keep(&mut self, states: &States) {
        self.own.get_or_insert_with(|| states.clone());
    }

    /// The reason for which the handler cannot run: a state is missing.
    pub(crate) fn refusal(&self, service: &States) -> Option<String> {
        self.states(service).refusal(&self.types)
    }
}

impl States {
    /// Adds a value. Returns the name of its type if there is a value of that type already.
    pub(crate) fn add<T: Send + Sync + 'static>(&mut self, value: T) -> Result<(), &'static str> {
        let values = Arc::make_mut(self.0.get_or_insert_default());
        let type_name = type_name::<T>();
        match values.insert(TypeId::of::<T>(), Value { type_name, value: Arc::new(value) }) {
            Some(_) => Err(type_name),
            None => Ok(()),
        }
    }

    /// The reason for which a handler with these needs cannot run: a state is missing.
    fn refusal(&self, needs: &[Need]) -> Option<String> {
        let missing = needs.iter().find(|need| !self.0.as_ref().is_some_and(|values| values.contains_key(&need.id)))?;
        let name = missing.type_name;
        let others: Vec<_> =
            self.0.iter().flat_map(|values| values.values()).map(|value| format!("`{}`", value.type_name)).collect();
        let others = if others.is_empty() { String::from("no state") } else { others.join(", ") };
        Some(format!("the handler takes a `State<{name}>`: pass a `{name}` to `Service::state`, which was given {others}"))
    }

    fn get<T: Send + Sync + 'static>(&self) -> Option<State<T>> {
        let value = self.0.as_ref()?.get(&TypeId::of::<T>())?;
        Arc::clone(&value.value).downcast().ok().map(State)
    }
}

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().flat_map(|values| values.values()).map(|value| value.type_name)).finish()
    }
}

/// A parameter of a handler beside its arguments: a [`Context`] or a [`State`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a handler here",
    label = "neither a `Context` nor a `State<T>`",
    note = "a handler takes any number of `Context` and `State<T>`, and then its arguments",
    note = "a value that handlers share is passed to `Service::state` and taken as `State<T>`"
)]
pub trait Parameter: Sized {
    #[doc(hidden)]
    fn need() -> Option<Need>;

    #[doc(hidden)]
    fn make(context: &Context, states: &States) -> Result<Self>;
}

impl Parameter for Context {
    fn need() -> Option<Need> {
        None
    }

    fn make(context: &Context, _: &States) -> Result<Self> {
        Ok(context.clone())
    }
}

impl<T: Send + Sync + 'static> Parameter for State<T> {
    fn need() -> Option<Need> {
        Some(Need { id: TypeId::of::<T>(), type_name: type_name::<T>() })
    }

    fn make(_: &Context, states: &States) -> Result<Self> {
        states.get().ok_or_else(|| ToolError::failed(format_args!("the service has no state of type `{}`", type_name::<T>())))
    }
}

/// A function or closure that handles requests: it takes up to eight of [`Context`] and [`State`], and then its arguments, of type `A`.
/// `O` is what it returns: a future, unless it may block. The compiler finds `M`, the types of the other parameters.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler of arguments of type `{A}`",
    note = "a handler is `async fn(Context, Arguments) -> Result<_, ToolError>`: any number of `Context` and `State<T>`, then the arguments, which are `()` if there are none",
    note = "a closure gives the types of its parameters, and captures nothing that has to be cloned: a value that handlers share is passed to `Service::state` and taken as `State<T>`"
)]
pub trait Handler<M, A, O>: Send + Sync + 'static {
    #[doc(hidden)]
    fn needs(&self) -> Vec<Need>;

    #[doc(hidden)]
    fn call(&self, context: &Context, states: &States, arguments: A) -> Result<O>;
}

/// A function or closure that reads a [`Resource`](crate::Resource): it takes up to eight of [`Context`] and [`State`]. The compiler finds
/// `M`, their types.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not read a resource",
    note = "what reads a resource is `async fn(Context) -> Result<ResourceContents, ToolError>`, with any number of `Context` and `State<T>`"
)]
pub trait Reader<M, O>: Send + Sync + 'static {
    #[doc(hidden)]
    fn needs(&self) -> Vec<Need>;

    #[doc(hidden)]
    fn call(&self, context: &Context, states: &States) -> Result<O>;
}

macro_rules! handlers {
    ($($P:ident)*) => {
        impl<F, A, O, $($P,)*> Handler<($($P,)*), A, O> for F
        where
            F: Fn($($P,)* A) -> O + Send + Sync + 'static,
            $($P: Parameter,)*
        {
            fn needs(&self) -> Vec<Need> {
                let needs: &[Option<Need>] = &[$($P::need(),)*];
                needs.iter().copied().flatten().collect()
            }

            #[allow(unused_variables, reason = "a handler of arguments alone takes neither")]
            fn call(&self, context: &Context, states: &States, arguments: A) -> Result<O> {
                Ok(self($($P::make(context, states)?,)* arguments))
            }
        }

        impl<F, O, $($P,)*> Reader<($($P,)*), O> for F
        where
            F: Fn($($P,)*) -> O + Send + Sync + 'static,
            $($P: Parameter,)*
        {
            fn needs(&self) -> Vec<Need> {
                let needs: &[Option<Need>] = &[$($P::need(),)*];
                needs.iter().copied().flatten().collect()
            }

            #[allow(unused_variables, reason = "a reader without parameters takes neither")]
            fn call(&self, context: &Context, states: &States) -> Result<O> {
                Ok(self($($P::make(context, states)?,)*))
            }
        }
    };
}

handlers!();
handlers!(P1);
handlers!(P1 P2);
handlers!(P1 P2 P3);
handlers!(P1 P2 P3 P4);
handlers!(P1 P2 P3 P4 P5);
handlers!(P1 P2 P3 P4 P5 P6);
handlers!(P1 P2 P3 P4 P5 P6 P7);
handlers!(P1 P2 P3 P4 P5 P6 P7 P8);
