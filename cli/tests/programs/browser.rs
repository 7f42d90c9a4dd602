//! A headless Chromium that tests control.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

/// The longest wait for something that happens.
const MAX_WAIT: Duration = Duration::from_secs(180);
/// The variable that names a file for a screenshot of the page.
pub(crate) const SCREENSHOT: &str = "SLIPGATE_SCREENSHOT";
/// The variable that makes tests fail without a browser: CI sets it where there is one.
const REQUIRED: &str = "SLIPGATE_REQUIRE_BROWSER";
/// The names of the browser on the usual systems.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// A headless Chromium with one page, which the DevTools protocol controls.
pub(crate) struct Browser {
    child: Child,
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
    requests: u64,
    /// The events that came before the last response.
    events: Vec<Value>,
}

impl Browser {
    /// Opens a page. Where no browser is installed, it says that the test is skipped and returns `None`, or fails if
    /// one is required.
    pub(crate) fn open(profile: &Path, url: &str) -> Option<Self> {
        let flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-port=0",
            "--window-size=1280,860",
            "--hide-scrollbars",
        ];
        let profile = format!("--user-data-dir={}", profile.display());
        let start = |name| {
            let mut command = Command::new(name);
            command.args(flags).args([&profile, url]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            command.spawn().ok()
        };
        let Some(mut child) = BROWSERS.into_iter().find_map(start) else {
            assert!(std::env::var_os(REQUIRED).is_none(), "{REQUIRED} is set, and no browser is installed");
            let _ = writeln!(std::io::stderr(), "SKIPPED: no Chromium is installed");
            return None;
        };
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let line = lines.find(|line| line.contains("DevTools listening on")).unwrap();
        // An unread pipe would stop the browser.
        std::thread::spawn(move || lines.count());
        let host = line.split("ws://").nth(1).unwrap().split('/').next().unwrap().to_owned();
        let (socket, _) = tungstenite::connect(page_socket(&host, url)).unwrap();
        Some(Self { child, socket, requests: 0, events: Vec::new() })
    }

    /// Calls a method of the DevTools protocol and returns its result.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        self.requests += 1;
        let request = json!({"id": self.requests, "method": method, "params": params});
        self.socket.send(Message::text(request.to_string())).unwrap();
        loop {
            let Message::Text(text) = self.socket.read().unwrap() else { continue };
            let response: Value = serde_json::from_str(&text).unwrap();
            if response["id"] == self.requests {
                return response["result"].clone();
            }
            self.events.push(response);
        }
    }

    /// Returns the value of an expression.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        self.call("Runtime.evaluate", &json!({"expression": expression}))["result"]["value"].clone()
    }

    /// Saves a picture of the whole page, also of what is below the window, if the variable names a file.
    pub(crate) fn save_screenshot(&mut self) {
        if let Some(path) = std::env::var_os(SCREENSHOT) {
            let size = self.call("Page.getLayoutMetrics", &json!({}))["cssContentSize"].clone();
            let clip = json!({"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1});
            let options = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
            let image = self.call("Page.captureScreenshot", &options);
            fs::write(path, STANDARD.decode(image["data"].as_str().unwrap()).unwrap()).unwrap();
        }
    }

    /// Returns the text of an element.
    pub(crate) fn text(&mut self, id: &str) -> String {
        let value = self.evaluate(&format!("document.getElementById({id:?})?.textContent"));
        value.as_str().unwrap_or("").into()
    }

    /// Returns the warnings and errors of the browser since the last call, such as blocked resources.
    #[cfg(unix)]
    pub(crate) fn problems(&mut self) -> Vec<Value> {
        self.call("Log.enable", &json!({}));
        // The entries precede the next response.
        self.call("Runtime.evaluate", &json!({"expression": "0"}));
        let events = std::mem::take(&mut self.events).into_iter();
        events
            .filter(|event| event["method"] == "Log.entryAdded")
            .map(|event| event["params"]["entry"].clone())
            .collect()
    }

    /// Waits until the text of an element meets a condition.
    pub(crate) fn until(&mut self, id: &str, condition: impl Fn(&str) -> bool) {
        let start = Instant::now();
        loop {
            let text = self.text(id);
            if condition(&text) {
                return;
            }
            assert!(start.elapsed() < MAX_WAIT, "{id} is {text:?}, the problem {:?}", self.text("problem"));
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the address of the page's DevTools socket once the page is open.
fn page_socket(host: &str, url: &str) -> String {
    let start = Instant::now();
    loop {
        let mut stream = TcpStream::connect(host).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        write!(stream, "GET /json/list HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut response = Vec::new();
        // The browser may keep the connection open.
        let _ = stream.read_to_end(&mut response);
        let response = String::from_utf8_lossy(&response);
        let pages: Value =
            response.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok()).unwrap_or_default();
        let mut pages = pages.as_array().into_iter().flatten();
        if let Some(page) = pages.find(|page| page["url"] == url) {
            return page["webSocketDebuggerUrl"].as_str().unwrap().to_owned();
        }
        assert!(start.elapsed() < MAX_WAIT, "the page does not open: {response}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
