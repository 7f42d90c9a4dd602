//! The guide in `docs/`: each of its code blocks is compiled, and run where it can be.

macro_rules! pages {
    ($($name:ident: $file:literal,)*) => {$(
        #[doc = include_str!(concat!("../../docs/", $file))]
        struct $name;
    )*};
}

pages! {
    Backend: "backend.md",
    Channels: "channels.md",
    Congestion: "congestion.md",
    Game: "game.md",
    Operations: "operations.md",
    Performance: "performance.md",
    Prediction: "prediction.md",
    Security: "security.md",
    Server: "server.md",
    State: "state.md",
}
