#[macros::tool]
async fn resize(
    /// The context.
    context: Context,
) {
}

fn main() {}
