#[macros::tool]
async fn one(text: String) {}

#[macros::tool]
async fn two(
    /// The text.
    text: String,
    most: u32,
) {
}

fn main() {}
