#[macros::tool]
async fn a(
    /// The text.
    text: &str,
) {
}

#[macros::tool]
async fn b(job: impl Clone) {}

fn main() {}
