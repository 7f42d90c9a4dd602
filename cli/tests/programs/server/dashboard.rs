//! The page with live charts, in a real browser.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

use super::admin::admin_of;
use super::client::TestClient;
use super::program::{MAX_WAIT, TestFolder};

/// The variable that names a file for a screenshot of the page.
const SCREENSHOT: &str = "SLIPGATE_SCREENSHOT";
/// The names of the browser on the usual systems.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// A headless Chromium with one page, which the DevTools protocol controls.
struct Browser {
    child: Child,
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
    requests: u64,
}

impl Browser {
    /// Opens a page, or returns `None` where no browser is installed.
    fn open(folder: &TestFolder, url: &str) -> Option<Self> {
        let flags =
            ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--window-size=1100,700"];
        let profile = format!("--user-data-dir={}", folder.path("profile").display());
        let start = |name| {
            let mut command = Command::new(name);
            command.args(flags).args([&profile, url]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            command.spawn().ok()
        };
        let mut child = BROWSERS.into_iter().find_map(start)?;
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let line = lines.find(|line| line.contains("DevTools listening on")).unwrap();
        // An unread pipe would stop the browser.
        std::thread::spawn(move || lines.count());
        let host = line.split("ws://").nth(1).unwrap().split('/').next().unwrap().to_owned();
        let (socket, _) = tungstenite::connect(page_socket(&host, url)).unwrap();
        Some(Self { child, socket, requests: 0 })
    }

    /// Calls a method of the DevTools protocol and returns its result.
    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.requests += 1;
        let request = json!({"id": self.requests, "method": method, "params": params});
        self.socket.send(Message::text(request.to_string())).unwrap();
        loop {
            let Message::Text(text) = self.socket.read().unwrap() else { continue };
            let response: Value = serde_json::from_str(&text).unwrap();
            if response["id"] == self.requests {
                return response["result"].clone();
            }
        }
    }

    /// Returns the text of an element.
    fn text(&mut self, id: &str) -> String {
        let expression = format!("document.getElementById({id:?})?.textContent");
        self.call("Runtime.evaluate", &json!({"expression": expression}))["result"]["value"]
            .as_str()
            .unwrap_or("")
            .into()
    }

    /// Waits until the text of an element meets a condition.
    fn until(&mut self, id: &str, condition: impl Fn(&str) -> bool) {
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

#[test]
fn page_shows_live_values_in_a_browser() {
    let folder = TestFolder::new();
    let server = folder.start(&["--admin", "127.0.0.1:0", "--drain", "1h"]);
    let admin = admin_of(&server);
    let Some(mut browser) = Browser::open(&folder, &format!("http://{admin}/")) else {
        println!("no Chromium is installed, so the page is not tested");
        return;
    };
    browser.until("state", |text| text == "ready");
    browser.until("clients-0", |text| text.trim() == "0");
    let mut client = TestClient::join(1, server.address());
    let start = Instant::now();
    let seconds = if std::env::var_os(SCREENSHOT).is_some() { 25 } else { 3 };
    let mut number = 0_u32;
    while start.elapsed() < Duration::from_secs(seconds) {
        number += 1;
        client.send(&vec![7; 1 + (number as usize * 7) % 900]);
        client.turn();
        std::thread::sleep(Duration::from_millis(5 + u64::from(number / 200 % 3) * 5));
    }
    browser.until("clients-0", |text| text.trim() == "1");
    browser.until("datagrams-0", |text| text.len() > 2 && !text.starts_with('0') && !text.starts_with('–'));
    browser.until("turn-0", |text| text.ends_with("ms"));
    assert_eq!(browser.text("problem"), "", "the policy of the page blocks a part of it");
    if let Some(path) = std::env::var_os(SCREENSHOT) {
        let image = browser.call("Page.captureScreenshot", &json!({"format": "png"}));
        fs::write(path, STANDARD.decode(image["data"].as_str().unwrap()).unwrap()).unwrap();
    }
    server.signal("-TERM");
    browser.until("state", |text| text == "draining");
    client.leave();
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    browser.until("state", |text| text == "no connection");
}
