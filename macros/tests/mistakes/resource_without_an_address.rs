#[macros::resource]
async fn manual() -> String {
    String::new()
}

fn main() {}
