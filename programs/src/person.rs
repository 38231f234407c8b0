//! Asks the person at the terminal to fill in forms, to open URLs, and to reply to sampling requests.

use std::fmt;
use std::io::{self, BufRead, Write};

use protocol_core::{Elicit, ElicitResult, Json, OpenUrl, OpenUrlResult};
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::addresses::{can_open, described};

/// The person at a terminal, who is asked on `output` and answers on `input`.
pub(super) struct Person<'a> {
    pub(super) output: &'a mut dyn Write,
    pub(super) input: &'a mut dyn BufRead,
}

impl Person<'_> {
    /// Asks for yes or no, and then for each field of a form. The end of input cancels the form.
    pub(super) fn fill(&mut self, form: &Elicit) -> io::Result<ElicitResult> {
        let fields = fields(form);
        let question = if fields.is_empty() { "[y/N]" } else { "Fill in the form? [Y/n]" };
        match self.ask(&format!("{} {question} ", shown(&form.message)))?.as_deref() {
            None => return Ok(ElicitResult::Cancel),
            Some("y" | "Y" | "yes") => {}
            Some("") if !fields.is_empty() => {}
            Some(_) => return Ok(ElicitResult::Decline),
        }
        let mut content = Map::new();
        for field in fields {
            loop {
                let Some(typed) = self.ask(&field.question())? else { return Ok(ElicitResult::Cancel) };
                match field.read(&typed) {
                    Ok(Some(value)) => content.insert(field.name.clone(), value),
                    Ok(None) => None,
                    Err(why) => {
                        writeln!(self.output, "  {why}")?;
                        continue;
                    }
                };
                break;
            }
        }
        Ok(Json::encode(&content).map_or(ElicitResult::Cancel, ElicitResult::Accept))
    }

    /// Asks if the person agrees to open a URL. If `opens` is `true`, a URL that the person agrees to is opened here, in a browser;
    /// otherwise the person may ask for this. A URL for another program than a browser ([`can_open`]) is never opened here. Returns the
    /// decision, and `true` if the URL is to be opened here. At the end of input the decision is [`OpenUrlResult::Cancel`].
    pub(super) fn consent(&mut self, open: &OpenUrl, opens: bool) -> io::Result<(OpenUrlResult, bool)> {
        writeln!(self.output, "{}", described("The server asks you to open an address: ", open))?;
        let question = match can_open(open) {
            true if opens => "Agree, and open it here? [y/N] ",
            true => "Agree? [y: I open it myself, o: open it here, N] ",
            false => "Agree? [y: I open it myself, N] ",
        };
        Ok(match self.ask(question)?.as_deref() {
            None => (OpenUrlResult::Cancel, false),
            Some("y" | "Y" | "yes") => (OpenUrlResult::Accept, opens && can_open(open)),
            Some("o" | "O") if can_open(open) => (OpenUrlResult::Accept, true),
            Some(_) => (OpenUrlResult::Decline, false),
        })
    }

    /// Asks the person for the answer to a sampling request. Returns `None` if the first line is empty or the input has ended.
    pub(super) fn reply(&mut self, prompt: &str) -> io::Result<Option<String>> {
        writeln!(self.output, "The server asks your model:")?;
        for line in prompt.lines() {
            writeln!(self.output, "  {}", shown(line))?;
        }
        writeln!(self.output, "Your reply, ended by an empty line:")?;
        let mut reply = Vec::new();
        while let Some(line) = self.ask("> ")?.filter(|line| !line.is_empty()) {
            reply.push(line);
        }
        Ok((!reply.is_empty()).then(|| reply.join("\n")))
    }

    /// Prints a question and reads one line, without the white space around it; `None` at the end of input.
    fn ask(&mut self, question: &str) -> io::Result<Option<String>> {
        write!(self.output, "{question}")?;
        self.output.flush()?;
        let mut line = String::new();
        if self.input.read_line(&mut line)? == 0 {
            writeln!(self.output)?;
            return Ok(None);
        }
        Ok(Some(line.trim().to_owned()))
    }
}

fn shown(text: &str) -> String {
    super::display::one_line(text)
}

/// One field of a form.
#[derive(Debug)]
struct Field {
    name: String,
    title: Option<String>,
    required: bool,
    default: Option<Value>,
    kind: Kind,
}

#[derive(Debug, PartialEq)]
enum Kind {
    Text { least: usize },
    Number { whole: bool },
    Boolean,
    OneOf(Vec<String>),
    SomeOf(Vec<String>),
}

impl Field {
    fn question(&self) -> String {
        let mut question = format!("  {}", shown(&self.name));
        if let Some(title) = self.title.as_deref().filter(|title| *title != self.name) {
            question.push_str(&format!(", {}", shown(title)));
        }
        match &self.kind {
            Kind::Text { .. } => {}
            Kind::Number { whole: true } => question.push_str(" (a whole number)"),
            Kind::Number { whole: false } => question.push_str(" (a number)"),
            Kind::Boolean => question.push_str(" (yes or no)"),
            Kind::OneOf(values) => question.push_str(&format!(" ({})", shown(&values.join(" | ")))),
            Kind::SomeOf(values) => question.push_str(&format!(" (any of {}, with commas)", shown(&values.join(" | ")))),
        }
        match &self.default {
            Some(Value::String(text)) => question.push_str(&format!(" [{}]", shown(text))),
            Some(value) => question.push_str(&format!(" [{}]", shown(&value.to_string()))),
            None if self.required => {}
            None => question.push_str(" [none]"),
        }
        question + ": "
    }

    /// Parses an answer; `None` to omit the field.
    fn read(&self, typed: &str) -> Result<Option<Value>, String> {
        if typed.is_empty() {
            return match &self.default {
                Some(value) => Ok(Some(value.clone())),
                None if self.required => Err("this one is needed".to_owned()),
                None => Ok(None),
            };
        }
        let one_of = |values: &[String], typed: &str| match values.iter().find(|value| value.as_str() == typed) {
            Some(value) => Ok(Value::String(value.clone())),
            None => Err(format!("one of {}, please", shown(&values.join(", ")))),
        };
        match &self.kind {
            Kind::Text { least } if typed.chars().count() < *least => Err(format!("at least {least} characters, please")),
            Kind::Text { .. } => Ok(Value::String(typed.to_owned())),
            Kind::Number { whole: true } => typed.parse::<i64>().map(Value::from).map_err(|_| "a whole number, please".to_owned()),
            Kind::Number { whole: false } => {
                typed.parse().ok().and_then(Number::from_f64).map(Value::Number).ok_or_else(|| "a number, please".to_owned())
            }
            Kind::Boolean => match typed {
                "y" | "Y" | "yes" | "true" => Ok(Value::Bool(true)),
                "n" | "N" | "no" | "false" => Ok(Value::Bool(false)),
                _ => Err("yes or no, please".to_owned()),
            },
            Kind::OneOf(values) => one_of(values, typed),
            Kind::SomeOf(values) => {
                typed.split(',').map(|part| one_of(values, part.trim())).collect::<Result<_, _>>().map(Value::Array)
            }
        }
        .map(Some)
    }
}

/// The fields of a form, in its order.
fn fields(form: &Elicit) -> Vec<Field> {
    #[derive(Deserialize)]
    struct Schema {
        #[serde(default)]
        properties: InOrder,
        #[serde(default)]
        required: Vec<String>,
    }
    let Ok(schema) = form.schema.decode::<Schema>() else { return Vec::new() };
    let field = |(name, property): (String, Value)| Field {
        required: schema.required.contains(&name),
        title: property["title"].as_str().or_else(|| property["description"].as_str()).map(str::to_owned),
        default: property.get("default").cloned(),
        kind: kind(&property),
        name,
    };
    schema.properties.0.into_iter().map(field).collect()
}

fn kind(property: &Value) -> Kind {
    match property["type"].as_str() {
        Some("boolean") => Kind::Boolean,
        Some("integer") => Kind::Number { whole: true },
        Some("number") => Kind::Number { whole: false },
        Some("array") => Kind::SomeOf(choices(&property["items"])),
        _ => match choices(property) {
            values if values.is_empty() => {
                let least = property["minLength"].as_u64().and_then(|least| usize::try_from(least).ok());
                Kind::Text { least: least.unwrap_or_default() }
            }
            values => Kind::OneOf(values),
        },
    }
}

/// The values to choose from: those of `enum`, or of the choices with titles in `oneOf` or `anyOf`.
fn choices(schema: &Value) -> Vec<String> {
    let plain = schema["enum"].as_array().into_iter().flatten();
    let titled = [&schema["oneOf"], &schema["anyOf"]].into_iter().filter_map(Value::as_array).flatten();
    plain.chain(titled.map(|choice| &choice["const"])).filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The members of an object in their original order, in which a person reads a form.
#[derive(Default)]
struct InOrder(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for InOrder {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = InOrder;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<InOrder, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = object.next_entry()? {
                    members.push(member);
                }
                Ok(InOrder(members))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(schema: &str) -> Elicit {
        Elicit::new("Well?", Json::parse(schema.to_owned()).unwrap())
    }

    fn answer(form: &Elicit, typed: &str) -> (ElicitResult, String) {
        let mut shown_text = Vec::new();
        let answer = Person { output: &mut shown_text, input: &mut typed.as_bytes() }.fill(form).unwrap();
        (answer, String::from_utf8(shown_text).unwrap())
    }

    const NEW_NAME: &str = r#"{"type":"object","properties":{"newName":{"type":"string","minLength":1}},"required":["newName"]}"#;

    #[test]
    fn only_a_yes_confirms() {
        let question = form(r#"{"type":"object","properties":{}}"#);
        assert_eq!(answer(&question, "y\n").0, ElicitResult::Accept(Json::empty_object()));
        assert_eq!(answer(&question, "n\n").0, ElicitResult::Decline);
        assert_eq!(answer(&question, "\n").0, ElicitResult::Decline);
        assert_eq!(answer(&question, "").0, ElicitResult::Cancel);
    }

    #[test]
    fn an_address_is_opened_only_if_the_person_asks_for_it() {
        let decide = |url: &str, opens: bool, typed: &str| {
            let mut shown_text = Vec::new();
            let open = OpenUrl::new("Sign in", url).with_id("1");
            let decided = Person { output: &mut shown_text, input: &mut typed.as_bytes() }.consent(&open, opens).unwrap();
            let shown_text = String::from_utf8(shown_text).unwrap();
            assert!(shown_text.contains("to open an address: Sign in\n") && shown_text.contains(url), "{shown_text}");
            decided
        };
        let https = "https://a.example/";
        assert_eq!(decide(https, false, "y\n"), (OpenUrlResult::Accept, false));
        assert_eq!(decide(https, false, "o\n"), (OpenUrlResult::Accept, true));
        assert_eq!(decide(https, true, "y\n"), (OpenUrlResult::Accept, true));
        for opens in [true, false] {
            assert_eq!(decide(https, opens, "\n"), (OpenUrlResult::Decline, false));
            assert_eq!(decide(https, opens, "n\n"), (OpenUrlResult::Decline, false));
            assert_eq!(decide(https, opens, ""), (OpenUrlResult::Cancel, false));
            assert_eq!(decide("vscode://a.b/", opens, "y\n"), (OpenUrlResult::Accept, false));
            assert_eq!(decide("vscode://a.b/", opens, "o\n"), (OpenUrlResult::Decline, false));
        }
    }

    #[test]
    fn each_field_of_a_form_is_asked_for_until_its_value_is_valid() {
        let form = form(
            r#"{"type":"object","required":["name","age"],"properties":{
                "name":{"type":"string","minLength":2},"age":{"type":"integer"},"fast":{"type":"boolean","default":true},
                "colour":{"type":"string","enum":["red","blue"]},"rest":{"type":"string"}}}"#,
        );
        let (answer, shown_text) = answer(&form, "y\n\nx\nJo\nold\n7\n\ngreen\nblue\n\n");
        let ElicitResult::Accept(content) = answer else { panic!("{answer:?}") };
        assert_eq!(content.as_str(), r#"{"age":7,"colour":"blue","fast":true,"name":"Jo"}"#);
        for complaint in ["this one is needed", "at least 2 characters", "a whole number, please", "one of red, blue"] {
            assert!(shown_text.contains(complaint), "{shown_text}");
        }
        let asked: Vec<_> = ["name", "age", "fast", "colour", "rest"].iter().map(|name| shown_text.find(name).unwrap()).collect();
        assert!(asked.is_sorted(), "{shown_text}");
    }

    #[test]
    fn a_form_may_be_declined_or_cancelled() {
        assert_eq!(answer(&form(NEW_NAME), "n\n").0, ElicitResult::Decline);
        assert_eq!(answer(&form(NEW_NAME), "y\n").0, ElicitResult::Cancel);
    }

    #[test]
    fn a_field_may_have_titled_choices_and_several_values() {
        let titled = serde_json::json!({ "type": "string", "oneOf": [{ "const": "a", "title": "A" }, { "const": "b" }] });
        assert_eq!(kind(&titled), Kind::OneOf(vec!["a".to_owned(), "b".to_owned()]));
        let several = serde_json::json!({ "type": "array", "items": { "type": "string", "enum": ["x", "y"] } });
        assert_eq!(kind(&several), Kind::SomeOf(vec!["x".to_owned(), "y".to_owned()]));
    }

    #[test]
    fn a_reply_to_a_sampling_request_may_have_several_lines_or_be_omitted() {
        let mut shown_text = Vec::new();
        let reply = Person { output: &mut shown_text, input: &mut "one\ntwo\n\nrest".as_bytes() }.reply("What?").unwrap();
        assert_eq!(reply.as_deref(), Some("one\ntwo"));
        assert!(String::from_utf8(shown_text).unwrap().contains("  What?"));
        let none = Person { output: &mut Vec::new(), input: &mut "".as_bytes() }.reply("What?").unwrap();
        assert_eq!(none, None);
    }
}
