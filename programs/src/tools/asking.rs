//! Tools that describe their caller or send it input requests: `whoami`, `summarise`, `delete`, `rename`, `connect` and `survey`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use endpoint::{Context, Tool, ToolError};
use protocol_core::{Capabilities, Identity, OpenUrlResult, Sample, ToolOutput};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::audited::{shaped, structured};
use super::count::Count;
use crate::audit::{Audit, Record};

#[derive(Serialize, JsonSchema)]
struct Caller {
    /// the agent that calls
    agent: Named,
    /// what the caller can be asked for
    capabilities: Abilities,
    /// the program that calls
    client: Named,
}

#[derive(Serialize, JsonSchema)]
struct Named {
    name: String,
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
}

impl From<Identity> for Named {
    fn from(identity: Identity) -> Self {
        Self { name: identity.name, version: identity.version, title: identity.title }
    }
}

#[derive(Serialize, JsonSchema)]
struct Abilities {
    /// asks its model
    sampling: bool,
    /// asks its user
    elicitation: bool,
    /// asks its user to open addresses
    elicitation_url: bool,
    /// names the folders it works in
    roots: bool,
}

impl From<Capabilities> for Abilities {
    fn from(declared: Capabilities) -> Self {
        let Capabilities { sampling, elicitation, elicitation_url, roots, .. } = declared;
        Self { sampling, elicitation, elicitation_url, roots }
    }
}

/// Describes the caller.
pub(super) fn whoami(audit: &Audit) -> Tool {
    structured(audit, "whoami", async |context: Context, (): (), _: Record| {
        Ok(Caller { agent: context.client().into(), capabilities: context.capabilities().into(), client: context.client().into() })
    })
    .title("Who am I")
    .description("Says who the caller is and what it can be asked for.")
    .read_only()
    .inline()
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SummariseArguments {
    /// what to summarise
    text: String,
    /// the longest summary, in tokens; default 400
    #[serde(default)]
    max_tokens: Count<400>,
}

/// Asks the caller's model once.
pub(super) fn summarise(audit: &Audit) -> Tool {
    shaped(audit, "summarise", async |context: Context, arguments: SummariseArguments, _: Record| {
        let mut question = Sample::new(format!("Summarise the following text in a few sentences.\n\n{}", arguments.text));
        question.max_tokens = Some(arguments.max_tokens.get());
        let summary = context.sample(question).await?;
        Ok(ToolOutput::text(summary.text))
    })
    .title("Summarise")
    .description("Has the caller's own model summarise a text.")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DeleteArguments {
    /// what to delete
    name: String,
}

/// The result of the tool. Exactly one of its members is set.
#[derive(Default, Serialize, JsonSchema)]
struct Deleted {
    /// what was deleted
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted: Option<String>,
    /// true when it was not confirmed
    #[serde(skip_serializing_if = "Option::is_none")]
    cancelled: Option<bool>,
}

/// Asks for confirmation first; any error counts as no.
pub(super) fn delete(audit: &Audit) -> Tool {
    structured(audit, "delete", async |context: Context, DeleteArguments { name }: DeleteArguments, _: Record| {
        Ok(if context.confirm(format!("Delete {name}?")).await {
            Deleted { deleted: Some(name), cancelled: None }
        } else {
            Deleted { deleted: None, cancelled: Some(true) }
        })
    })
    .title("Delete")
    .description("Pretends to delete something, after the user has confirmed it.")
    .destructive(true)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RenameArguments {
    /// what to rename
    name: String,
}

/// The form that the user fills in.
#[derive(Deserialize, JsonSchema)]
struct NewName {
    /// The new name
    #[serde(rename = "newName")]
    #[schemars(length(min = 1))]
    new_name: String,
}

/// The result of the tool. Exactly one of its members is set.
#[derive(Serialize, JsonSchema)]
struct Renamed {
    /// what was renamed
    #[serde(skip_serializing_if = "Option::is_none")]
    renamed: Option<Change>,
    /// true when the user did not give a name
    #[serde(skip_serializing_if = "Option::is_none")]
    cancelled: Option<bool>,
}

#[derive(Serialize, JsonSchema)]
struct Change {
    from: String,
    to: String,
}

/// Asks the user for the new name.
pub(super) fn rename(audit: &Audit) -> Tool {
    structured(audit, "rename", async |context: Context, RenameArguments { name }: RenameArguments, _: Record| {
        let form = context.elicit_typed::<NewName>(format!("What is the new name of {name}?")).await?;
        Ok(match form {
            Some(NewName { new_name }) => Renamed { renamed: Some(Change { from: name, to: new_name }), cancelled: None },
            None => Renamed { renamed: None, cancelled: Some(true) },
        })
    })
    .title("Rename")
    .description("Pretends to rename something, to a name that the user gives.")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ConnectArguments {
    /// the address to open
    #[serde(default = "account")]
    url: String,
    /// refuse with an error that says to open it first, instead of asking
    #[serde(default)]
    require: bool,
}

fn account() -> String {
    "https://example.com/connect".to_owned()
}

#[derive(Serialize, JsonSchema)]
struct Decided {
    /// accept, decline or cancel
    decided: &'static str,
}

/// Asks the user to open a URL, and pretends that they have finished there.
pub(super) fn connect(audit: &Audit) -> Tool {
    structured(audit, "connect", async |context: Context, ConnectArguments { url, require }: ConnectArguments, _: Record| {
        let open = context.new_url("Connect your account", url);
        if require {
            return Err(ToolError::urls_required(&context, [open]));
        }
        let id = open.id.clone();
        let consent = context.open_url(open).await?;
        if consent == OpenUrlResult::Accept {
            // A notification that cannot be sent does not fail the tool.
            let _ = context.complete_url(id);
        }
        Ok(Decided { decided: consent.as_str() })
    })
    .title("Connect")
    .description("Pretends to connect an account, at an address that the user is asked to open.")
    .open_world(true)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SurveyArguments {
    /// what the survey is about
    topic: String,
}

/// The first form of a survey.
#[derive(Deserialize, JsonSchema)]
struct Participant {
    /// Your name
    #[schemars(length(min = 1))]
    name: String,
}

#[derive(Serialize, JsonSchema)]
struct Surveyed {
    /// who took part; missing if nobody did
    #[serde(skip_serializing_if = "Option::is_none")]
    participant: Option<String>,
    /// the number of this survey since the server started
    number: u64,
    /// what the model thinks
    opinion: String,
    /// whether the answers may be published
    publish: bool,
}

/// Makes three input requests, the second of them during a sleep. Between the first and the second it runs an effect that must happen only
/// once.
pub(super) fn survey(audit: &Audit) -> Tool {
    // Stands for an external service that counts each registration and charges for it.
    let registered = Arc::new(AtomicU64::new(0));
    structured(audit, "survey", move |context: Context, SurveyArguments { topic }: SurveyArguments, _: Record| {
        let registered = Arc::clone(&registered);
        async move {
            context.step(0, 3);
            let form =
                context.elicit_typed::<Participant>(format!("Who takes part in the survey on {topic}?")).key("participant").await?;
            context.step(1, 3);
            let number = context.once("register", async |_key| Ok(registered.fetch_add(1, Ordering::Relaxed) + 1)).await?;
            let asked = context.sample(Sample::new(format!("In one sentence: what do you think about {topic}?"))).key("opinion");
            let (opinion, waited) = futures_lite::future::zip(asked, context.sleep(Duration::from_millis(20))).await;
            waited?;
            context.step(2, 3);
            let publish = context.confirm(format!("Publish the survey on {topic}?")).key("publish").await;
            context.step(3, 3);
            Ok(Surveyed { participant: form.map(|form| form.name), number, opinion: opinion?.text, publish })
        }
    })
    .title("Survey")
    .description("Pretends to make a survey: asks the user for a name, the model for its opinion, and the user for a confirmation.")
}
