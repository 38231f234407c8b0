#[macros::tool]
async fn shout(
    /// What to shout.
    #[complete(words)]
    text: String,
) -> String {
    text
}

fn main() {}
