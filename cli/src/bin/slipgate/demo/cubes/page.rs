//! The page on loopback: panes, figures, knobs and keys. Its path is random, so that no other page can send requests.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use rand::Rng;
use serde_json::{Value, json};
use slipgate_cli::Failure;
use tokio::sync::oneshot;

use super::controls::Controls;
use super::knobs::Knobs;
use super::pane::fewest_frames;
use super::show::panes_json;
use crate::demo::failures::cannot_listen;
use crate::keygen::entropy;

/// The longest body of a request, in bytes.
const MAX_BODY_BYTES: usize = 1024;
/// The policy for browsers: files and values of this server only. No other page may frame it.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'",
);

/// The running page.
pub(super) struct CubePage {
    url: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct PageState {
    controls: Arc<Controls>,
    /// The value of `Host` in requests of the page: another one belongs to a name that resolves to loopback.
    host: String,
}

impl CubePage {
    pub(super) fn start(controls: Arc<Controls>) -> Result<Self, Failure> {
        let bind = (Ipv4Addr::LOCALHOST, 0).into();
        let failure = |error: std::io::Error| cannot_listen("page", "HTTP", bind, &error);
        let listener = TcpListener::bind(bind).map_err(failure)?;
        let host = listener.local_addr().map_err(failure)?.to_string();
        let mut secret = [0_u8; 16];
        entropy()?.fill_bytes(&mut secret);
        let path = hex::encode(secret);
        let url = format!("http://{host}/{path}/");
        let app = router(&path, PageState { controls, host });
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failure)?;
        listener.set_nonblocking(true).map_err(failure)?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(failure)?
        };
        let run = move || {
            runtime.block_on(async move {
                tokio::select! {
                    _ = stopped => {}
                    // Serving ends only with the process.
                    _ = axum::serve(listener, app) => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("cube-page".to_owned()).spawn(run).map_err(failure)?;
        Ok(Self { url, stop: Some(stop), thread: Some(thread) })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for CubePage {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn router(path: &str, state: PageState) -> Router {
    let state = Arc::new(state);
    let file = |kind: &'static str, text: &'static str| get(move || async move { ([(CONTENT_TYPE, kind)], text) });
    let routes = Router::new()
        .route("/", file("text/html; charset=utf-8", include_str!("page/page.html")))
        .route("/page.css", file("text/css; charset=utf-8", include_str!("page/page.css")))
        .route("/page.js", file("text/javascript; charset=utf-8", include_str!("page/page.js")))
        .route("/draw.js", file("text/javascript; charset=utf-8", include_str!("page/draw.js")))
        .route("/frame", get(frame))
        .route("/figures", get(figures))
        .route("/knobs", post(set_knobs))
        .route("/keys", post(press_keys));
    Router::new()
        .nest(&format!("/{path}/"), routes)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(from_fn_with_state(Arc::clone(&state), guard))
        .with_state(state)
}

/// Refuses requests to another host, and adds the security headers.
async fn guard(State(state): State<Arc<PageState>>, request: Request, next: Next) -> Response {
    let mut hosts = request.headers().get_all(HOST).iter();
    let is_own = hosts.next().is_some_and(|host| host.as_bytes() == state.host.as_bytes()) && hosts.next().is_none();
    let mut response = if is_own { next.run(request).await } else { StatusCode::FORBIDDEN.into_response() };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Handles `GET /frame`: for each pane the number of cubes, and 12 bytes for each cube.
async fn frame(State(state): State<Arc<PageState>>) -> impl IntoResponse {
    let mut bytes = Vec::new();
    state.controls.panes().iter().for_each(|pane| pane.write_frame(&mut bytes));
    ([(CONTENT_TYPE, "application/octet-stream")], bytes)
}

/// Handles `GET /figures`.
async fn figures(State(state): State<Arc<PageState>>) -> Json<Value> {
    let (knobs, panes) = (state.controls.knobs(), state.controls.panes());
    Json(json!({ "knobs": knobs, "frames_per_second": fewest_frames(&panes), "panes": panes_json(&panes) }))
}

/// Handles `POST /knobs`.
async fn set_knobs(State(state): State<Arc<PageState>>, Json(knobs): Json<Knobs>) -> Response {
    match knobs.check() {
        Ok(knobs) => {
            state.controls.set_knobs(knobs);
            StatusCode::NO_CONTENT.into_response()
        }
        Err(reason) => (StatusCode::UNPROCESSABLE_ENTITY, reason).into_response(),
    }
}

/// Handles `POST /keys`: the bits of the keys that are pressed.
async fn press_keys(State(state): State<Arc<PageState>>, Json(keys): Json<u32>) -> StatusCode {
    state.controls.keyboard.press(keys);
    StatusCode::NO_CONTENT
}
