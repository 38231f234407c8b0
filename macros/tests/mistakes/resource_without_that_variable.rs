#[macros::resource("file:///{name}")]
async fn a(
    /// The path.
    path: String,
) -> String {
    path
}

#[macros::resource("file:///{name}", subscribable)]
async fn b() -> String {
    String::new()
}

#[macros::resource("file:///a")]
async fn c(uri: ResourceUri) -> String {
    uri.uri
}

#[macros::resource("file:///{name}")]
async fn d(
    /// The type.
    r#type: String,
) -> String {
    r#type
}

fn main() {}
