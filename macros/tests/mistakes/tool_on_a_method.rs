struct Images;

impl Images {
    #[macros::tool]
    async fn resize(&self) {}
}

fn main() {}
