//! The documentation of every public function that returns a future, and of every public type that is one, has a section `# Cancel safety`:
//! the effect of dropping the future before its end.
//!
//! The sources are read line by line, as rustfmt formats them: an item begins on a line of its own, and its body ends with a brace that is
//! indented like its beginning.

use crate::source::sources;
use crate::{CRATES, source_of};

/// The crates with public futures besides [`CRATES`].
const MORE_CRATES: [&str; 3] = ["adapter-smol", "adapter-tokio", "programs"];

/// The names of the public functions that return a future, and of the public types that are one, whose documentation lacks the section.
fn undocumented(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let futures: Vec<&str> = lines.iter().filter_map(|line| future_type(line)).collect();
    let (mut found, mut docs, mut public_trait, mut at) = (Vec::new(), String::new(), None, 0);
    while let Some(line) = lines.get(at) {
        let (item, depth) = (line.trim_start(), line.len() - line.trim_start().len());
        at += 1;
        if let Some(doc) = item.strip_prefix("///") {
            docs.push_str(doc.trim());
            docs.push(' ');
            continue;
        }
        if item == "#[cfg(test)]" {
            at += lines[at..].iter().position(|line| ends(line, depth)).map_or(0, |end| end + 1);
        }
        if item.starts_with('#') {
            continue;
        }
        if item.starts_with("pub trait ") {
            public_trait = Some(depth);
        } else if public_trait.is_some_and(|depth| ends(line, depth)) {
            public_trait = None;
        }
        let is_public = item.starts_with("pub ") || (public_trait.is_some_and(|outer| depth == outer + 4));
        if is_public && !has_section(&docs) {
            found.extend(function_of_a_future(&lines[at - 1..]));
            found.extend(public_type(item).filter(|name| futures.contains(name)).map(str::to_owned));
        }
        docs.clear();
    }
    found
}

/// Returns `true` if a line ends the item whose first line is indented by `depth`.
fn ends(line: &str, depth: usize) -> bool {
    let inner = line.trim_start();
    line.len() - inner.len() == depth && (inner.starts_with('}') || inner.ends_with(';'))
}

/// Returns `true` if the documentation has the section, and the section says whether the future is cancel safe or may be dropped.
fn has_section(docs: &str) -> bool {
    let section = docs.split_once("# Cancel safety ").map(|(_, section)| section.to_lowercase());
    section.is_some_and(|section| section.contains("cancel safe") || section.contains("be dropped"))
}

/// The type that a line implements `Future` for.
fn future_type(line: &str) -> Option<&str> {
    let (_, name) = line.strip_prefix("impl")?.split_once("Future for ")?;
    name.split(|character: char| !character.is_alphanumeric() && character != '_').next()
}

fn public_type(item: &str) -> Option<&str> {
    let name = item.strip_prefix("pub struct ").or_else(|| item.strip_prefix("pub enum "))?;
    name.split(|character: char| !character.is_alphanumeric() && character != '_').next()
}

/// The name of the function that begins at this line, if it returns a future.
fn function_of_a_future(lines: &[&str]) -> Option<String> {
    let first = lines.first()?.trim_start();
    let (before, name) = first.split_once("fn ")?;
    if !before.split(' ').all(|word| ["", "pub", "const", "async", "unsafe"].contains(&word)) {
        return None;
    }
    let mut signature = String::new();
    for line in lines {
        signature.push_str(line.trim_start());
        if line.ends_with(['{', ';', '}']) {
            break;
        }
    }
    let returned = after_parameters(&signature).strip_prefix(" -> ").unwrap_or_default();
    let is_future = before.contains("async") || returned.starts_with("impl Future") || returned.starts_with("BoxFuture<");
    let name = name.split(|character: char| !character.is_alphanumeric() && character != '_').next()?;
    is_future.then(|| name.to_owned())
}

/// The rest of a signature after its parameters. Parameters and bounds may contain the arrows of closures.
fn after_parameters(signature: &str) -> &str {
    let (mut depth, mut before, mut is_within) = (0_usize, ' ', false);
    for (at, character) in signature.char_indices() {
        match character {
            '(' | '<' | '[' => {
                is_within |= character == '(' && depth == 0;
                depth += 1;
            }
            ')' | ']' => depth -= 1,
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        if is_within && depth == 0 {
            return &signature[at + 1..];
        }
        before = character;
    }
    ""
}

#[test]
fn every_public_future_documents_its_cancel_safety() {
    let (mut futures, mut found) = (0, Vec::new());
    for name in CRATES.into_iter().chain(MORE_CRATES) {
        for (file, text) in sources(&source_of(name)) {
            futures += text.matches("# Cancel safety").count();
            found.extend(undocumented(&text).into_iter().map(|item| format!("{name}/src/{file}: {item}")));
        }
    }
    assert_eq!(found, [""; 0], "public futures without a section `# Cancel safety`");
    assert!(futures > 40, "too few futures, so the sources were not found: {futures}");
}

#[test]
fn a_future_without_the_section_is_found() {
    let bad = "
impl Peer {
    /// Waits.
    ///
    /// # Cancel safety
    #[must_use]
    pub async fn empty(&self) {}

    /// Waits, and is cancel safe.
    pub async fn elsewhere(&self) {}

    pub const fn boxed(&self) -> BoxFuture<'static, ()> {
}

/// Runs.
pub fn drive<I: Fn(u8) -> u8, T>(
    transport: I,
    by: impl Fn(u8) -> u8,
) -> impl Future<Output = T>
where
    I: Io,
{

    pub trait Accept {
        /// The next.
        fn accept(&self) -> impl Future<Output = u8> + Send;

        async fn later(&self);
    }

/// A call.
#[must_use]
pub struct Call<T> {
    slot: Slot,
}

impl<T: Send> Future for Call<T> {

#[cfg(test)]
mod tests {
    pub async fn hidden() {}
}

pub async fn last() {}
";
    assert_eq!(undocumented(bad), ["empty", "elsewhere", "boxed", "drive", "accept", "later", "Call", "last"]);
}

#[test]
fn functions_without_a_future_and_futures_with_the_section_are_not_found() {
    let good = "
    /// Waits.
    ///
    /// # Cancel safety
    /// Not cancel safe: all is lost.
    ///
    /// # Errors
    #[must_use]
    pub async fn wait(&self) {}

    pub(crate) async fn ours(&self) {}

    async fn mine(&self) {}

    pub fn takes(&self, future: impl Future<Output = ()>) -> u8 {

    pub fn bound<F>(&self, make: F) -> Self where F: Fn() -> BoxFuture<'static, ()> {

    pub fn spawn<Fut>(make: impl Fn(u8) -> Fut) -> Tool
    where
        Fut: Future<Output = u8>,
    {

    #[cfg(test)]
    pub async fn tested() {}

pub(crate) trait Door {
    fn open() -> impl Future<Output = u8>;
}

/// Waits.
///
/// # Cancel safety
/// The future must be ready to be dropped.
pub struct Told;

impl Future for Told {

struct Private;

impl Future for Private {
";
    assert_eq!(undocumented(good), [""; 0]);
}
