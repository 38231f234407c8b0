//! A server of tools with arguments and results of every kind of type that a tool can have, on standard input and output, to be listed by
//! the clients of other projects: `tests/interop`. Each tool returns its arguments.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use adapter_tokio::{serve, stdio};
use endpoint::{Context, Service, Tool, ToolError};
use protocol_core::Json;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Fields of every kind of type.
#[derive(Deserialize, Serialize, JsonSchema)]
struct Fields {
    number: u8,
    float: Option<f64>,
    /// The text of a person.
    text: Option<String>,
    any: Option<Value>,
    raw: Option<serde_json::Map<String, Value>>,
    list: Option<Vec<Option<u32>>>,
    pair: Option<(u8, String)>,
    array: Option<[i64; 2]>,
    table: Option<BTreeMap<String, Value>>,
    unit: Option<()>,
    name: Option<Name>,
    mixed: Option<Mixed>,
    tagged: Option<Tagged>,
    nested: Option<Box<Self>>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
enum Name {
    First,
    Second,
}

#[derive(Deserialize, Serialize, JsonSchema)]
enum Mixed {
    Name,
    Tuple(u8, u8),
    Struct { size: u8 },
}

#[derive(Deserialize, Serialize, JsonSchema)]
enum Outside {
    Area { width: u8 },
    Line(u8),
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(tag = "kind")]
enum Tagged {
    Dot,
    Line { length: u8 },
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(tag = "kind", content = "value")]
enum Beside {
    Dot,
    Line(u8),
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
enum Untagged {
    Area { width: u8, any: Value },
    Line { length: u8 },
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Wrapper(Tagged);

#[derive(Deserialize, Serialize, JsonSchema)]
struct Unit;

#[derive(Deserialize, Serialize, JsonSchema)]
struct Flattened {
    size: u8,
    #[serde(flatten)]
    tagged: Tagged,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Closed {
    first_name: String,
    #[serde(default)]
    last_name: String,
}

/// A type that contains itself.
#[derive(Deserialize, Serialize, JsonSchema)]
struct Tree {
    below: Vec<Self>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Root(Tree);

#[derive(Deserialize, Serialize, JsonSchema)]
enum Term {
    Zero,
    Next(Box<Self>),
}

/// A tool that takes an `A`, also as an option, and returns it.
fn tools<A: DeserializeOwned + Serialize + JsonSchema + Send + 'static>(name: &str) -> [Tool; 2] {
    [
        Tool::new(name, async |_: Context, given: A| Ok::<_, ToolError>(given)),
        Tool::new(format!("option of {name}").replace(' ', "-"), async |_: Context, given: Option<A>| Ok::<_, ToolError>(given)),
    ]
}

/// A tool without arguments whose result has the type `R`. It always fails: only its schema matters.
fn result<R: Serialize + JsonSchema + Send + 'static>(name: &str) -> Tool {
    Tool::new(name, async |_: Context, (): ()| Err::<R, _>(ToolError::failed("there is none")))
}

fn service() -> Result<Service, Box<dyn Error>> {
    let open = Json::parse(r#"{"type":"object","properties":{"a":{},"b":{"anyOf":[true]}},"required":[]}"#)?;
    let arguments = [
        tools::<Fields>("fields"),
        tools::<Outside>("outside"),
        tools::<Tagged>("tagged"),
        tools::<Beside>("beside"),
        tools::<Untagged>("untagged"),
        tools::<Wrapper>("wrapper"),
        tools::<Unit>("unit"),
        tools::<()>("nothing"),
        tools::<Flattened>("flattened"),
        tools::<Closed>("closed"),
        tools::<Tree>("tree"),
        tools::<Root>("root"),
        tools::<BTreeMap<String, u8>>("table"),
        tools::<BTreeMap<String, Value>>("table-of-any"),
        tools::<Value>("any"),
    ];
    let results = [
        result::<u8>("a-number"),
        result::<String>("a-string"),
        result::<bool>("a-boolean"),
        result::<Name>("a-name"),
        result::<Mixed>("a-mixed"),
        Tool::new("a-term", async |_: Context, (): ()| Ok::<_, ToolError>(Term::Next(Box::new(Term::Zero)))),
        result::<Vec<Fields>>("a-list"),
        result::<Vec<Tree>>("a-forest"),
        result::<Option<Tree>>("perhaps-a-tree"),
        result::<(u8, Value)>("a-pair"),
    ];
    let raw = Tool::from_schema("raw", open, async |_: Context, given: Json| Ok(protocol_core::ToolOutput::structured(given)))?;
    let mut service = Service::new("every-type", "1").tool(raw);
    for tool in arguments.into_iter().flatten().chain(results) {
        service = service.try_tool(tool)?;
    }
    Ok(service)
}

fn main() -> Result<(), Box<dyn Error>> {
    let service = Arc::new(service()?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async { serve(service, stdio()).await })?;
    Ok(())
}
