#[macros::prompt]
fn shout(
    /// What to shout.
    #[complete]
    text: String,
) -> String {
    text
}

fn main() {}
