//! The handle that notifies the peers of all sessions of a service of changes.

use core::any::Any;
use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use super::answer::Answer;
use super::catalog::{Audience, Catalog};
use crate::context::Context;
use crate::extensions::Extensions;
use crate::state::{ListKind, ServedCall, Shared, Span, diagnose};
use engine::{AbortHandle, Task, TaskEnd, TaskOwner, local_task};
use protocol_core::dialect::{Caller, Reply, tesseron};
use protocol_core::json::{Json, Text};
use protocol_core::session::InboundId;

/// The time in which a resource must be read for the gateways of a Tesseron app.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Notifies the peers of all sessions of a [`Service`](crate::Service) of changes: on every transport and in every revision of MCP, and on
/// Tesseron. `Clone + Send + Sync`; its methods never wait.
///
/// Made by [`Service::updates`](crate::Service::updates). It reaches the sessions that are open; a client that subscribes later reads the
/// resource then. The sessions are not kept open by it.
///
/// Many updates of one resource in a short time become one: a peer gets the first at once, and then at most one every 50 ms, the last of
/// them after the last change. While the queue of a session has no room, its updates wait, one for each resource that it has subscribed to.
///
/// ```
/// use endpoint::{Resource, ResourceContents, Service, UpdateError};
///
/// let clock = Resource::new("clock:", "clock", async || Ok(ResourceContents::text("noon")));
/// let mut service = Service::new("clock", "1.0").resource(clock.subscribable());
/// let updates = service.updates();
/// let service = std::sync::Arc::new(service);
///
/// // Later, while `service` is served:
/// let notified = updates.resource("clock:")?;
/// assert_eq!(notified, 0, "nobody has subscribed yet");
/// assert!(updates.resource("cloak:").is_err());
/// # drop(service);
/// # Ok::<(), UpdateError>(())
/// ```
#[derive(Clone)]
pub struct Updates {
    catalog: Catalog,
}

/// An update of a resource that nobody can have subscribed to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// The service has no resource with this URI, and no template matches it.
    #[error("the service has no resource {uri:?}, and no template that matches it")]
    Unknown {
        /// The URI.
        uri: String,
    },
    /// Nobody can subscribe to the resource.
    #[error("nobody can subscribe to the resource {uri:?}: register it with `subscribable()`")]
    NotSubscribable {
        /// The URI.
        uri: String,
    },
}

impl Updates {
    pub(super) fn new(catalog: Catalog) -> Self {
        Self { catalog }
    }

    /// Notifies everybody who has subscribed to the resource `uri` that it has changed. Returns the number of sessions with a subscription.
    /// Over HTTP without a handshake, each subscription is a session.
    ///
    /// On Tesseron the notification has the new value. So the resource is read, by its handler, for each gateway that has subscribed: with
    /// a [`Context`] whose call has ended, and for 60 s at most. If the handler fails, the gateway is not notified.
    ///
    /// # Errors
    /// [`UpdateError`] if the service has no such resource, or peers cannot subscribe to it.
    pub fn resource(&self, uri: &str) -> Result<usize, UpdateError> {
        let entries = self.catalog.entries();
        if !entries.is_subscribable(uri) {
            let is_known = entries.resources.contains_key(uri)
                || entries.templates.values().any(|(template, _)| template.matches(uri).is_some());
            let uri = uri.into();
            return Err(if is_known { UpdateError::NotSubscribable { uri } } else { UpdateError::Unknown { uri } });
        }
        drop(entries);
        let uri = Text::from(uri);
        let reached = self.catalog.watchers().into_iter().filter(|(session, audience)| match audience {
            Audience::Client => session.verb(|state, now, effects| {
                let is_subscribed = state.is_subscribed(&uri);
                if is_subscribed && state.resource_updates.put(uri.clone(), Json::null(), now) {
                    effects.output();
                }
                is_subscribed
            }),
            Audience::Gateway { .. } => {
                let (is_subscribed, begins) = session.with_state(|state| {
                    let is_subscribed = state.is_subscribed(&uri);
                    (is_subscribed, is_subscribed && state.resource_updates.begin_read(&uri))
                });
                if begins {
                    read(&self.catalog, session, &uri);
                }
                is_subscribed
            }
        });
        Ok(reached.count())
    }

    /// Notifies every peer that the list of tools has changed. Changes by a [`Catalog`] are announced without this: it is for a list that
    /// changes for another reason.
    pub fn tools(&self) {
        self.catalog.announce_again(ListKind::Tools);
    }

    /// Notifies every peer that the list of prompts has changed, as [`tools`](Self::tools) does. Tesseron has no prompts.
    pub fn prompts(&self) {
        self.catalog.announce_again(ListKind::Prompts);
    }

    /// Notifies every peer that the list of resources has changed, as [`tools`](Self::tools) does.
    pub fn resources(&self) {
        self.catalog.announce_again(ListKind::Resources);
    }
}

impl fmt::Debug for Updates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Updates").finish_non_exhaustive()
    }
}

/// Starts a task that reads the new value of a resource for a gateway. The read has begun in the state of `session`.
fn read(catalog: &Catalog, session: &Arc<Shared>, uri: &Text) {
    let owner = Arc::new(ValueRead {
        catalog: catalog.clone(),
        session: Arc::clone(session),
        uri: uri.clone(),
        abort: AbortHandle::default(),
    });
    let peer = session.with_state(|state| state.session.peer().cloned());
    let started = peer.and_then(|peer| {
        // The session has never returned this id, so to the context its call has ended.
        let id = InboundId::from_number(u64::MAX);
        let caller = Caller::without_request(peer);
        let served = ServedCall::new(Arc::clone(session), id, 0, false, caller, Extensions::default(), None);
        let context = Context::new(Arc::new(served));
        let entries = catalog.entries();
        let (resource, _) = entries.resources.get(uri.as_str())?;
        let states = catalog.states();
        let reading = resource.reading(&states);
        let into_reply = reading.conversion();
        Some((context.clone(), reading.answer(context), into_reply))
    });
    match started {
        Some((context, Answer::Shared(reading), into_reply)) => {
            let reading = in_time(context, async move { into_reply(reading.await) });
            session.runtime().spawn(Box::pin(Task::new(owner, reading)));
        }
        Some((context, Answer::Local(make), into_reply)) => {
            let make = move || in_time(context, async move { into_reply(make().await) });
            session.runtime().spawn_local(local_task(owner, make, None));
        }
        // The resource was removed meanwhile.
        None => owner.settle(TaskEnd::Dropped),
    }
}

async fn in_time(context: Context, reading: impl Future<Output = Reply>) -> Option<Reply> {
    context.with_timeout(reading, READ_TIMEOUT).await.ok()
}

/// The task that reads the new value of a resource.
struct ValueRead {
    catalog: Catalog,
    session: Arc<Shared>,
    uri: Text,
    abort: AbortHandle,
}

impl TaskOwner for ValueRead {
    type Output = Option<Reply>;

    fn abort_handle(&self) -> &AbortHandle {
        &self.abort
    }

    fn enter(&self) -> impl Sized + '_ {}

    fn panicked(&self, panic: &(dyn Any + Send)) {
        diagnose::panicked(&Span::default(), panic);
        self.session.with_state(|state| state.counters.panics = state.counters.panics.saturating_add(1));
    }

    fn settle(&self, end: TaskEnd<Option<Reply>>) {
        let was_dropped = matches!(end, TaskEnd::Dropped);
        let value = match end {
            TaskEnd::Value(Some(Reply::Contents(contents))) => Some(tesseron::value(&contents)),
            _ => None,
        };
        let reads_again = self.session.verb(|state, now, effects| {
            if let Some(value) = value
                && state.is_subscribed(&self.uri)
                && state.resource_updates.put(self.uri.clone(), value, now)
            {
                effects.output();
            }
            let changed_again = state.resource_updates.end_read(&self.uri) && !was_dropped && state.closed.is_none();
            changed_again && state.resource_updates.begin_read(&self.uri)
        });
        if reads_again {
            read(&self.catalog, &self.session, &self.uri);
        }
    }
}
