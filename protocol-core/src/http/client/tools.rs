//! The arguments of each tool that are also sent as headers, according to the annotations in the last list of tools (Streamable HTTP
//! 2026-07-28, "Custom Headers").

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use bytes::Bytes;

use super::types::HttpFault;
use crate::http::header::ParamHeaders;
use crate::json::read::{Members, elements, member, string};
use crate::json::write::{Object, push_json};
use crate::json::{Frame, Text};
use crate::session::ExchangeId;

#[derive(Debug, Default)]
pub(super) struct Tools {
    /// The arguments that are also sent as headers, by the name of the tool. Tools without such arguments are left out.
    headers: BTreeMap<Text, ParamHeaders>,
    lookup: Option<Lookup>,
}

/// A lookup: the client reads the whole list of tools, because the server has refused a call with a missing or wrong header.
#[derive(Debug)]
pub(super) struct Lookup {
    /// The number of pages that were requested.
    pages: u32,
    /// The cursors of these pages.
    cursors: BTreeSet<Text>,
    /// The calls that wait for the end of the lookup, each with the error response that it got.
    calls: Vec<(ExchangeId, Bytes)>,
}

/// One page of the list.
pub(super) struct Page {
    /// The response without the tools whose annotations are invalid; `None` if all annotations are valid.
    pub(super) without_invalid: Option<Bytes>,
    pub(super) faults: Vec<HttpFault>,
}

impl Tools {
    pub(super) fn headers(&self, tool: &str) -> Option<&ParamHeaders> {
        self.headers.get(&Text::from(tool))
    }

    /// Reads the response with a page, and stores which arguments are sent as headers, for at most `most` tools.
    pub(super) fn learn(&mut self, response: &Bytes, most: usize) -> Page {
        let mut page = Page { without_invalid: None, faults: Vec::new() };
        let tools = member(response, "result").and_then(|result| member(result, "tools")).map(elements).unwrap_or_default();
        let mut valid = Vec::with_capacity(tools.len());
        for tool in &tools {
            let name = member(tool, "name").and_then(string);
            let (Some(name), Some(schema)) = (name, member(tool, "inputSchema")) else {
                valid.push(*tool);
                continue;
            };
            let name = Text::from(&*name);
            match ParamHeaders::of_schema(&Frame::new(response).json(schema)) {
                Ok(params) => {
                    valid.push(*tool);
                    if params.is_empty() {
                        self.headers.remove(&name);
                    } else if self.headers.len() < most || self.headers.contains_key(&name) {
                        self.headers.insert(name, params);
                    }
                }
                Err(why) => {
                    self.headers.remove(&name);
                    page.faults.push(HttpFault::Tool { name, why });
                }
            }
        }
        if !page.faults.is_empty() {
            page.without_invalid = Some(with_tools(response, &valid));
        }
        page
    }

    // ---- The lookup ----

    /// Adds a call to the lookup. If there was no lookup, begins one and returns `true`: its first page must be requested.
    pub(super) fn look_up(&mut self, call: ExchangeId, error: Bytes) -> bool {
        match &mut self.lookup {
            Some(lookup) => {
                lookup.calls.push((call, error));
                false
            }
            None => {
                self.lookup = Some(Lookup { pages: 1, cursors: BTreeSet::new(), calls: Vec::from([(call, error)]) });
                true
            }
        }
    }

    /// The call on whose behalf the page at `cursor` is requested. `None` if `most` pages were requested, if this one was, or if no call
    /// waits any longer.
    pub(super) fn next_page(&mut self, cursor: &str, most: u32) -> Option<ExchangeId> {
        let lookup = self.lookup.as_mut().filter(|lookup| lookup.pages < most)?;
        if !lookup.cursors.insert(Text::from(cursor)) {
            return None;
        }
        lookup.pages = lookup.pages.saturating_add(1);
        lookup.calls.first().map(|(call, _)| *call)
    }

    /// Drops a call that is cancelled.
    pub(super) fn withdraw(&mut self, call: ExchangeId) {
        if let Some(lookup) = &mut self.lookup {
            lookup.calls.retain(|(waiting, _)| *waiting != call);
        }
    }

    /// Ends the lookup, and returns the calls that wait for it.
    pub(super) fn end_lookup(&mut self) -> Vec<(ExchangeId, Bytes)> {
        self.lookup.take().map(|lookup| lookup.calls).unwrap_or_default()
    }
}

/// A response with these tools instead of its own.
fn with_tools(response: &[u8], tools: &[&[u8]]) -> Bytes {
    let mut out = Vec::with_capacity(response.len());
    Object::write(&mut out, |object| {
        for (key, value) in Members::of(response).into_iter().flatten() {
            if !key.is("result") {
                object.copy(key, value);
                continue;
            }
            object.object("result", |object| {
                for (key, value) in Members::of(value).into_iter().flatten() {
                    if key.is("tools") {
                        object.array("tools", tools, |out, tool| push_json(out, tool));
                    } else {
                        object.copy(key, value);
                    }
                }
            });
        }
    });
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[
        {"name":"plain","inputSchema":{"type":"object"}},
        {"name":"bad","inputSchema":{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}},
        {"name":"region","inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"Region"}}}},
        {"name":"more","inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"Region"}}}},
        7],"nextCursor":"n"}}"#;

    #[test]
    fn headers_are_learned_from_a_page_and_tools_with_invalid_annotations_are_left_out() {
        let mut tools = Tools::default();
        let page = tools.learn(&Bytes::from_static(PAGE.as_bytes()), 1);
        assert!(matches!(&page.faults[..], [HttpFault::Tool { name, .. }] if *name == "bad"), "{:?}", page.faults);
        let left = page.without_invalid.expect("a page without it");
        let names = member(member(&left, "result").unwrap(), "tools").map(elements).unwrap();
        let names: Vec<_> = names.into_iter().map(|tool| member(tool, "name").and_then(string)).collect();
        assert_eq!(names, [Some("plain".into()), Some("region".into()), Some("more".into()), None]);
        assert_eq!(member(member(&left, "result").unwrap(), "nextCursor"), Some(&br#""n""#[..]));
        assert!(tools.headers("region").is_some());
        assert!(tools.headers("more").is_none(), "there is a limit");
    }

    #[test]
    fn a_tool_that_has_lost_its_annotation_is_called_without_headers() {
        let mut tools = Tools::default();
        tools.learn(&Bytes::from_static(PAGE.as_bytes()), 9);
        let changed = PAGE.replace("x-mcp-header", "x");
        assert!(tools.learn(&Bytes::from(changed), 9).without_invalid.is_none());
        assert!(tools.headers("region").is_none());
    }

    /// A regression: the tool was left out of the list, but a call by its name still sent the headers of its earlier annotation.
    #[test]
    fn a_tool_whose_annotation_has_become_invalid_is_called_without_headers() {
        let mut tools = Tools::default();
        tools.learn(&Bytes::from_static(PAGE.as_bytes()), 9);
        let changed = PAGE.replace(r#""string","x-mcp-header":"Region""#, r#""number","x-mcp-header":"Region""#);
        assert_eq!(tools.learn(&Bytes::from(changed), 9).faults.len(), 3);
        assert!(tools.headers("region").is_none() && tools.headers("more").is_none());
    }
}
