//! The scenarios.

mod cancel;
mod ending;
mod flow;
mod http;
mod lifecycle;
mod messages;
mod progress;

use std::pin::Pin;
use std::sync::LazyLock;

use super::session::Session;
use super::{Revision, Stop, Target};

/// The level of a demand of the specification, in the words of RFC 2119.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// A server that breaks the demand fails.
    Must,
    /// A server that breaks the demand gets a warning.
    Should,
}

/// The transports over which a scenario is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Both,
    Stdio,
    Http,
}

/// The function that runs a scenario in a session with the server.
type Play = for<'a, 'b> fn(&'a mut Session<'b>) -> Pin<Box<dyn Future<Output = Result<(), Stop>> + 'a>>;

/// A scenario.
#[derive(Debug)]
#[non_exhaustive]
pub struct Scenario {
    /// Its name.
    pub id: &'static str,
    /// The behaviour of a server that passes, in one sentence.
    pub sentence: &'static str,
    /// The page of the specification, or the document, that has the demand.
    pub section: &'static str,
    /// The level of the demand in that section.
    pub level: Level,
    over: Over,
    /// The only revision in which the scenario is run; `None` for all.
    only: Option<Revision>,
    pub(super) run: Play,
}

impl Scenario {
    const fn new(id: &'static str, level: Level, section: &'static str, sentence: &'static str, run: Play) -> Self {
        Self { id, sentence, section, level, over: Over::Both, only: None, run }
    }

    const fn over(mut self, over: Over) -> Self {
        self.over = over;
        self
    }

    const fn only(mut self, revision: Revision) -> Self {
        self.only = Some(revision);
        self
    }

    /// Returns `true` if the scenario applies to servers of this kind in the revision.
    #[must_use]
    pub fn applies(&self, target: &Target, revision: Revision) -> bool {
        let has_transport = match self.over {
            Over::Both => true,
            Over::Stdio => matches!(target, Target::Command(_)),
            Over::Http => matches!(target, Target::Url(_)),
        };
        has_transport && self.only.is_none_or(|only| only == revision)
    }

    /// The transport and the revision to which the scenario is limited, as text. Empty if it has no limit.
    #[must_use]
    pub fn confines(&self) -> String {
        let over = match self.over {
            Over::Both => "",
            Over::Stdio => "stdio",
            Over::Http => "HTTP",
        };
        let revision = self.only.map_or("", Revision::name);
        [over, revision].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
    }
}

/// All scenarios, in the order in which they run.
#[must_use]
pub fn all() -> &'static [Scenario] {
    static ALL: LazyLock<Vec<Scenario>> = LazyLock::new(|| {
        let groups = [
            messages::scenarios(),
            lifecycle::scenarios(),
            progress::scenarios(),
            cancel::scenarios(),
            flow::scenarios(),
            ending::scenarios(),
            http::scenarios(),
        ];
        groups.into_iter().flatten().collect()
    });
    &ALL
}
